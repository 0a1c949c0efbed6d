/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture of tests about parameters that nodes divide: whole models trained over several nodes,
 * every unit looked at wherever it is used, beside the plain computation. */
#pragma once

#include "daemon/zero/param/residency.h"
#include "tests/unit/zero/across_grads.h"
#include "tests/unit/zero/plain.h"

static struct plain plain;

struct shards_run {
	const char *places;
	struct zi_job_config config;
	struct zi_job_training training;
	const struct model_set *sets;
};

static inline struct zero_job *job_of(uint32_t place)
{
	return node_job(&net.nodes[place], "train");
}

static inline uint32_t places_count(const char *places)
{
	uint32_t count = 0;

	for (; *places; places++)
		count = ZI_MAX(count, (uint32_t)(*places - '0') + 1);
	return count;
}

static inline void shards_attach(const struct shards_run *run, const char *incarnation)
{
	const struct attach_options options = { .incarnation = incarnation,
		                                .config = run->config,
		                                .training = run->training };

	nodes_attach(&ranks, run->places, &options);
	nodes_layout(&ranks);
	cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
}

static inline int shards_write_unit(uint32_t unit, uint32_t root, uint64_t what)
{
	struct actor *actor = &ranks.actors[root];

	cr_assert_eq(call_unit(actor, zero_param_write_begin, unit), 0, "%s", actor->text.chars);
	fill(zero_param_staging(actor->rank)->region.base, what + unit, model_elements[unit],
	     actor->rank->job->config.param_dtype);
	return nodes_all(&ranks, zero_param_write_end,
	                 &(struct zero_op){ .unit = unit, .root = root });
}

/* First values, each unit's by a rank that is drawn, committed as step 0. */
static inline void shards_write(void)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint32_t root = net_draw(ranks.world);

		while (!(model_members(unit, ranks.world) >> root & 1))
			root = (root + 1) % ranks.world;
		cr_assert_eq(shards_write_unit(unit, root, 900), 0, "%s",
		             ranks.actors[0].text.chars);
	}
	cr_assert_eq(nodes_all(&ranks, zero_commit, NULL), 0, "%s", ranks.actors[0].text.chars);
}

static inline void shards_begin(const struct shards_run *run, uint64_t seed)
{
	model_sets = run->sets;
	nodes_init(places_count(run->places), seed);
	nodes_start();
	shards_attach(run, "run.0");
	plain_init(&plain, &run->config, ranks.world);
}

static inline void shards_end(bool is_clean)
{
	plain_deinit(&plain);
	end_run(is_clean);
}

/* What a rank sees of a unit that it has unsharded. */
static inline const void *shards_seen(const struct actor *actor, uint32_t unit)
{
	const char *base = actor->memory.param->region.base;

	return actor->rank->job->residency ? base + actor->calls[0].op.offset_bytes
	                                   : base + actor->rank->job->units[unit].param_offset;
}

static inline bool shards_equal(struct actor *actor, uint32_t unit)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)plain.config.param_dtype);

	return memcmp(plain.param[unit], shards_seen(actor, unit), model_elements[unit] * width) ==
	       0;
}

/* The rank uses a unit, and hands its gradient over where it has one. */
static inline void shards_use(uint32_t rank, uint32_t unit, uint64_t step, bool is_backward)
{
	struct actor *actor = &ranks.actors[rank];

	cr_assert_eq(call_unit(actor, zero_unshard, unit), 0, "%s", actor->text.chars);
	cr_assert(shards_equal(actor, unit), "step %llu: unit %u on rank %u",
	          (unsigned long long)step, unit, rank);
	if (is_backward && model_members(unit, ranks.world) >> rank & 1)
		hand_over(actor, step, 0, unit);
	cr_assert_eq(call_unit(actor, zero_reshard, unit), 0, "%s", actor->text.chars);
}

/* A forward and a backward, ranks in drawn orders; the step; and the plain one beside it. */
static inline int shards_step(uint64_t step, const struct zi_step_options *options)
{
	begin_step(options);
	for (uint32_t k = 0; k < 2 * UNITS; k++) {
		uint32_t unit = k < UNITS ? k : 2 * UNITS - 1 - k, first = net_draw(ranks.world);

		for (uint32_t i = 0; i < ranks.world; i++)
			shards_use((first + i) % ranks.world, unit, step, k >= UNITS);
	}
	plain_step(&plain, step, options);
	return nodes_all(&ranks, zero_step, NULL);
}

/* Steps @first to @last; then all of it is looked at once more. */
static inline void shards_train(uint64_t first, uint64_t last,
                                const struct zi_step_options *options)
{
	for (uint64_t step = first; step <= last; step++)
		cr_assert_eq(shards_step(step, options), 0, "step %llu: %s",
		             (unsigned long long)step, ranks.actors[0].text.chars);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t i = 0; i < ranks.world; i++)
			shards_use(i, unit, last, false);
}
