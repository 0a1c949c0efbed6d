/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks of a job that train together, from the first attach to the end of the last. Floor 5,
 * shard thread.
 */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/job/gather.h"
#include "daemon/zero/zero.h"

struct zero_job;
struct zero_rank;

/*
 *   NONE ──attach──▶ FORMING ──all materialised──▶ LIVE
 *    ▲                  │                            │ a rank died, or left, or an error
 *    │ all left         ▼                            ▼
 *    └───────────────── BROKEN ◀─────────────────────┘
 * (also FORMING → NONE and LIVE → NONE when the last rank leaves). A newer incarnation breaks this
 * one and takes its place at once, whatever a step that is UPDATING still does.
 */
enum zero_group_phase { ZERO_GROUP_NONE, ZERO_GROUP_FORMING, ZERO_GROUP_LIVE, ZERO_GROUP_BROKEN };

struct zero_group {
	enum zero_group_phase phase;
	char name[ZI_NAME_BYTES]; /* "" nameless */
	uint64_t number;
	uint32_t world_size;
	uint32_t local_size; /* ranks of this node, fewer where the job spans nodes */
	struct zi_job_config config;
	struct zi_job_training training;
	struct zero_rank *ranks[ZI_WORLD_MAX];
	uint32_t rank_count;
	uint32_t generation;     /* counts what began FORMING */
	uint64_t line;           /* random: names it in what it commits */
	uint64_t discarded_mask; /* ranks whose step was discarded after they had stopped waiting */
	uint64_t gather_masks[_ZERO_GATHER_COUNT]; /* who has come; full: the work is under way */
	struct zero_missed missed[_ZERO_GATHER_COUNT];
	/* Where the job spans nodes (across/agree/agree.h): gathers (bits) to which all nodes have
	 * come, and what comes then. */
	uint32_t agreed;
	uint32_t held; /* to which all here have come, and that wait: agree_is_held() */
	gather_go_fn go_on[_ZERO_GATHER_COUNT];
	/* why it is BROKEN; or (error not 0 before) why it breaks at the end of the step that is
	 * being written, or when a rank that left cleanly is needed next (is_left) */
	int error;
	uint32_t culprit;
	struct zi_text text;
	bool is_left;
};

/* Every rank's pending ops end with @error, and its session hears of it. */
void group_break(struct zero_job *job, int error, uint32_t culprit, const struct zi_text *text);
/* As group_break(), but a step that is being written ends first. */
void group_break_after_step(struct zero_job *job, int error, uint32_t culprit,
                            const struct zi_text *text);
/* Why a rank that leaves cleanly, and is needed, does so: where the collectives broke before, by a
 * death on another node perhaps, that is the reason. @culprit, @text: in and out. */
void group_cause(const struct zero_job *job, uint32_t *culprit, struct zi_text *text);
/* A rank that left cleanly is needed: breaks the group. True when it did. */
bool group_needs_all(struct zero_job *job);
struct zero_attach;
/* Of one that would join: strategy dp is of one process. -EINVAL with both. */
int group_process_check(const struct zero_group *group, const struct zero_attach *attach,
                        struct zi_text *text);
/* Replaces whatever group is there. */
void group_replace(struct zero_job *job, const char *name);
