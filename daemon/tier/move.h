/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves between memory and a store, and the space on it: what the floors above need of nvme/, in
 * terms of tiers, counted per tier. Floor 4. Shard thread, but for tier_flush().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/tier/tier.h"

struct tier_move;
typedef void (*tier_move_fn)(struct tier_move *move);

/* Embedded in its owner, which leaves it and its buffer alone until `done` ran (never from
 * tier_move_submit()). */
struct tier_move {
	struct tier_member *member;
	bool is_write;
	uint64_t offset_bytes; /* in the store */
	void *buffer;          /* aligned to ZI_STORE_ALIGN_BYTES */
	uint64_t bytes;
	uint64_t deadline_ns; /* absolute; 0: what the store's requests may take (deadline_s) */
	tier_move_fn done;
	/* results */
	int result; /* 0 or -errno; -ETIMEDOUT, -ECANCELED */
	/* private */
	struct nvme_io io;
};

int tier_move_submit(struct nvme_engine *engine, struct tier_move *move);
/* `done` follows, with -ECANCELED unless the move was over or had failed. Also from a `done`. */
void tier_move_cancel(struct nvme_engine *engine, struct tier_move *move);
/* Once after several submits. */
void tier_move_kick(struct nvme_engine *engine);

/* TIER_E_FULL when no member has a run of @bytes free. */
int tier_extent_reserve(struct tier *tier, uint64_t bytes, struct tier_extent *ret_extent);
/* Gives back and clears @extent; nothing for one without bytes. */
void tier_extent_release(struct tier_extent *extent);
/* Recovery: @extent is in use. -EUCLEAN: it cannot be. */
int tier_extent_claim(const struct tier_extent *extent);
uint64_t tier_extent_free_bytes(const struct tier *tier);

/* Members as a set: a bit for each, by its place in the tier. */
static inline uint32_t tier_member_bit(const struct tier_member *member)
{
	return 1u << (member - member->tier->members);
}
/* Data down to the media of @members. Blocks: commit thread. */
int tier_flush(struct tier *tier, uint32_t members);
/* NULL: none has this identity. */
struct tier_member *tier_member_find(struct tier *tier, const uint8_t uuid[16]);
const char *tier_member_path(const struct tier_member *member);
const uint8_t *tier_member_uuid(const struct tier_member *member);
