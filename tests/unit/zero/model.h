/* SPDX-License-Identifier: Apache-2.0 */
/* The model that the tests train: three units, and values drawn from their place alone. */
#pragma once

#include "daemon/zero/grad/grads.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/step/step.h"
#include "tests/harness/values.h"
#include "tests/unit/zero/actor.h"

#define UNITS 3u
/* Shorter than a block; of several subgroups; of two tiles, the second one short. */
static uint64_t model_elements[UNITS] = { 1000, 530000, 20000 };

/* One gradient value that is not what its place says; count 0: none. */
struct poison {
	uint64_t what, index;
	float value;
	uint32_t count;
};
static struct poison poison;

/* Who trains which unit; units of one name are of one set. NULL: all of all ranks. */
struct model_set {
	const char *name;
	uint64_t members;
};
static const struct model_set *model_sets; /* (UNITS,) */

static inline uint64_t model_members(uint32_t unit, uint32_t world)
{
	return model_sets ? model_sets[unit].members : job_mask_of(world);
}

static inline int layout_set(struct actor *actor, const struct model_set *set)
{
	struct zi_layout_entry entry = { .kind = ZI_LAYOUT_SET,
		                         .dim_count = 1,
		                         .shape = { set->members } };

	cr_assert_eq(zi_copy_name(entry.name, sizeof(entry.name), set->name), 0);
	return zero_layout_add(actor->rank, &entry, &actor->text);
}

/* The set of a unit that is about to come. */
static inline void layout_set_of(struct actor *actor, uint32_t unit)
{
	if (model_sets)
		cr_assert_eq(layout_set(actor, &model_sets[unit]), 0, "%s", actor->text.chars);
}

static inline void layout_unit(struct actor *actor, const char *name)
{
	struct zi_layout_entry entry = { .kind = ZI_LAYOUT_UNIT };

	cr_assert_eq(zi_copy_name(entry.name, sizeof(entry.name), name), 0);
	cr_assert_eq(zero_layout_add(actor->rank, &entry, &actor->text), 0, "%s",
	             actor->text.chars);
}

static inline void layout_param(struct actor *actor, const char *name, uint64_t rows,
                                uint64_t columns)
{
	struct zi_layout_entry entry = { .kind = ZI_LAYOUT_PARAM,
		                         .dim_count = columns ? 2 : 1,
		                         .shape = { rows, columns } };

	cr_assert_eq(zi_copy_name(entry.name, sizeof(entry.name), name), 0);
	cr_assert_eq(zero_layout_add(actor->rank, &entry, &actor->text), 0, "%s",
	             actor->text.chars);
}

/* Its units are one parameter each, as long as model_elements says, which a test may change. */
static bool model_is_flat;

static inline void model_layout_flat(struct actor *actor)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		char name[8];

		(void)snprintf(name, sizeof(name), "u%u", unit);
		layout_set_of(actor, unit);
		layout_unit(actor, name);
		layout_param(actor, name, model_elements[unit], 0);
	}
}

static inline void model_layout(struct actor *actor)
{
	if (model_is_flat) {
		model_layout_flat(actor);
		return;
	}
	layout_set_of(actor, 0);
	layout_unit(actor, "embed");
	layout_param(actor, "embed.w", 10, 80);
	layout_param(actor, "embed.b", 200, 0);
	layout_set_of(actor, 1);
	layout_unit(actor, "h.0");
	layout_param(actor, "h.0.w", 530, 1000);
	layout_set_of(actor, 2);
	layout_unit(actor, "head");
	layout_param(actor, "head.w", 100, 200);
}

static inline int model_materialize(struct actor *actors, uint32_t count)
{
	int r;

	for (uint32_t i = 0; i < count; i++)
		model_layout(&actors[i]);
	r = all_call(actors, count, zero_materialize, NULL);
	for (uint32_t i = 0; i < count && !r; i++)
		zero_materialized(actors[i].rank, &actors[i].memory);
	return r;
}

static inline void model_attach(struct node *node, struct actor *actors, uint32_t count,
                                const struct attach_options *options)
{
	for (uint32_t i = 0; i < count; i++) {
		struct attach_options mine = *options;
		int r;

		mine.rank = i;
		mine.world = count;
		r = actor_attach(node, &actors[i], &mine);
		cr_assert_eq(r, 0, "%s", actors[i].text.chars);
	}
}

static inline void put(void *target, uint64_t index, float value, uint32_t dtype)
{
	kern_narrow((char *)target + index * zi_dtype_bytes((enum zi_dtype)dtype), &value, 1,
	            (enum zi_dtype)dtype);
}

/* What put() would give, at once. */
static inline void fill(void *target, uint64_t what, uint64_t count, uint32_t dtype)
{
	float *values = malloc(count * sizeof(*values));

	test_values(values, what, count);
	kern_narrow(target, values, count, (enum zi_dtype)dtype);
	free(values);
}

static inline uint64_t grad_what(uint64_t step, uint32_t micro, uint32_t rank, uint32_t unit)
{
	return ((step * 16 + micro) * 64 + rank) * 16 + unit + 1;
}

static inline void fill_grad(void *target, uint64_t what, uint64_t count, uint32_t dtype)
{
	fill(target, what, count, dtype);
	if (poison.count && poison.what == what)
		put(target, poison.index, poison.value, dtype);
}

/* The rank's gradients of a unit, or the parameters. */
static inline void *unit_of(const struct actor *actor, const struct tier_segment *segment,
                            uint32_t unit)
{
	const struct zero_job *job = actor->rank->job;

	if (segment == actor->memory.grad)
		return grad_at(job, actor->number, unit, 0);
	return (char *)segment->region.base + job->units[unit].param_offset;
}

static inline void model_write_unit(struct actor *actors, uint32_t count, uint32_t unit,
                                    uint64_t what)
{
	uint32_t dtype = actors[0].rank->job->config.param_dtype;
	uint32_t root = (uint32_t)__builtin_ctzll(model_members(unit, count));
	int r;

	r = actor_unit(&actors[root], zero_param_write_begin, unit);
	cr_assert_eq(r, 0, "%s", actors[root].text.chars);
	fill(zero_param_staging(actors[root].rank)->region.base, what + unit, model_elements[unit],
	     dtype);
	r = all_call(actors, count, zero_param_write_end,
	             &(struct zero_op){ .unit = unit, .root = root });
	cr_assert_eq(r, 0, "%s", actors[0].text.chars);
}

/* First values, committed as step 0. */
static inline void model_write(struct actor *actors, uint32_t count)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		model_write_unit(actors, count, unit, 900);
	cr_assert_eq(all_call(actors, count, zero_commit,
	                      &(struct zero_op){ .blob = "zero", .blob_bytes = 4 }),
	             0, "%s", actors[0].text.chars);
}

/* A job with the model's first values, committed as step 0. */
static inline void model_begin(struct node *node, struct actor *actors, uint32_t count,
                               const struct attach_options *options)
{
	model_attach(node, actors, count, options);
	cr_assert_eq(model_materialize(actors, count), 0, "%s", actors[0].text.chars);
	model_write(actors, count);
}

static inline struct zi_step_options model_options(void)
{
	return (struct zi_step_options){ .lr = 1e-2,
		                         .beta1 = 0.9,
		                         .beta2 = 0.99,
		                         .eps = 1e-8,
		                         .weight_decay = 0.1,
		                         .unscale = 0.5,
		                         .micro_batches = 1 };
}

static inline void model_fill_grad(struct actor *actor, uint64_t step, uint32_t micro,
                                   uint32_t unit)
{
	uint32_t dtype = actor->rank->job->config.grad_dtype;
	void *grad = unit_of(actor, actor->memory.grad, unit);
	uint64_t what = grad_what(step, micro, actor->number, unit);

	fill_grad(grad, what, model_elements[unit], dtype);
	/* Garbage in the padding must not matter. */
	for (uint64_t i = model_elements[unit]; i < zi_geometry_padded(model_elements[unit]); i++)
		put(grad, i, NAN, dtype);
}

/* Up to, and without, zero_step(). */
static inline void model_gradients(struct actor *actors, uint32_t count, uint64_t step,
                                   const struct zi_step_options *options)
{
	int r = all_call(actors, count, zero_step_begin, &(struct zero_op){ .options = *options });

	cr_assert_eq(r, 0, "%s", actors[0].text.chars);
	for (uint32_t micro = 0; micro < options->micro_batches; micro++)
		for (uint32_t unit = UNITS; unit-- > 0;)
			for (uint32_t i = 0; i < count; i++) {
				if (!(model_members(unit, count) >> i & 1))
					continue;
				r = actor_unit(&actors[i], zero_grad_acquire, unit);
				cr_assert_eq(r, 0, "%s", actors[i].text.chars);
				model_fill_grad(&actors[i], step, micro, unit);
				r = actor_unit(&actors[i], zero_reduce, unit);
				cr_assert_eq(r, 0, "%s", actors[i].text.chars);
			}
}

/* @step: the one that is made. The result of rank 0's step(). */
static inline int model_step(struct actor *actors, uint32_t count, uint64_t step,
                             const struct zi_step_options *options)
{
	char blob[32];

	model_gradients(actors, count, step, options);
	(void)snprintf(blob, sizeof(blob), "blob %llu", (unsigned long long)step);
	return all_call(actors, count, zero_step,
	                &(struct zero_op){ .blob = blob, .blob_bytes = strlen(blob) });
}

/* Steps @first to @last, each committed, with the model's own options. */
static inline void model_train(struct actor *actors, uint32_t count, uint64_t first, uint64_t last)
{
	struct zi_step_options options = model_options();

	for (uint64_t step = first; step <= last; step++)
		cr_assert_eq(model_step(actors, count, step, &options), 0, "step %llu: %s",
		             (unsigned long long)step, actors[0].text.chars);
}

static inline struct zi_job_config model_config(uint32_t param_dtype, uint32_t offload)
{
	return (struct zi_job_config){
		.param_dtype = param_dtype,
		.grad_dtype = param_dtype,
		.optimizer = ZI_OPTIMIZER_ADAMW,
		.schedule = ZI_SCHEDULE_LOCAL,
		.offload_optimizer = offload,
	};
}
