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

/* After sets_build(): subgroup->is_here, ->is_param_here, ->is_kept, ->finisher, what is counted of
 * them in units and job, and each rank's share. */
void owners_build(struct zero_job *job);
/* What a node has of a subgroup of its commit. */
enum {
	OWNER_HOLDS = 1, /* is_here */
	OWNER_KEEPS = 2, /* is_kept, as whoever holds it does */
};
/* What a node has of its commit, whatever the rules of owners say now: (subgroup_count,) of such
 * bits. */
void owners_take(struct zero_job *job, const uint8_t *had);
/* The former commit is in force again, whose extents are those of places. @is_elsewhere: it was
 * divided otherwise. */
void owners_go_back(struct zero_job *job, bool is_elsewhere);
/* Of a rank below job->world. */
struct zi_plane_bytes owner_logical_bytes(const struct zero_job *job, uint32_t rank);
