/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves between memory and a store: what the floors above need of nvme/, in terms of tiers, counted
 * per member. Floor 4. Shard thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/tier/member.h"

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
	uint64_t deadline_ns;     /* absolute; 0: what the store's requests may take (deadline_s) */
	struct nvme_flow *flow;   /* whose share of the store it takes; NULL: nobody's */
	bool is_urgent;           /* somebody computes with it next: before others of its flow */
	struct tier_tally *tally; /* whose bytes they are, once moved; NULL: nobody's */
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
