/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this node has of a job's subgroups, and each rank's share of the model (common/wire/owner.h
 * deals it out). Floor 5, shard thread.
 *
 * A node holds what any of its ranks owns, once. Where all ranks are here it holds everything,
 * whatever the strategy.
 */
#pragma once

#include "common/wire/owner.h"

struct zero_job;

/* After sets_build(): subgroup->is_here, ->is_param_here, ->finisher, what is counted of them in
 * units and job, and each rank's share. */
void owners_build(struct zero_job *job);
/* What a node holds of its commit, whatever the rules of owners say now: (subgroup_count,) of each;
 * NULL: what it held of the former one. */
void owners_take(struct zero_job *job, const bool *here);
/* Of a rank below job->world. */
struct zi_plane_bytes owner_logical_bytes(const struct zero_job *job, uint32_t rank);
