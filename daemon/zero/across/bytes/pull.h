/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that one node pulls from another: through slots of a slab, which the workers of both fill
 * and empty, so that these never see the job's own memory. Floor 5, shard thread. serve.h has the
 * other side.
 *
 * pull_start() ─▶ a slot is free ─▶ PULL ──────────▶ it waits until it is there and a slot is free
 *                                                      a pool thread copies it into the slot
 *   done(), which copies it out of its slot ◀── CAME ◀── SERVE;  GONE: the slot is free
 *
 * Slots of what is pulled and of what is served are apart, and each is held for one transfer and
 * one copy: no node waits for another's room while it holds room that the other one waits for.
 */
#pragma once

#include <stdint.h>

#include "common/base/list.h"
#include "common/base/text.h"
#include "common/wire/geometry.h"

struct across;
struct pull;
struct talk_entry;
struct tier_segment;
struct zero_job;

/* A slot, at most: a subgroup in fp32. */
#define PULL_SLOT_BYTES ((uint64_t)ZI_SUBGROUP_ELEMENTS * sizeof(float))
/* Such slots of a slab for each node, half of them for what is served. */
#define PULL_NODE_SLOTS 8u
/* Of one node, at a time: less than it would take, so that votes need not wait. */
#define PULL_NODE_MAX 32u

enum pull_what {
	PULL_WRITTEN = 1, /* a unit's parameters, as its root has written them (written.h) */
	PULL_PARTIAL = 2, /* of a piece of a subgroup, what a leaf of the tree makes (grads.h) */
	PULL_SUM = 3,     /* a piece of a subgroup's sum, from who has finished it */
	PULL_NORM = 4,    /* sums of squares, of what the node has finished (norm.h) */
	/* a piece of a subgroup's parameters, a slot at most, in param_dtype: its unit's values of
	 * that number (params.h) */
	PULL_PARAM = 5,
	PULL_OFFER = 6, /* what a node has of a commit (offer.h) */
	PULL_HEAL = 7,  /* what a node held of it (heal_serve.h) */
	PULL_BLOBS = 8, /* what a node's ranks gave with a step or commit (blobs.h) */
	_PULL_WHAT_COUNT,
};

typedef void (*pull_done_fn)(struct pull *pull);

/* Embedded in its owner, and in its place until pull_release(), or done() with an error. */
struct pull {
	struct zero_job *job;
	uint32_t node;
	enum pull_what what;
	/* What it is of: `what` says how they are meant. A subgroup is counted in its unit. */
	uint32_t unit, subgroup, number, piece, leaf;
	uint64_t bytes;    /* at most a slot's */
	pull_done_fn done; /* once, from the loop */
	/* not 0: it did not come; @text. The group breaks, or has; or (PULL_PARAM, where nodes
	 * divide parameters: -EPIPE) all ranks of that node have left, and nothing else ends */
	int error;
	struct zi_text text;
	void *memory; /* where it lies, until pull_release() */
	void *owner;  /* the caller's */
	/* private */
	struct zi_list link;
	struct tier_segment *slab;
	uint64_t tag;
	uint32_t slot;
};

/* Precondition: the job's nodes talk. Counted in busy_count until done(). */
void pull_start(struct pull *pull);
/* Its memory is not needed any more; any time after done() without an error. */
void pull_release(struct pull *pull);

/* ---- for across*.c ---- */

/* The slab's memory, once nodes are joined. -ENOSPC, -EDQUOT, -ENOMEM with @text. */
int pull_prepare(struct across *across, struct zi_text *text);
/* It has slots of @slot_bytes from now on, alike on all nodes: pieces are as long. Nothing may be
 * pulled. -ENOMEM; -EBUSY another node has asked for something before its time. */
int pull_divide(struct across *across, uint64_t slot_bytes);
/* Of that half of the slab that is pulled into; the other is served from. */
uint64_t pull_half_bytes(const struct across *across);
/* What was heard of kind CAME, REFUSED. -EPROTO with @text. */
int pull_answered(struct across *across, const struct talk_entry *entry, struct zi_text *text);
/* There is no talk any more: all that waits ends with across->error. */
void pull_fail(struct across *across, int error, const struct zi_text *text);
