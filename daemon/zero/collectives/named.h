/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups that their members make without the other ranks of the job, by name. Floor 5, shard
 * thread.
 *
 * A call waits in its rank's list of pending ops until all members that it names have called with
 * the same name. A call that fails ends for every rank that waits with its name; members that come
 * later receive the same error once.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "common/wire/control.h"

struct zero_job;
struct zero_op;
struct zero_rank;

#define NAMED_MISSED_MAX 8u /* failures that are remembered; the oldest is forgotten */

/* A call that failed before some members came. */
struct named_missed {
	char name[ZI_GROUP_NAME_BYTES];
	uint64_t mask; /* ranks that have yet to hear of it; 0: unused */
	int error;
	struct zi_text text;
};

struct named {
	struct named_missed missed[NAMED_MISSED_MAX];
	uint32_t next; /* index that the next failure takes */
};

/* The call of a member. @op->name is not empty. */
void named_group(struct zero_rank *rank, struct zero_op *op);
/* @op has waited long enough: it fails, with all calls of its name. */
void named_expired(struct zero_op *op);
/* A rank left or died, for the reason @text: calls that need it fail. */
void named_rank_gone(struct zero_rank *rank, const struct zi_text *text);
/* Another process may come for @rank: it has missed nothing. */
void named_forget_rank(struct zero_job *job, uint32_t rank);
