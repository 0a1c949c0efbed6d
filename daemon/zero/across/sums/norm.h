/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The norm of gradients that are summed on several nodes: each has the sums of squares of what it
 * has finished, all pull those of the others (8 bytes for 4096 elements), and join the whole tree
 * each: the same bits everywhere, and the same word about whose gradient is not finite. So nothing
 * is voted on. Floor 5, shard thread.
 *
 * It is begun when all nodes have called step(), once all sums of this one are there, and what is
 * pulled is a copy: a node that goes on to the next step may overwrite its own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/wire/geometry.h"
#include "daemon/zero/across/bytes/fetch.h"

struct across_serve;
struct grads;
struct talk_entry;
struct zero_job;

/* Pieces that are pulled at a time. */
#define NORM_DEPTH 4u

struct norm_take {
	struct fetch fetch;
	struct pull pull;
	struct grads *grads;
	uint64_t *target;
};

struct norm {
	uint64_t *words;                   /* what each node has said, one behind the other, */
	uint64_t firsts[ZI_WORLD_MAX + 1]; /* from here on (norm.c); the own one's is served */
	uint32_t number;                   /* the step, counted, whose own words are there */
	bool is_coming, is_there;          /* of the step under way */
	uint32_t node;                     /* whose is pulled next, */
	uint32_t piece;                    /* and which piece */
	uint32_t active_count;
	struct norm_take takes[NORM_DEPTH];
};

/* The job's owners are built. -ENOMEM. */
int norm_prepare(struct grads *grads);
/* Nothing of it is in flight. */
void norm_free(struct norm *norm);
/* All nodes' are there, in job->norm_blocks; of a job in one node at once. Else step_advance()
 * comes when they are. Once true, the next call is of another step. */
bool norm_have(struct zero_job *job);
/* The first rank whose gradient is not finite, as all nodes see it; as culprit_find(). */
bool norm_culprit(const struct zero_job *job, uint32_t *ret_rank, uint32_t *ret_unit);
/* Whose words have not come. Return: false, none are awaited; @ret_text is untouched. */
bool norm_say_late(const struct zero_job *job, struct zi_text *ret_text);

/* What serve.c asks. */
bool norm_asked(const struct grads *grads, const struct talk_entry *entry);
bool norm_is_made(const struct grads *grads, uint32_t number);
void norm_fill(struct across_serve *serve);
