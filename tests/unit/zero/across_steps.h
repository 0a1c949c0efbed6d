/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture of tests about models that ranks on several nodes train: in many ways, held against what
 * the same ranks saw on one node. */
#pragma once

#include "kernels/hash.h"
#include "tests/unit/zero/across_grads.h"

#define STEPS 4u

/* How it is trained. */
struct train {
	struct run run;
	uint32_t optimizer, scaler_kind, group_count, commit_interval;
	double max_norm;
	uint32_t poisoned; /* the step with a gradient that is not finite; 0: none */
	bool wants_early;
	uint32_t cut_count; /* parameters into which the second unit is cut; 0: a few */
};

/* What a rank sees after a step. */
struct seen {
	uint64_t params[UNITS];
	struct zi_step_stats stats;
	uint32_t unused_count;
};
static struct seen seen[STEPS + 1];

static struct zi_step_group groups[2] = { { .lr = 3e-3, .weight_decay = 0.1 }, { .lr = 1e-2 } };

/* ---- a run ---- */

static inline void add_param(struct actor *actor, const char *name, uint64_t rows, uint64_t columns,
                             uint32_t group)
{
	struct zi_layout_entry entry = { .kind = ZI_LAYOUT_PARAM,
		                         .dim_count = columns ? 2 : 1,
		                         .group = (uint16_t)group,
		                         .shape = { rows, columns } };

	cr_assert_eq(zi_copy_name(entry.name, sizeof(entry.name), name), 0);
	cr_assert_eq(zero_layout_add(actor->rank, &entry, &actor->text), 0, "%s",
	             actor->text.chars);
}

/* So many of one length, and what is left. */
static inline void add_params(struct actor *actor, uint32_t count)
{
	uint64_t each = model_elements[1] / count;
	char name[32];

	for (uint32_t i = 0; i < count; i++) {
		(void)snprintf(name, sizeof(name), "h.0.%u", i);
		add_param(actor, name, i + 1 < count ? each : model_elements[1] - i * each, 0, 0);
	}
}

/* Two parameters a unit. */
static inline void stream_flat(struct actor *actor, bool has_groups)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint64_t first = model_elements[unit] / 3;
		char name[8];

		(void)snprintf(name, sizeof(name), "u%u", unit);
		layout_set_of(actor, unit);
		layout_unit(actor, name);
		(void)snprintf(name, sizeof(name), "u%u.a", unit);
		add_param(actor, name, first, 0, 0);
		(void)snprintf(name, sizeof(name), "u%u.b", unit);
		add_param(actor, name, model_elements[unit] - first, 0, has_groups);
	}
}

/* The model, in groups where there are some; one parameter is frozen then. */
static inline void stream(struct actor *actor, const struct train *train)
{
	bool has_groups = train->group_count > 0;

	if (model_is_flat) {
		stream_flat(actor, has_groups);
		return;
	}
	layout_set_of(actor, 0);
	layout_unit(actor, "embed");
	add_param(actor, "embed.w", 10, 80, 0);
	add_param(actor, "embed.b", 200, 0, has_groups);
	layout_set_of(actor, 1);
	layout_unit(actor, "h.0");
	if (train->cut_count) {
		add_params(actor, train->cut_count);
	} else {
		add_param(actor, "h.0.w", 130, 1000, 0);
		add_param(actor, "h.0.f", 150, 1000, has_groups ? ZI_LAYOUT_FROZEN : 0);
		add_param(actor, "h.0.v", 250, 1000, has_groups);
	}
	layout_set_of(actor, 2);
	layout_unit(actor, "head");
	add_param(actor, "head.w", 100, 200, 0);
}

static inline void write_unit(uint32_t unit, uint64_t what)
{
	uint64_t members = model_members(unit, ranks.world);
	uint32_t root = net_draw(ranks.world);

	while (!(members >> root & 1))
		root = (root + 1) % ranks.world;
	cr_assert_eq(call_unit(&ranks.actors[root], zero_param_write_begin, unit), 0);
	fill(zero_param_staging(ranks.actors[root].rank)->region.base, what + unit,
	     model_elements[unit], ranks.actors[root].rank->job->config.param_dtype);
	cr_assert_eq(nodes_all(&ranks, zero_param_write_end,
	                       &(struct zero_op){ .unit = unit, .root = root }),
	             0, "%s", ranks.actors[0].text.chars);
}

/* Ranks come to nodes that are there. Return: what materialize says. */
static inline int attach_train(const struct train *train, const char *places,
                               const char *incarnation)
{
	const struct run *run = &train->run;
	struct attach_options options = { .incarnation = incarnation,
		                          .config = model_config(run->dtype, run->offload) };
	struct zi_scaler_options scaler;

	options.config.optimizer = train->optimizer;
	options.config.schedule = run->schedule;
	options.config.commit_interval = train->commit_interval;
	/* The model's are in memory. */
	options.config.offload_param = net.count > 1 ? run->offload_param : 0;
	options.config.staging_bytes = run->offload == ZI_OFFLOAD_NVME ? 16 * MIB : 0;
	options.training.strategy = run->strategy;
	options.training.reduce_dtype = run->reduce_dtype;
	options.training.flags = run->finds_unused ? ZI_TRAINING_FIND_UNUSED : 0;
	options.training.shard_size = run->shard_size;
	options.training.grad_budget_bytes = run->budget_bytes;
	options.training.group_count = train->group_count;
	scaler = zi_scaler_defaults((enum zi_scaler_kind)train->scaler_kind);
	zi_training_set_scaler(&options.training, &scaler);
	nodes_attach(&ranks, places, &options);
	for (uint32_t i = 0; i < ranks.world; i++)
		stream(&ranks.actors[i], train);
	return nodes_materialize(&ranks);
}

static inline void begin_train(const struct train *train, const char *places, uint64_t seed)
{
	uint32_t count = 0;

	for (const char *place = places; *place; place++)
		count = ZI_MAX(count, (uint32_t)(*place - '0') + 1);
	model_sets = train->run.sets;
	nodes_init(count, seed);
	for (uint32_t i = 0; i < count; i++) {
		net.nodes[i].store_bytes = 48 * MIB;
		net.nodes[i].params_max = 4096;
	}
	nodes_start();
	cr_assert_eq(attach_train(train, places, "run.0"), 0, "%s", ranks.actors[0].text.chars);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		write_unit(unit, 900);
	cr_assert_eq(nodes_all(&ranks, zero_commit, NULL), 0, "%s", ranks.actors[0].text.chars);
}

/* With a pool it lies where the unshard in @slot said. */
static inline uint64_t hash_unit(const struct actor *actor, uint32_t unit, uint32_t slot)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)actor->rank->job->config.param_dtype);
	const void *seen_at = unit_of(actor, actor->memory.param, unit);

	if (actor->rank->job->residency)
		seen_at = (char *)actor->memory.param->region.base +
		          actor->calls[slot].op.offset_bytes;
	return kern_hash(seen_at, zi_geometry_padded(model_elements[unit]) * width);
}

/* Whoever asks for a unit has it of this step at once when it is told. */
static inline void check_unit(struct actor *actor, uint32_t unit, uint64_t step, const char *places)
{
	cr_assert_eq(call_unit(actor, zero_unshard, unit), 0, "%s", actor->text.chars);
	cr_assert_eq(hash_unit(actor, unit, 0), seen[step].params[unit],
	             "'%s' step %llu: unit %u of rank %u", places, (unsigned long long)step, unit,
	             actor->number);
	cr_assert_eq(call_unit(actor, zero_reshard, unit), 0);
}

static inline void check_stats(const struct zi_step_stats *mine, const struct zi_step_stats *model)
{
	cr_assert_eq(memcmp(&mine->norm, &model->norm, sizeof(mine->norm)), 0, "%.17g, not %.17g",
	             mine->norm, model->norm);
	cr_assert_eq(mine->clip, model->clip);
	cr_assert_eq(mine->step, model->step);
	cr_assert_eq(mine->is_skipped, model->is_skipped);
	cr_assert_eq(mine->loss_scale, model->loss_scale);
	cr_assert_eq(mine->update_count, model->update_count);
	cr_assert_eq(mine->committed_step, model->committed_step);
}

/* All ranks call step(); some want units at once, which they get at the new step. */
static inline void end_step(uint64_t step, bool is_model)
{
	struct actor *eager = &ranks.actors[net_draw(ranks.world)];
	uint32_t unit = net_draw(UNITS), first = net_draw(ranks.world);

	for (uint32_t i = 0; i < ranks.world; i++)
		actor_start(&ranks.actors[(first + i) % ranks.world], 0, zero_step, NULL);
	actor_start(eager, 1, zero_unshard, &(struct zero_op){ .unit = unit });
	cr_assert_eq(nodes_wait(eager, 1), 0, "%s", eager->text.chars);
	if (!is_model)
		cr_assert_eq(hash_unit(eager, unit, 1), seen[step].params[unit]);
	actor_start(eager, 1, zero_reshard, &(struct zero_op){ .unit = unit });
	for (uint32_t i = 0; i < ranks.world; i++)
		cr_assert_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s", ranks.actors[i].text.chars);
	if (is_model) {
		seen[step].stats = ranks.actors[0].calls[0].op.stats;
		seen[step].unused_count = ranks.actors[0].calls[0].op.unused_count;
	}
	for (uint32_t i = 0; i < ranks.world; i++) {
		check_stats(&ranks.actors[i].calls[0].op.stats, &seen[step].stats);
		cr_assert_eq(ranks.actors[i].calls[0].op.unused_count, seen[step].unused_count);
	}
}

static inline void look(uint64_t step, bool is_model, const char *places)
{
	for (uint32_t unit = 0; unit < UNITS && is_model; unit++)
		seen[step].params[unit] = hash_unit(&ranks.actors[0], unit, 0);
	for (uint32_t i = 0; i < ranks.world; i++)
		for (uint32_t unit = 0; unit < UNITS; unit++)
			check_unit(&ranks.actors[i], unit, step, places);
}

/* Up to the calls of step(). */
static inline void begin_one(const struct train *train, uint64_t step)
{
	struct zi_step_options options = model_options();
	struct zero_op op = { .groups = groups };

	options.micro_batches = train->run.micro_batches;
	options.max_norm = train->max_norm;
	options.group_count = train->group_count;
	options.unscale = train->scaler_kind ? 1 : options.unscale;
	options.flags |= train->poisoned ? ZI_STEP_SKIP_NONFINITE : 0;
	options.flags |= train->wants_early ? ZI_STEP_UPDATE_EARLY : 0;
	op.options = options;
	poison = (struct poison){ .what = grad_what(step, 0, 1, (uint32_t)(step % UNITS)),
		                  .index = 7 * step,
		                  .value = NAN,
		                  .count = step == train->poisoned };
	cr_assert_eq(nodes_all(&ranks, zero_step_begin, &op), 0, "%s", ranks.actors[0].text.chars);
	for (uint32_t micro = 0; micro < options.micro_batches; micro++)
		hand_over_all(step, micro);
}

static inline void train_steps(const struct train *train, uint64_t first, uint64_t last,
                               bool is_model, const char *places)
{
	for (uint64_t step = first; step <= last; step++) {
		begin_one(train, step);
		end_step(step, is_model);
		look(step, is_model, places);
	}
}

/* @is_model: what is seen is what is right. */
static inline void train_on(const struct train *train, const char *places, uint64_t seed,
                            bool is_model)
{
	begin_train(train, places, seed);
	look(0, is_model, places);
	train_steps(train, 1, STEPS, is_model, places);
	end_run(true);
}

/* What ranks see where all of them are on one node is what is right. */
static inline void train_model(const struct train *train, uint64_t seed)
{
	char here[9] = "";

	memset(here, '0', strlen(train->run.places));
	train_on(train, here, seed, true);
}
