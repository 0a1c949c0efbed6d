/* SPDX-License-Identifier: Apache-2.0 */
/* In which order a pipeline takes subgroups. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/step/pipeline.h"

struct zero_job;
struct zero_subgroup;

/* The order in which subgroups are handled: queue.c. */
struct zero_queue {
	uint32_t *places; /* (count,) of (subgroup_count,) subgroups: begun, ready, ahead */
	uint32_t count, begun_count, ready_count;
	uint32_t *spare; /* (subgroup_count,) for queue_prefer() */
	uint32_t *units; /* (unit_count,) foretold order; the first ones as they became ready */
	uint32_t arrival_count;
};

int queue_build(struct zero_job *job);
/* Gives its arrays back. */
void queue_unbuild(struct zero_job *job);
void queue_fill(struct zero_job *job, enum zero_pipeline_kind kind, bool is_early);
struct zero_subgroup *queue_peek(struct zero_job *job, bool *ret_is_ready);
void queue_take(struct zero_job *job);
void queue_return(struct zero_job *job, const struct zero_subgroup *subgroup);
void queue_ready(struct zero_job *job, uint32_t unit);
void queue_ready_all(struct zero_job *job);
/* Ready subgroups that are wanted come before the other ready ones, but behind those at the front
 * that are warm: their slots of staging are used up first. */
void queue_prefer(struct zero_job *job,
                  bool (*is_wanted)(const void *arg, const struct zero_subgroup *subgroup),
                  const void *arg);
void queue_add(struct zero_job *job, const struct zero_subgroup *subgroup);
