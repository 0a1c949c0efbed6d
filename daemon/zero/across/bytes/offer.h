/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each node has of the commits that it could go on from: said in a round by name alone, and
 * pulled where that is not enough to choose by. Floor 5, shard thread.
 *
 *   the vote: names ─▶ offers_make(): what goes with them, which stays as it is
 *     ─▶ offers_pull(): every node has what all nodes have ─▶ one choice (agree/heal.h)
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"
#include "daemon/catalog/catalog.h"
#include "daemon/worker/subtree.h"
#include "daemon/zero/across/bytes/pieces.h"
#include "daemon/zero/place/extent.h"

struct across;
struct across_serve;
struct talk_entry;
struct zero_job;

/* Steps and updates are far below. */
#define OFFER_COUNT_MAX (1ull << 62)

/* Commits of a node: the one in force, and the one before it. */
#define OFFERS_MAX 2u

#define OFFER_BITS 3u

/* A commit, as it goes from node to node; bits of subgroups follow. */
struct offer {
	uint64_t number, line;
	int64_t step;
	uint64_t update_count;
	double beta1_power, beta2_power;
	uint32_t scaler_bytes, world;
	uint8_t scaler[CATALOG_SCALER_BYTES];
	struct catalog_placement placement; /* of the node that offers it */
	uint32_t blob_bytes
		[ZI_WORLD_MAX]; /* of each rank's, where the node has that; 0: it has not */
	uint32_t word_count, reserved;
	/* (OFFER_BITS × word_count,) a bit for each subgroup: the node holds it; it has state,
	 * which is not all zero; the node has its parameters, as with zero1 and zero2 also of what
	 * others hold */
	uint64_t words[];
};
static_assert(sizeof(struct offer) % sizeof(uint64_t) == 0, "words follow");

typedef void (*offers_done_fn)(struct zero_job *job, int error, const struct zi_text *text);

struct offers {
	struct across *across;
	struct zero_job *job;
	uint32_t word_count;
	uint64_t offer_bytes;             /* of each, with its words */
	char *memory;                     /* (SUBTREE_NODES × OFFERS_MAX × offer_bytes,) */
	uint8_t masks[SUBTREE_NODES_MAX]; /* which of the two a node makes: bits */
	/* while they are pulled */
	offers_done_fn done;
	uint32_t node, which;
	struct pieces pieces;
	uint32_t use_count; /* device tasks that give them to others */
	/* why they do not come, told from the loop: */
	int error;
	struct zi_text text;
	struct zi_post post;
};

/* Those of this node, as it stands now. What was there of a former question goes. -ENOMEM. */
int offers_make(struct offers *offers, struct across *across);
/* The memory of all; nothing of it may be in flight. */
void offers_free(struct offers *offers);
/* Those of the other nodes, of which ->masks says which they make. @done: from the loop, also when
 * the group has broken; or before this returns. -EPROTO: what came makes no sense. */
void offers_pull(struct offers *offers, offers_done_fn done);
static inline struct offer *offers_of(const struct offers *offers, uint32_t node, uint32_t which)
{
	return (struct offer *)(offers->memory + (node * OFFERS_MAX + which) * offers->offer_bytes);
}
static inline bool offer_has(const struct offer *offer, uint32_t subgroup)
{
	return offer->words[subgroup / 64] >> subgroup % 64 & 1;
}
static inline bool offer_has_state(const struct offer *offer, uint32_t subgroup)
{
	return offer->words[offer->word_count + subgroup / 64] >> subgroup % 64 & 1;
}
static inline bool offer_keeps(const struct offer *offer, uint32_t subgroup)
{
	return offer->words[2 * offer->word_count + subgroup / 64] >> subgroup % 64 & 1;
}
/* That plane of it is there, be it all zero. */
static inline bool offer_has_plane(const struct offer *offer, uint32_t subgroup, uint32_t plane)
{
	return plane == ZERO_PLANE_PARAM ? offer_keeps(offer, subgroup)
	                                 : offer_has(offer, subgroup);
}

/* ---- what serve.c asks ---- */

/* It is of an offer that this node makes. */
bool offers_asked(const struct across *across, const struct talk_entry *entry);
/* What is given, until it has been. */
void offers_describe(struct across_serve *serve);
void offers_give_back(struct offers *offers);
