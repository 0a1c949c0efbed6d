/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a unit that is frozen whole costs a step nothing: no gradient is asked for or has memory,
 * its state is neither read nor written; its parameters stay as they are and may be used as ever,
 * and a start that thaws it goes on from the state it had. Method: the model's middle unit, frozen
 * for some steps, beside the plain computation that leaves it out.
 */
#include "tests/unit/zero/world.h"

#define FROZEN 1u /* the largest unit */

static struct zi_job_config config;
static struct zi_job_training training;
static uint64_t row_number;
static struct zi_step_stats stats; /* of the newest step */

static void stream(struct actor *actor, uint32_t frozen_mask)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		char name[32];

		layout_set_of(actor, unit);
		(void)snprintf(name, sizeof(name), "u%u", unit);
		layout_unit(actor, name);
		/* Two parameters each: a unit is frozen when all of it is. */
		for (uint32_t i = 0; i < 2; i++) {
			struct zi_layout_entry entry = {
				.kind = ZI_LAYOUT_PARAM,
				.dim_count = 1,
				.group = frozen_mask >> unit & 1 ? ZI_LAYOUT_FROZEN : 0,
				.shape = { i ? model_elements[unit] - 100 : 100 },
			};

			(void)snprintf(entry.name, sizeof(entry.name), "u%u.p%u", unit, i);
			cr_assert_eq(zero_layout_add(actor->rank, &entry, &actor->text), 0, "%s",
			             actor->text.chars);
		}
	}
}

static int open_job(uint32_t world, uint32_t frozen_mask)
{
	int r;

	model_attach(&node, actors, world,
	             &(struct attach_options){ .config = config, .training = training });
	for (uint32_t i = 0; i < world; i++)
		stream(&actors[i], frozen_mask);
	r = all_call(actors, world, zero_materialize, NULL);
	for (uint32_t i = 0; i < world && !r; i++)
		zero_materialized(actors[i].rank, &actors[i].memory);
	return r;
}

static void start(uint32_t world, uint32_t frozen_mask)
{
	node_init(&node);
	node.staging_bytes = 16 * MIB;
	node.store_bytes = 64 * MIB;
	node_start(&node);
	plain_init(&plain, &config, world);
	cr_assert_eq(open_job(world, frozen_mask), 0, "%s", actors[0].text.chars);
	model_write(actors, world);
}

static void reopen(uint32_t world, uint32_t frozen_mask)
{
	actors_leave(actors, world, true);
	node_settle(&node);
	cr_assert_eq(open_job(world, frozen_mask), 0, "%s", actors[0].text.chars);
}

/* What plain_step() does to the frozen ones is taken back; but for the norm. */
static void still_step(uint64_t number, uint32_t frozen_mask, const struct zi_step_options *options)
{
	struct plain kept = plain;

	for (uint32_t unit = 0; unit < UNITS; unit++) {
		if (!(frozen_mask >> unit & 1))
			continue;
		plain.param[unit] = aligned_alloc(64, zi_geometry_padded(model_elements[unit]) * 4);
		plain.remainder[unit] =
			aligned_alloc(64, zi_geometry_padded(model_elements[unit]) * 4);
		plain.exp_avg[unit] =
			aligned_alloc(64, zi_geometry_padded(model_elements[unit]) * 4);
		plain.exp_avg_sq[unit] =
			aligned_alloc(64, zi_geometry_padded(model_elements[unit]) * 4);
	}
	plain_step(&plain, number, options);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		if (!(frozen_mask >> unit & 1))
			continue;
		free(plain.param[unit]);
		free(plain.remainder[unit]);
		free(plain.exp_avg[unit]);
		free(plain.exp_avg_sq[unit]);
		plain.param[unit] = kept.param[unit];
		plain.remainder[unit] = kept.remainder[unit];
		plain.exp_avg[unit] = kept.exp_avg[unit];
		plain.exp_avg_sq[unit] = kept.exp_avg_sq[unit];
	}
}

/* Of what is trained alone. */
static double norm_of(uint64_t number, uint32_t frozen_mask, const struct zi_step_options *options)
{
	void *reduced[UNITS];
	double norm;

	for (uint32_t unit = 0; unit < UNITS; unit++) {
		reduced[unit] = plain_reduce(&plain, number, unit, options);
		if (frozen_mask >> unit & 1)
			memset(reduced[unit], 0,
			       zi_geometry_padded(model_elements[unit]) *
			               zi_dtype_bytes((enum zi_dtype)config.grad_dtype));
	}
	norm = plain_norm(&plain, reduced, options);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		free(reduced[unit]);
	return norm;
}

static void step(uint32_t world, uint64_t number, uint32_t frozen_mask,
                 const struct zi_step_options *options)
{
	double norm = norm_of(number, frozen_mask, options);

	cr_assert_eq(
		all_call(actors, world, zero_step_begin, &(struct zero_op){ .options = *options }),
		0, "%s", actors[0].text.chars);
	for (uint32_t micro = 0; micro < options->micro_batches; micro++)
		for (uint32_t unit = UNITS; unit-- > 0;)
			for (uint32_t i = 0; i < world; i++) {
				if (frozen_mask >> unit & 1) {
					refused(&actors[i], -EPERM,
					        "are frozen: it has no gradient",
					        actor_unit(&actors[i], zero_grad_acquire, unit));
					refused(&actors[i], -EPERM,
					        "are frozen: it has no gradient",
					        actor_unit(&actors[i], zero_reduce, unit));
					/* It may be used all the time. */
					cr_assert_eq(actor_unit(&actors[i], zero_unshard, unit), 0,
					             "%s", actors[i].text.chars);
					cr_assert_eq(actor_unit(&actors[i], zero_reshard, unit), 0);
					continue;
				}
				cr_assert_eq(actor_unit(&actors[i], zero_grad_acquire, unit), 0);
				model_fill_grad(&actors[i], number, micro, unit);
				cr_assert_eq(actor_unit(&actors[i], zero_reduce, unit), 0, "%s",
				             actors[i].text.chars);
			}
	cr_assert_eq(all_call(actors, world, zero_step, NULL), 0, "%s", actors[0].text.chars);
	stats = actors[0].calls[0].op.stats;
	still_step(number, frozen_mask, options);
	if (options->flags & ZI_STEP_WANT_NORM)
		cr_assert_eq(stats.norm, norm, "step %llu, row %llu, mask %u: %g, not %g",
		             (unsigned long long)number, (unsigned long long)row_number,
		             frozen_mask, stats.norm, norm);
	cr_assert(plain_equals(&plain, &actors[0]), "step %llu, row %llu",
	          (unsigned long long)number, (unsigned long long)row_number);
}

/* Of the units that change. */
static uint64_t moved_bytes(uint32_t frozen_mask, uint32_t width)
{
	uint64_t bytes = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		if (!(frozen_mask >> unit & 1))
			bytes += zi_geometry_padded(model_elements[unit]) * width;
	return bytes;
}

static uint64_t grad_bytes(uint32_t frozen_mask)
{
	const struct zero_job *job = actors[0].rank->job;
	uint64_t bytes = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		if (!(frozen_mask >> unit & 1))
			bytes += zi_geometry_unit_bytes(job->units[unit].padded_count, 2,
			                                job->slot_bytes);
	return bytes;
}

static void row(uint32_t world, const struct zi_step_options *options)
{
	bool is_nvme = config.offload_optimizer == ZI_OFFLOAD_NVME;
	uint64_t number = 1;

	start(world, 0);
	step(world, number++, 0, options);
	for (uint32_t mask = 1u << FROZEN; mask; mask = mask == 1u << FROZEN ? 5 : 0) {
		reopen(world, mask);
		cr_assert_eq(set_grad_bytes(actors[0].rank->job, 0), grad_bytes(mask));
		for (uint32_t i = 0; i < 2; i++)
			step(world, number++, mask, options);
		if (is_nvme && config.commit_interval < 2)
			cr_assert_eq(stats.write_bytes, moved_bytes(mask, 2 + 10),
			             "row %llu, mask %u: %llu, not %llu",
			             (unsigned long long)row_number, mask,
			             (unsigned long long)stats.write_bytes,
			             (unsigned long long)moved_bytes(mask, 12));
		if (is_nvme)
			cr_assert_leq(stats.read_bytes, moved_bytes(mask, 2 + 10));
	}
	reopen(world, 0);
	for (uint32_t i = 0; i < 2; i++)
		step(world, number++, 0, options);
	end(world);
}

Test(zero_frozen_unit, a_unit_that_is_frozen_whole_costs_a_step_nothing, .timeout = 120)
{
	for (uint32_t i = 0; i < 12; i++) {
		struct zi_step_options options = model_options();

		row_number = i;
		config = model_config(ZI_DTYPE_BF16, i % 3 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU);
		training = (struct zi_job_training){ 0 };
		if (i % 3 == 2) {
			config.offload_param = ZI_OFFLOAD_NVME;
			config.param_budget_bytes = 4 * MIB;
		}
		config.schedule = i / 3 % 2 ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL;
		config.commit_interval = i == 4 || i == 8 ? 2 : 0;
		training.strategy = i / 6 ? ZI_STRATEGY_ZERO3 : ZI_STRATEGY_DDP;
		options.micro_batches = i / 3 % 2 ? 2 : 1;
		options.flags = i % 2 ? ZI_STEP_WANT_NORM : ZI_STEP_UPDATE_EARLY;
		row(1 + i % 3, &options);
	}
}

/* Nothing is trained, and every step is one all the same. */
Test(zero_frozen_unit, a_model_may_be_frozen_whole)
{
	struct zi_step_options options = model_options();

	for (uint32_t i = 0; i < 3; i++) {
		config = model_config(ZI_DTYPE_BF16, i ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU);
		config.schedule = i == 2 ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL;
		training = (struct zi_job_training){ .strategy = i == 2 ? ZI_STRATEGY_ZERO2 : 0 };
		start(2, 7);
		options.flags = ZI_STEP_WANT_NORM;
		for (uint64_t number = 1; number <= 3; number++)
			step(2, number, 7, &options);
		cr_assert_eq(stats.norm, 0);
		cr_assert_eq(stats.write_bytes, 0);
		end(2);
	}
}

/* Values are written into it as into any other. */
Test(zero_frozen_unit, its_values_may_be_written)
{
	struct zi_step_options options = model_options();

	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	training = (struct zi_job_training){ 0 };
	start(2, 1u << FROZEN);
	step(2, 1, 1u << FROZEN, &options);
	model_write_unit(actors, 2, FROZEN, 700);
	fill(plain.param[FROZEN], 700 + FROZEN, model_elements[FROZEN], config.param_dtype);
	cr_assert_eq(all_call(actors, 2, zero_commit, NULL), 0, "%s", actors[0].text.chars);
	step(2, 2, 1u << FROZEN, &options);
	actors_leave(actors, 2, true);
	node_stop(&node);
	node_start(&node);
	cr_assert_eq(open_job(2, 0), 0, "%s", actors[0].text.chars);
	cr_assert(plain_equals(&plain, &actors[0]));
	step(2, 3, 0, &options);
	end(2);
}

/* A step writes nothing of it, so that a commit which wrote it is to come first. */
Test(zero_frozen_unit, what_was_written_into_it_is_committed_before_a_step)
{
	for (uint32_t interval = 1; interval <= 3; interval += 2) {
		struct zi_step_options options = model_options();

		config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
		config.commit_interval = interval;
		training = (struct zi_job_training){ 0 };
		start(2, 0);
		step(2, 1, 0, &options);
		cr_assert_eq(all_call(actors, 2, zero_commit, NULL), 0);
		reopen(2, 1u << FROZEN);
		model_write_unit(actors, 2, FROZEN, 700);
		refused(&actors[0], -EBUSY, "as it is frozen whole a commit comes before",
		        step_begin(&actors[0], options));
		cr_assert_eq(all_call(actors, 2, zero_commit, NULL), 0, "%s", actors[0].text.chars);
		fill(plain.param[FROZEN], 700 + FROZEN, model_elements[FROZEN], config.param_dtype);
		for (uint32_t i = 0; i < 3; i++)
			memset(((void *[]){ plain.remainder[FROZEN], plain.exp_avg[FROZEN],
			                    plain.exp_avg_sq[FROZEN] })[i],
			       0, zi_geometry_padded(model_elements[FROZEN]) * (i ? 4 : 2));
		step(2, 2, 1u << FROZEN, &options);
		actors_leave(actors, 2, true);
		node_stop(&node);
		node_start(&node);
		cr_assert_eq(open_job(2, 0), 0, "%s", actors[0].text.chars);
		cr_assert_eq(actors[0].memory.committed_step, 2);
		cr_assert(plain_equals(&plain, &actors[0]));
		step(2, 3, 0, &options);
		end(2);
	}
}

/* Memory for gradients that there are not is not asked for. */
Test(zero_frozen_unit, a_model_is_refused_for_what_it_takes_alone)
{
	for (uint32_t mask = 0; mask <= 2; mask += 2) {
		config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);
		training = (struct zi_job_training){ 0 };
		node_init(&node);
		node.cpu_bytes = 4 * MIB; /* 1.1 MB of parameters, as much of gradients a rank */
		node_start(&node);
		cr_assert_eq(open_job(4, mask), -ENOSPC, "its state does not fit");
		cr_assert_eq(strstr(actors[0].text.chars, "use fewer ranks") != NULL, !mask, "%s",
		             actors[0].text.chars);
		actors_leave(actors, 4, false);
		node_deinit(&node);
	}
}
