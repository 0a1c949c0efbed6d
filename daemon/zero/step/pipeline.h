/* SPDX-License-Identifier: Apache-2.0 */
/* All subgroups through a bounded number of items. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/zero.h"

struct zero_job;
struct zero_subgroup;

enum zero_pipeline_kind {
	ZERO_PIPELINE_NONE,
	ZERO_PIPELINE_LOAD,   /* materialise: read param and resident state, verify */
	ZERO_PIPELINE_UPDATE, /* the step: read state, compute, write both */
	ZERO_PIPELINE_WRITE,  /* commit of written parameters: hash, write param */
	ZERO_PIPELINE_KEEP,   /* snapshot of state in memory alone: hash, write both */
	ZERO_PIPELINE_STORE,  /* param_write_end with a pool: copy, hash, write one unit's param */
};

struct zero_pipeline {
	enum zero_pipeline_kind kind;
	bool is_armed;          /* UPDATE: nothing more is needed of the ranks; it may end */
	bool is_aborted;        /* nothing new begins; ends when drained */
	uint32_t active_count;  /* items not FREE */
	uint32_t awaited_count; /* copies that are to come from other nodes: pipeline_copy() */
	uint32_t reading_count, computing_count, writing_count;
	uint64_t read_bytes, write_bytes;
	uint64_t io_read_ns, io_write_ns, cpu_ns, ticked_ns;
	int error; /* the first */
	struct zi_text text;
};

/* Begins what can begin, ends what has ended. The job may be gone afterwards. */
void pipeline_pump(struct zero_job *job);
void pipeline_tick(struct zero_job *job); /* before a stage changes: where the time went */
void pipeline_start(struct zero_job *job, enum zero_pipeline_kind kind);
/* An early update: nobody uses @unit any more. */
void pipeline_ready(struct zero_job *job, uint32_t unit);
void pipeline_arm(struct zero_job *job);
/* Another node has updated @subgroup, whose parameters this one keeps too: they are pulled, hashed
 * and written. */
void pipeline_copy(struct zero_job *job, struct zero_subgroup *subgroup);
/* Those that are awaited will not come. */
void pipeline_fail(struct zero_job *job, int error, const struct zi_text *text);
/* Nothing new begins; what is in flight is drained. True when nothing is. */
bool pipeline_abort(struct zero_job *job);
