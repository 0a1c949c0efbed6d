/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stored job was before its ranks started it anew: a start that fails leaves it so. Floor 5,
 * shard thread.
 */
#pragma once

#include "common/wire/control.h"
#include "common/wire/training.h"
#include "daemon/zero/job/layout.h"

struct zero_job;
struct zero_set;

struct zero_start {
	bool is_kept;
	struct zi_job_config config;
	struct zi_job_training training;
	bool is_training_known;
	uint32_t world;
	uint64_t here_mask;
	struct zero_layout named; /* sets, and which of them units are of; nothing else */
	struct zero_set *sets;    /* (set_count,) */
	uint8_t *had;             /* (subgroup_count,) of what it committed: owners_take() */
	uint32_t set_count;
};

/* Before anything changes; of a job that is not stored nothing is kept. Return: 0; -ENOMEM. */
int start_keep(struct zero_job *job);
/* The start has failed, and nothing of it is in flight or in memory. */
void start_undo(struct zero_job *job);
/* The start is the job. Twice is fine. */
void start_forget(struct zero_job *job);
