/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixture of tests about gradients in buckets: three units of ten slots each, and as much of a
 * budget as the test grants, beside the plain computation.
 */
#pragma once

#include "tests/unit/zero/plain.h"

#define BUCKET_BYTES 40960ull /* of a unit: 20480 elements of bf16 */

static struct node node;
static struct actor actors[4];
static struct plain plain;
static struct zi_job_config config;
static struct zi_job_training training;

static inline void buckets_layout(uint32_t world)
{
	for (uint32_t i = 0; i < world; i++)
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			char name[8];

			(void)snprintf(name, sizeof(name), "u%u", unit);
			layout_unit(&actors[i], name);
			layout_param(&actors[i], name, model_elements[unit], 0);
		}
}

static inline int buckets_materialize(uint32_t world)
{
	int r;

	buckets_layout(world);
	r = all_call(actors, world, zero_materialize, NULL);
	for (uint32_t i = 0; i < world && !r; i++)
		zero_materialized(actors[i].rank, &actors[i].memory);
	return r;
}

static inline void buckets_attach(uint32_t world, const char *incarnation)
{
	model_attach(&node, actors, world,
	             &(struct attach_options){
			     .incarnation = incarnation, .config = config, .training = training });
	cr_assert_eq(buckets_materialize(world), 0, "%s", actors[0].text.chars);
	for (uint32_t i = 0; i < world; i++)
		cr_assert(actors[i].memory.has_pooled_grads);
}

static inline void buckets_config(uint32_t offload, uint64_t budget_bytes)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		model_elements[unit] = 20000;
	config = model_config(ZI_DTYPE_BF16, offload);
	training = (struct zi_job_training){ .strategy = ZI_STRATEGY_ZERO2,
		                             .grad_budget_bytes = budget_bytes };
}

/* @offload: of the optimizer. One bucket for each rank with a budget of BUCKET_BYTES. */
static inline void buckets_begin_with(uint32_t world)
{
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, world);
	buckets_attach(world, "run.0");
	model_write(actors, world);
}

static inline void buckets_begin(uint32_t world, uint32_t offload, uint64_t budget_bytes)
{
	buckets_config(offload, budget_bytes);
	buckets_begin_with(world);
}

static inline void buckets_end(void)
{
	actors_leave(actors, ZI_COUNT_OF(actors), true);
	plain_deinit(&plain);
	node_deinit(&node);
}

static inline void begin_step(uint32_t world, uint32_t flags)
{
	struct zi_step_options options = model_options();

	options.flags = flags;
	cr_assert_eq(
		all_call(actors, world, zero_step_begin, &(struct zero_op){ .options = options }),
		0, "%s", actors[0].text.chars);
}

static inline void acquire(uint32_t rank, uint32_t unit)
{
	cr_assert_eq(actor_unit(&actors[rank], zero_grad_acquire, unit), 0, "%s",
	             actors[rank].text.chars);
}

static inline void reduce(uint32_t rank, uint32_t unit)
{
	cr_assert_eq(actor_unit(&actors[rank], zero_reduce, unit), 0, "%s",
	             actors[rank].text.chars);
}

/* Step 1's gradient. */
static inline void hand_over(uint32_t rank, uint32_t unit)
{
	acquire(rank, unit);
	model_fill_grad(&actors[rank], 1, 0, unit);
	reduce(rank, unit);
}

/* An acquire that waits, in call 1. */
static inline void acquire_waits(uint32_t rank, uint32_t unit)
{
	actor_start(&actors[rank], 1, zero_grad_acquire, &(struct zero_op){ .unit = unit });
	cr_assert_not(actors[rank].calls[1].is_done, "%s", actors[rank].calls[1].op.text.chars);
}

static inline void expect_refused(uint32_t rank, int error, const char *words, int got)
{
	cr_assert_eq(got, error, "%d: %s", got, actors[rank].text.chars);
	cr_assert_not_null(strstr(actors[rank].text.chars, words), "'%s'", actors[rank].text.chars);
}
