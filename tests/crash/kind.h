/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of jobs of check_crash: what the protocol's ways depend on, drawn from a seed. One of every
 * KIND_CYCLE in a row has each of the ways that are seldom drawn together: several paths and early
 * updates; a pool and commit_interval; snapshots and durability power; a resident share over
 * io_uring; state in memory.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "zinf/zinf.h"

#define KIND_CYCLE     5u
#define KIND_WORLD_MAX 4u
#define KIND_STEPS     5u

/* splitmix64 (Steele, Lea, Flood 2014): one addition of state, any seed is good. */
struct draw {
	uint64_t state;
};
uint64_t draw(struct draw *draw, uint64_t below);

struct kind {
	char words[320]; /* for people */
	uint32_t world;
	enum zinf_dtype dtype;
	enum zinf_offload offload, offload_param;
	enum zinf_durability durability;
	enum zinf_grad_reduction grad_reduction;
	bool is_ring; /* the engine is io_uring where the kernel has it, else threads */
	uint32_t path_count;
	uint64_t resident_bytes, param_budget_bytes;
	uint32_t commit_interval;
	double max_norm;
	bool want_norm, update_early;
	uint32_t accumulate, infinite_step;
	bool is_eager;
	bool is_deferred;       /* options of a step come when it ends */
	uint32_t discard_count; /* steps that are discarded before each one */
	bool has_snapshots;     /* taken and removed while the job runs */
};

/* The @index-th kind of @seed. */
struct kind kind_draw(uint64_t seed, uint32_t index);
