/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's own parameters for other nodes, where they are on the store: read into a few buffers, a
 * subgroup each, verified, and kept there until others need the room. Floor 5, shard thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/plan.h"
#include "daemon/zero/param/stored.h"

struct across;
struct zero_job;

/* Reads for others at a time: a disk's depth, without being in the way of the own ones. */
#define LENT_BUFFERS ZI_PLAN_LENT_BUFFERS

/* NEW: nobody was given it yet, and somebody has asked for it. */
enum lent_state { LENT_FREE, LENT_READING, LENT_NEW, LENT_GIVEN };

struct lent_buffer {
	struct stored stored;
	struct across *across;
	enum lent_state state;
	uint32_t number;    /* of its unit's values (params.h) */
	uint32_t use_count; /* who is given it now */
};

/* Bytes of all buffers of a job; 0: it needs none. */
uint64_t lent_bytes(const struct zero_job *job);
/* A subgroup's newest values. NULL: they are being read, or will be; serve_more() follows. */
struct lent_buffer *lent_have(struct across *across, struct zero_subgroup *subgroup);
void lent_take(struct lent_buffer *buffer);
void lent_give_back(struct lent_buffer *buffer);
/* Nothing is being read. */
bool lent_is_idle(const struct zero_job *job);
