/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture of tests about gradients over nodes: what is trained, and ranks that hand over in drawn
 * orders. */
#pragma once

#include "daemon/zero/across/bytes/pull.h"
#include "tests/unit/zero/across.h"

/* What is trained, and how. */
struct run {
	const char *places;
	uint32_t dtype, schedule, strategy, shard_size, offload, micro_batches;
	uint32_t offload_param; /* 0: none */
	uint32_t reduce_dtype;  /* 0: dtype */
	bool finds_unused;      /* ranks leave parameters out, see leave_out() */
	uint64_t budget_bytes;
	const struct model_set *sets;
};

static inline void begin_run(const struct run *run, uint64_t seed)
{
	struct attach_options options = { .incarnation = "run.0",
		                          .config = model_config(run->dtype, run->offload) };
	uint32_t count = 0;

	for (const char *place = run->places; *place; place++)
		count = ZI_MAX(count, (uint32_t)(*place - '0') + 1);
	model_sets = run->sets;
	options.config.schedule = run->schedule;
	options.config.offload_param = run->offload_param;
	options.config.staging_bytes = run->offload == ZI_OFFLOAD_NVME ? 16 * MIB : 0;
	options.training.strategy = run->strategy;
	options.training.reduce_dtype = run->reduce_dtype;
	options.training.flags = run->finds_unused ? ZI_TRAINING_FIND_UNUSED : 0;
	options.training.shard_size = run->shard_size;
	options.training.grad_budget_bytes = run->budget_bytes;
	nodes_init(count, seed);
	nodes_start();
	nodes_attach(&ranks, run->places, &options);
	nodes_layout(&ranks);
	cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(nodes_all(&ranks, zero_commit, NULL), 0, "%s", ranks.actors[0].text.chars);
}

static inline void end_run(bool is_clean)
{
	model_sets = NULL;
	poison = (struct poison){ 0 };
	end(is_clean);
}

static inline int call_unit(struct actor *actor, call_fn function, uint32_t unit)
{
	actor_start(actor, 0, function, &(struct zero_op){ .unit = unit });
	return nodes_wait(actor, 0);
}

/* Whether a rank has no gradient of a parameter in a step: of some nobody has, of others some. Rank
 * 0 has one of each in every third step. */
static inline bool is_left_out(uint64_t step, uint32_t rank, uint32_t param)
{
	uint64_t kind = test_noise(step * 65536 + param) % 4;

	if (kind == 0)
		return step % 3 || rank;
	return kind == 1 && test_noise((step * 64 + rank) * 65536 + param) % 2;
}

/* As libzinf does: what has no gradient is zeros, and named. */
static inline void leave_out(struct actor *actor, uint64_t step, uint32_t unit, char *grad)
{
	const struct zero_job *job = actor->rank->job;
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype), index = 0;
	uint64_t bits[ZI_UNUSED_BITS / 64] = { 0 };

	for (uint32_t i = 0; i < job->layout.param_count; i++) {
		const struct catalog_param *param = &job->layout.params[i];
		bool is_last = i + 1 == job->layout.param_count || param[1].unit != unit;
		uint64_t elements = 0;

		if (param->unit != unit)
			continue;
		(void)zi_geometry_elements(param->shape, param->dim_count, &elements);
		if (is_left_out(step, actor->number, i)) {
			memset(grad, 0, elements * width);
			bits[index % ZI_UNUSED_BITS / 64] |= 1ull << index % 64;
		}
		grad += elements * width;
		index++;
		if (index % ZI_UNUSED_BITS && !is_last)
			continue;
		actor_start(actor, 0, zero_grad_unused,
		            &(struct zero_op){ .unit = unit,
		                               .id = (index - 1) / ZI_UNUSED_BITS * ZI_UNUSED_BITS,
		                               .unused = bits });
		cr_assert_eq(nodes_wait(actor, 0), 0, "%s", actor->text.chars);
		memset(bits, 0, sizeof(bits));
	}
}

/* A rank's gradient of a unit; where it lies is known when it is acquired. */
static inline void hand_over(struct actor *actor, uint64_t step, uint32_t micro, uint32_t unit)
{
	uint32_t dtype = actor->rank->job->config.grad_dtype;
	uint64_t what = grad_what(step, micro, actor->number, unit);
	char *grad;

	cr_assert_eq(call_unit(actor, zero_grad_acquire, unit), 0, "%s", actor->text.chars);
	grad = grad_at(actor->rank->job, actor->number, unit, 0);
	fill_grad(grad, what, model_elements[unit], dtype);
	if (actor->rank->job->unused)
		leave_out(actor, step, unit, grad);
	cr_assert_eq(call_unit(actor, zero_reduce, unit), 0, "%s", actor->text.chars);
}

/* All gradients of one micro-batch: ranks, and units, come in a drawn order. */
static inline void hand_over_all(uint64_t step, uint32_t micro)
{
	uint32_t first_unit = net_draw(UNITS);

	for (uint32_t k = 0; k < UNITS; k++) {
		uint32_t unit = (first_unit + k) % UNITS, first = net_draw(ranks.world);

		for (uint32_t i = 0; i < ranks.world; i++) {
			struct actor *actor = &ranks.actors[(first + i) % ranks.world];

			if (!(model_members(unit, ranks.world) >> actor->number & 1))
				continue;
			hand_over(actor, step, micro, unit);
			for (uint32_t turns = net_draw(4); turns > 0; turns--)
				nodes_turn();
		}
	}
}

static inline void begin_step(const struct zi_step_options *options)
{
	struct zero_op op = { .options = *options };

	cr_assert_eq(nodes_all(&ranks, zero_step_begin, &op), 0, "%s", ranks.actors[0].text.chars);
}

static inline int make_step(uint64_t step, const struct zi_step_options *options)
{
	begin_step(options);
	for (uint32_t micro = 0; micro < options->micro_batches; micro++)
		hand_over_all(step, micro);
	return nodes_all(&ranks, zero_step, NULL);
}
