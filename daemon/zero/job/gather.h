/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers: calls that every rank makes, which end together. Floor 5, shard thread.
 *
 * A rank that is late for a call that needs all has its error when it comes, and the next calls are
 * gathered anew. But collectives are opened, and groups made, by the n-th such call of every rank:
 * one that failed before all had come is *missed* by the others, whose next call ends with it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"

struct zero_job;
struct zero_op;

/* Calls that wait for every rank. */
enum zero_gather {
	ZERO_GATHER_MATERIALIZE,
	ZERO_GATHER_WRITE_END,
	ZERO_GATHER_COMMIT,
	ZERO_GATHER_STEP,
	ZERO_GATHER_BARRIER,
	ZERO_GATHER_COLL_OPEN,
	ZERO_GATHER_COLL_GROUP,
	ZERO_GATHER_DISCARD,
	ZERO_GATHER_STATE,
	_ZERO_GATHER_COUNT
};

/* All have come: what is to be done now. */
typedef void (*gather_go_fn)(struct zero_job *job);

/* Failed calls of one kind that some ranks have yet to come to. */
struct zero_missed {
	uint32_t counts[ZI_WORLD_MAX]; /* of each rank */
	int error;                     /* of the last one */
	struct zi_text text;
};

/* Waits with the others. Return: true when every rank of this node has come. False may also mean
 * that the op was completed: -EALREADY twice; or the error of one that its rank has missed. */
bool gather_join(struct zero_op *op, enum zero_gather gather);
/* Whether @op's rank refuses its own wish: then nobody's can be. Return: 0; the refusal, with @text
 * that names the rank. */
int gather_refused(const struct zero_op *op, struct zi_text *text);
/* Everyone who waits in it is told; it may begin anew. @text may be NULL on success. */
void gather_complete(struct zero_job *job, enum zero_gather gather, int result,
                     const struct zi_text *text);
/* Another process may come for @rank: it has missed nothing. */
void gather_forget_rank(struct zero_job *job, uint32_t rank);
/* The incarnation is over. */
void gather_forget(struct zero_job *job);
