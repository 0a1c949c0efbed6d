/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture of tests about optimizer state: jobs on every tier, after one step, beside the plain
 * computation. */
#pragma once

#include "daemon/tier/stripe.h"
#include "daemon/zero/state/state.h"
#include "tests/unit/zero/world.h"

struct place {
	uint32_t param_dtype, optimizer, offload_optimizer, offload_param;
	uint64_t resident_bytes;
};

static const struct place places[] = {
	{ ZI_DTYPE_F32, ZI_OPTIMIZER_ADAMW, ZI_OFFLOAD_CPU, ZI_OFFLOAD_CPU, 0 },
	{ ZI_DTYPE_BF16, ZI_OPTIMIZER_ADAMW, ZI_OFFLOAD_CPU, ZI_OFFLOAD_CPU, 0 },
	{ ZI_DTYPE_BF16, ZI_OPTIMIZER_ADAMW, ZI_OFFLOAD_NVME, ZI_OFFLOAD_CPU, 0 },
	{ ZI_DTYPE_BF16, ZI_OPTIMIZER_ADAMW, ZI_OFFLOAD_NVME, ZI_OFFLOAD_CPU, 64 * MIB },
	{ ZI_DTYPE_BF16, ZI_OPTIMIZER_ADAMW, ZI_OFFLOAD_NVME, ZI_OFFLOAD_NVME, 0 },
	{ ZI_DTYPE_F32, ZI_OPTIMIZER_ADAM, ZI_OFFLOAD_NVME, ZI_OFFLOAD_NVME, 64 * MIB },
	{ ZI_DTYPE_BF16, ZI_OPTIMIZER_SGD, ZI_OFFLOAD_NVME, ZI_OFFLOAD_CPU, 0 },
	{ ZI_DTYPE_BF16, ZI_OPTIMIZER_LION, ZI_OFFLOAD_NVME, ZI_OFFLOAD_NVME, 64 * MIB },
};

static inline struct zi_job_config config_of(const struct place *place)
{
	struct zi_job_config config = model_config(place->param_dtype, place->offload_optimizer);

	config.optimizer = place->optimizer;
	config.offload_param = place->offload_param;
	config.resident_bytes = place->resident_bytes;
	if (place->offload_param == ZI_OFFLOAD_NVME)
		config.param_budget_bytes = 1200 * 4096;
	config.staging_bytes = 10 * MIB;
	return config;
}

/* Two ranks, each with a window, after one step. */
static inline void start(const struct place *place)
{
	struct zi_job_config config = config_of(place);
	struct zi_step_options options = model_options();

	begin_with(2, &config);
	cr_assert_eq(all_call(actors, 2, zero_state_open, NULL), 0, "%s", actors[0].text.chars);
	cr_assert_eq(model_step(actors, 2, 1, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
}

static inline void *window(struct actor *actor)
{
	return zero_state_window(actor->rank)->region.base;
}

static inline int range_of(struct actor *actor, uint32_t unit, uint32_t kind, uint64_t first,
                           uint64_t count)
{
	return actor_call(
		actor, zero_state_read,
		&(struct zero_op){ .unit = unit,
	                           .state = { .kind = kind, .first = first, .count = count } });
}

static inline int write_range(uint32_t unit, uint32_t kind, uint64_t first, uint64_t count,
                              uint32_t root)
{
	return all_call(
		actors, 2, zero_state_write,
		&(struct zero_op){ .unit = unit,
	                           .root = root,
	                           .state = { .kind = kind, .first = first, .count = count } });
}

/* What the plain computation has, as 32 bits. */
static inline void plain_state(uint32_t unit, uint32_t kind, uint32_t *values)
{
	for (uint64_t i = 0; i < model_elements[unit]; i++) {
		if (kind == ZI_STATE_FIRST)
			memcpy(&values[i], &plain.exp_avg[unit][i], 4);
		else if (kind == ZI_STATE_SECOND)
			memcpy(&values[i], &plain.exp_avg_sq[unit][i], 4);
		else
			values[i] = (uint32_t)(int32_t)((const int16_t *)plain.remainder[unit])[i];
	}
}

static inline bool has_kind(uint32_t kind)
{
	if (kind == ZI_STATE_REMAINDER)
		return plain.config.param_dtype != ZI_DTYPE_F32;
	return kind == ZI_STATE_FIRST ||
	       zi_optimizer_moments((enum zi_optimizer)plain.config.optimizer) == 2;
}

static inline void expect_plain(struct actor *actor)
{
	uint32_t *values = malloc(model_elements[1] * 4);

	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t kind = ZI_STATE_REMAINDER; kind < _ZI_STATE_COUNT; kind++) {
			if (!has_kind(kind))
				continue;
			cr_assert_eq(range_of(actor, unit, kind, 0, model_elements[unit]), 0, "%s",
			             actor->text.chars);
			plain_state(unit, kind, values);
			cr_assert_eq(memcmp(window(actor), values, model_elements[unit] * 4), 0,
			             "unit %u, kind %u", unit, kind);
		}
	free(values);
}

static inline void go_on(uint64_t first, uint64_t last)
{
	struct zi_step_options options = model_options();

	for (uint64_t step = first; step <= last; step++) {
		cr_assert_eq(model_step(actors, 2, step, &options), 0, "%s", actors[0].text.chars);
		plain_step(&plain, step, &options);
		cr_assert(plain_equals(&plain, &actors[0]), "step %d, optimizer %u, dtype %u",
		          (int)step, plain.config.optimizer, plain.config.param_dtype);
	}
}

static inline void commit(void)
{
	cr_assert_eq(all_call(actors, 2, zero_commit, NULL), 0, "%s", actors[0].text.chars);
}

static inline void finish(void)
{
	expect_plain(&actors[1]);
	end(2);
}

static inline void write_all(uint64_t what)
{
	float *values = malloc(model_elements[1] * sizeof(*values));

	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t kind = ZI_STATE_FIRST; kind < _ZI_STATE_COUNT; kind++) {
			float *moment = kind == ZI_STATE_FIRST ? plain.exp_avg[unit]
			                                       : plain.exp_avg_sq[unit];

			if (!has_kind(kind))
				continue;
			test_values(values, what + unit * 8 + kind, model_elements[unit]);
			for (uint64_t i = 0; i < model_elements[unit]; i++)
				moment[i] = fabsf(values[i]);
			memcpy(window(&actors[1]), moment, model_elements[unit] * 4);
			memset(window(&actors[0]), 0xff, 64);
			cr_assert_eq(write_range(unit, kind, 0, model_elements[unit], 1), 0, "%s",
			             actors[0].text.chars);
		}
	free(values);
}

static inline void attach_again(const struct place *place, const char *incarnation)
{
	struct zi_job_config config = config_of(place);

	actors_leave(actors, 2, true);
	node_settle(&node);
	model_attach(&node, actors, 2,
	             &(struct attach_options){ .config = config, .incarnation = incarnation });
	cr_assert_eq(model_materialize(actors, 2), 0, "%s", actors[0].text.chars);
	cr_assert_eq(all_call(actors, 2, zero_state_open, NULL), 0, "%s", actors[0].text.chars);
}

static inline void restart_node(const struct place *place, const char *incarnation)
{
	struct zi_job_config config = config_of(place);

	actors_leave(actors, 2, true);
	node_stop(&node);
	node_start(&node);
	model_attach(&node, actors, 2,
	             &(struct attach_options){ .config = config, .incarnation = incarnation });
	cr_assert_eq(model_materialize(actors, 2), 0, "%s", actors[0].text.chars);
	cr_assert_eq(all_call(actors, 2, zero_state_open, NULL), 0, "%s", actors[0].text.chars);
}
