/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture of tests about commits that other nodes vote on: a job beside the plain computation, and
 * the double of those nodes. */
#pragma once

#include "daemon/tier/stripe.h"
#include "tests/unit/zero/ballot.h"
#include "tests/unit/zero/kept.h"
#include "tests/unit/zero/world.h"

static struct zi_job_config config;
static struct ballot *ballot;

static inline struct zero_job *job(void)
{
	return node_job(&node, "train");
}

/* A job with step 0, and votes from there on. @store_bytes: 0 as ever. */
static inline void votes_begin_in(uint32_t world, const struct zi_job_config *drawn,
                                  uint64_t store_bytes)
{
	config = *drawn;
	ballots_forget();
	node_init(&node);
	if (store_bytes)
		node.store_bytes = store_bytes;
	node_start(&node);
	plain_init(&plain, &config, world);
	model_begin(&node, actors, world, &(struct attach_options){ .config = config });
	ballot = ballot_give(job());
}

static inline void votes_begin(uint32_t world, const struct zi_job_config *drawn)
{
	votes_begin_in(world, drawn, 0);
}

static inline void votes_begin_nvme(uint32_t world)
{
	struct zi_job_config drawn = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	votes_begin(world, &drawn);
}

static inline void step(uint32_t world, uint64_t number)
{
	struct zi_step_options options = model_options();

	cr_assert_eq(model_step(actors, world, number, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, number, &options);
	cr_assert(plain_equals(&plain, &actors[world - 1]), "step %llu",
	          (unsigned long long)number);
}

/* Up to zero_step(), whose tickets are open. */
static inline void step_call(uint32_t world, uint64_t number, struct zi_step_options options)
{
	static char blob[32];

	model_gradients(actors, world, number, &options);
	(void)snprintf(blob, sizeof(blob), "blob %llu", (unsigned long long)number);
	for (uint32_t i = 0; i < world; i++)
		actor_start(&actors[i], 0, zero_step,
		            &(struct zero_op){ .blob = blob, .blob_bytes = strlen(blob) });
}

static inline void leave_all(uint32_t world)
{
	actors_leave(actors, world, false);
	node_settle(&node);
}

static inline void come_back(uint32_t world, int64_t committed)
{
	char wanted[32];
	uint64_t bytes = 0;

	model_attach(&node, actors, world, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, world), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, committed);
	(void)snprintf(wanted, sizeof(wanted), "blob %lld", (long long)committed);
	if (committed > 0)
		cr_assert_eq(memcmp(zero_blob(actors[0].rank, &bytes), wanted, strlen(wanted)), 0);
	cr_assert(plain_equals(&plain, &actors[0]), "parameters");
}

static inline uint64_t state_bytes(void)
{
	return job()->here_elements * 12;
}

static inline uint64_t held_bytes(void)
{
	return node.nvme.capacity_bytes - tier_extent_free_bytes(&node.nvme);
}

/* The other nodes are lost in the commit of step @number, which this one has: its group is gone. */
static inline void step_left_open(uint32_t world, uint64_t number)
{
	ballot->errors[BALLOT_COMMITTED] = -EPIPE;
	step_call(world, number, model_options());
	cr_assert_eq(actor_wait(&actors[0], 0), -EPIPE, "%s", actors[0].text.chars);
	leave_all(world);
	cr_assert(job()->former.is_kept);
	ballot->errors[BALLOT_COMMITTED] = 0;
}

/* The ranks leave, and the daemon is killed before the catalog has heard of it: rows of what was
 * released stay. */
static inline void leave_untidily(uint32_t world)
{
	job()->former.is_stuck = true;
	leave_all(world);
	cr_assert(job()->former.is_stored);
}

/* The daemon is killed, ranks having left, and started again; its jobs have no votes then. */
static inline void restart(void)
{
	node_stop(&node);
	ballots_forget();
	node_start(&node);
}
