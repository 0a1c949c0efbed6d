/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data down to the media of the members it lies on, each on the thread of its own (flusher.h).
 * Floor 4; shard thread.
 */
#pragma once

#include "daemon/tier/member.h"

struct tier_flush;
typedef void (*tier_flush_fn)(struct tier_flush *flush);

/* One member's share of a flush. */
struct tier_flush_part {
	struct tier_flush *flush;
	struct tier_flusher_wish wish;
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
	/* meanwhile */
	uint32_t open_members; /* have not answered; 0 from `done` on */
	uint64_t submitted_ns;
	/* private */
	struct tier_flush_part parts[TIER_MEMBERS_MAX];
};

/* What was written to the members before this call is on their media when `done` says so. */
void tier_flush_submit(struct tier_flush *flush);
/* The first member that has not answered; NULL: all have, or nothing was asked. */
const struct tier_member *tier_flush_awaited(const struct tier_flush *flush);
