/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data down to the media of the stores it lies on. Each store has a thread of its own for it
 * ("flush-NAME"), so that a device that does not answer holds up nobody but who waits for it. What
 * is asked while one flush runs is served by one more, whoever asked. Floor 4; shard thread.
 */
#pragma once

#include "daemon/tier/stripe.h"

struct tier_flush;
typedef void (*tier_flush_fn)(struct tier_flush *flush);

/* One store's share of a flush. */
struct tier_flush_part {
	struct tier_flush *flush;
	struct nvme_store *store;
	struct tier_flush_part *next; /* in the store's queue */
	struct zi_post post;
	int result;
};

/* Embedded in its owner, which leaves it alone until `done` ran (never from tier_flush_submit()).
 */
struct tier_flush {
	struct tier *tier;
	uint32_t members; /* tier_member_bit() of at least one, none of them missing */
	struct zi_loop *loop;
	tier_flush_fn done;
	/* results */
	int result;                 /* 0 or -errno; the member has failed then */
	struct tier_member *failed; /* the first of them; NULL: none */
	/* private */
	uint32_t left_count;
	struct tier_flush_part parts[TIER_MEMBERS_MAX];
};

/* What was written to the members before this call is on their media when `done` says so. */
void tier_flush_submit(struct tier_flush *flush);

/* ---- the thread of a member: tier_member_add(), tier_deinit() ---- */

/* @name: of its store. -ENOMEM, -EAGAIN. */
int tier_flusher_new(const char *name, struct tier_flusher **ret_flusher);
/* Nothing is asked of it any more; waits for its thread. NULL is fine. Return: NULL. */
struct tier_flusher *tier_flusher_free(struct tier_flusher *flusher);
