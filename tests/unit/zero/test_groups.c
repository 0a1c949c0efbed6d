/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with groups of parameters each element comes out with the bits that it has where all
 * parameters are of its group; what is frozen stays as it is, and counts neither in the norm nor as
 * not finite. Groups are the ranks' of now: they are compared, and may change. Method: units cut
 * into drawn parameters of drawn groups, beside a plain computation that makes every group's step
 * on everything and takes its elements.
 */
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/step/culprit.h"
#include "tests/unit/zero/world.h"

#define PARAMS_MAX 40u

/* How the units are cut: (count,) elements and groups, unit by unit. */
static struct {
	uint64_t elements[UNITS][PARAMS_MAX];
	uint32_t groups[UNITS][PARAMS_MAX];
	uint32_t count[UNITS];
} cut;
static uint32_t group_count;
static uint64_t seed;
static struct zi_step_group groups[ZI_PARAM_GROUPS_MAX];
static struct zi_step_betas betas[ZI_PARAM_GROUPS_MAX];
static struct zi_job_config config;

static uint64_t draw(uint64_t below)
{
	return test_noise(++seed * 0x9e3779b97f4a7c15ull) % below;
}

static uint32_t draw_group(void)
{
	uint64_t drawn = draw(group_count + 1);

	return drawn == group_count ? ZI_LAYOUT_FROZEN : (uint32_t)drawn;
}

/* A few elements often, many sometimes. */
static void cut_units(void)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint64_t left = model_elements[unit];
		uint32_t count = 0;

		while (left) {
			uint64_t most = draw(3) ? 40 : 1 + left / 2;
			uint64_t elements = count + 1 == PARAMS_MAX ? left : 1 + draw(most);

			elements = ZI_MIN(elements, left);
			cut.elements[unit][count] = elements;
			cut.groups[unit][count++] = draw_group();
			left -= elements;
		}
		cut.count[unit] = count;
	}
}

static uint32_t group_of(uint32_t unit, uint64_t element)
{
	uint32_t i = 0;

	for (; element >= cut.elements[unit][i]; i++)
		element -= cut.elements[unit][i];
	return cut.groups[unit][i];
}

static void stream(struct actor *actor)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "u%u", unit);
		layout_unit(actor, name);
		for (uint32_t i = 0; i < cut.count[unit]; i++) {
			struct zi_layout_entry entry = { .kind = ZI_LAYOUT_PARAM,
				                         .dim_count = 1,
				                         .group = (uint16_t)cut.groups[unit][i],
				                         .shape = { cut.elements[unit][i] } };

			(void)snprintf(entry.name, sizeof(entry.name), "u%u.p%u", unit, i);
			cr_assert_eq(zero_layout_add(actor->rank, &entry, &actor->text), 0, "%s",
			             actor->text.chars);
		}
	}
}

static void attach(uint32_t world)
{
	model_attach(&node, actors, world,
	             &(struct attach_options){ .config = config,
	                                       .training = { .group_count = group_count } });
}

static int materialize(uint32_t world)
{
	int r;

	for (uint32_t i = 0; i < world; i++)
		stream(&actors[i]);
	r = all_call(actors, world, zero_materialize, NULL);
	for (uint32_t i = 0; i < world && !r; i++)
		zero_materialized(actors[i].rank, &actors[i].memory);
	return r;
}

static void groups_begin(uint32_t world)
{
	node_init(&node);
	node.staging_bytes = 12 * MIB;
	node.store_bytes = 64 * MIB;
	node_start(&node);
	plain_init(&plain, &config, world);
	cut_units();
	attach(world);
	cr_assert_eq(materialize(world), 0, "%s", actors[0].text.chars);
	model_write(actors, world);
	for (uint32_t i = 0; i < group_count; i++)
		groups[i] = (struct zi_step_group){ .lr = (double)(1 + i % 7) * 1e-3,
			                            .weight_decay = (double)(i % 3) * 0.1 };
}

/* ---- the plain computation ---- */

/* Of a plane whose elements have @width bytes: those of @group. */
static void take(void *target, const void *source, uint32_t unit, uint32_t group, uint32_t width)
{
	uint64_t begin = 0;

	for (uint32_t i = 0; i < cut.count[unit]; i++) {
		uint64_t elements = cut.elements[unit][i];

		if (cut.groups[unit][i] == group)
			memcpy((char *)target + begin * width, (const char *)source + begin * width,
			       elements * width);
		begin += elements;
	}
}

static void clear_frozen(void *values, uint32_t unit, uint32_t width)
{
	void *zeros = calloc(model_elements[unit], width);

	take(values, zeros, unit, ZI_LAYOUT_FROZEN, width);
	free(zeros);
}

/* @source, (padded,), aligned. */
static void *copy_of(const void *source, uint32_t unit)
{
	uint64_t padded = zi_geometry_padded(model_elements[unit]);
	void *copy = aligned_alloc(64, padded * 4);

	memcpy(copy, source, padded * 4);
	return copy;
}

static void group_step(uint32_t unit, uint32_t group, const void *reduced,
                       const struct kern_hyper *hyper)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)config.param_dtype);
	bool has_second = zi_optimizer_moments((enum zi_optimizer)config.optimizer) == 2;
	struct kern_optim_scalars scalars;
	struct kern_optim_run run = {
		.param = copy_of(plain.param[unit], unit),
		.remainder = width == 4 ? NULL : copy_of(plain.remainder[unit], unit),
		.exp_avg = copy_of(plain.exp_avg[unit], unit),
		.exp_avg_sq = has_second ? copy_of(plain.exp_avg_sq[unit], unit) : NULL,
		.grads = &reduced,
		.rank_count = 1,
		.is_reduced = true,
		.element_count = zi_geometry_padded(model_elements[unit]),
		.param_dtype = (enum zi_dtype)config.param_dtype,
		.grad_dtype = (enum zi_dtype)config.grad_dtype,
	};

	kern_optim_prepare(&scalars, hyper);
	kern_optim_step(&run, &scalars);
	take(plain.param[unit], run.param, unit, group, width);
	if (run.remainder)
		take(plain.remainder[unit], run.remainder, unit, group,
		     zi_remainder_bytes((enum zi_dtype)config.param_dtype));
	take(plain.exp_avg[unit], run.exp_avg, unit, group, 4);
	if (has_second)
		take(plain.exp_avg_sq[unit], run.exp_avg_sq, unit, group, 4);
	free(run.param);
	free(run.remainder);
	free(run.exp_avg);
	free(run.exp_avg_sq);
}

/* Those of all steps until now are taken for equal. */
static void put_betas(struct kern_hyper *hyper, uint32_t group)
{
	hyper->beta1 = betas[group].beta1;
	hyper->beta2 = betas[group].beta2;
	hyper->eps = betas[group].eps;
	hyper->beta1_power = hyper->beta2_power = 1;
	for (uint64_t i = 0; i < plain.update_count; i++) {
		hyper->beta1_power *= hyper->beta1;
		hyper->beta2_power *= hyper->beta2;
	}
}

static void groups_plain_step(uint64_t step, const struct zi_step_options *options)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)config.grad_dtype);
	void *reduced[UNITS];
	struct kern_hyper hyper = {
		.optimizer = (enum zi_optimizer)config.optimizer,
		.beta1 = options->beta1,
		.beta2 = options->beta2,
		.eps = options->eps,
		.is_first = plain.update_count == 0,
		.update_count = plain.update_count,
		.average = 1,
		.unscale = (float)options->unscale,
		.clip = 1,
	};

	for (uint32_t unit = 0; unit < UNITS; unit++) {
		reduced[unit] = plain_reduce(&plain, step, unit, options);
		clear_frozen(reduced[unit], unit, width);
	}
	plain.norm = plain_norm(&plain, reduced, options);
	if (options->max_norm > 0)
		hyper.clip = fminf(1, (float)(options->max_norm / (plain.norm + 1e-6)));
	plain.beta1_power *= options->beta1;
	plain.beta2_power *= options->beta2;
	hyper.beta1_power = plain.beta1_power;
	hyper.beta2_power = plain.beta2_power;
	plain.update_count++;
	for (uint32_t unit = 0; unit < UNITS; unit++) {

		/* Each group from where all were before: they touch elements of their own. */
		for (uint32_t i = 0; i < group_count; i++) {
			hyper.lr = options->group_count ? groups[i].lr : options->lr;
			hyper.weight_decay = options->group_count ? groups[i].weight_decay
			                                          : options->weight_decay;
			if (options->flags & ZI_STEP_BETAS)
				put_betas(&hyper, i);
			group_step(unit, i, reduced[unit], &hyper);
		}
		free(reduced[unit]);
	}
}

/* ---- steps ---- */

static void begin_all(uint32_t world, const struct zi_step_options *options)
{
	int r = all_call(
		actors, world, zero_step_begin,
		&(struct zero_op){ .options = *options, .groups = groups, .betas = betas });

	cr_assert_eq(r, 0, "%s", actors[0].text.chars);
}

/* Garbage in a frozen gradient of the last rank. */
static void spoil_frozen(struct actor *actor, uint32_t unit)
{
	uint64_t begin = 0;

	for (uint32_t i = 0; i < cut.count[unit]; i++) {
		if (cut.groups[unit][i] == ZI_LAYOUT_FROZEN)
			put(unit_of(actor, actor->memory.grad, unit),
			    begin + draw(cut.elements[unit][i]), NAN, config.grad_dtype);
		begin += cut.elements[unit][i];
	}
}

static void hand_over_all(uint32_t world, uint64_t number, uint32_t micro_batches)
{
	for (uint32_t micro = 0; micro < micro_batches; micro++)
		for (uint32_t unit = UNITS; unit-- > 0;)
			for (uint32_t i = 0; i < world; i++) {
				cr_assert_eq(actor_unit(&actors[i], zero_grad_acquire, unit), 0);
				model_fill_grad(&actors[i], number, micro, unit);
				if (i + 1 == world)
					spoil_frozen(&actors[i], unit);
				cr_assert_eq(actor_unit(&actors[i], zero_reduce, unit), 0);
			}
}

static void step(uint32_t world, uint64_t number, const struct zi_step_options *options)
{
	begin_all(world, options);
	hand_over_all(world, number, options->micro_batches);
	cr_assert_eq(all_call(actors, world, zero_step, NULL), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].calls[0].op.stats.is_skipped, 0);
	groups_plain_step(number, options);
	if (options->max_norm > 0)
		cr_assert_eq(actors[0].calls[0].op.stats.norm, plain.norm, "seed %llu",
		             (unsigned long long)seed);
	cr_assert(plain_equals(&plain, &actors[0]), "step %llu, seed %llu",
	          (unsigned long long)number, (unsigned long long)seed);
}

static struct zi_step_options drawn_options(uint32_t schedule)
{
	struct zi_step_options options = model_options();

	options.max_norm = draw(2) ? 0.5 : 0;
	options.flags = draw(2) ? ZI_STEP_SKIP_NONFINITE : 0;
	options.micro_batches = schedule == ZI_SCHEDULE_SHARDED ? 2 : 1;
	options.group_count = draw(4) ? group_count : 0;
	return options;
}

static void every_optimizer(uint32_t param_dtype, uint32_t grad_dtype, uint32_t offload)
{
	static const uint32_t optimizers[] = { ZI_OPTIMIZER_ADAMW, ZI_OPTIMIZER_SGD,
		                               ZI_OPTIMIZER_ADAGRAD, ZI_OPTIMIZER_LION };

	for (uint32_t i = 0; i < ZI_COUNT_OF(optimizers); i++) {
		uint32_t world = 1 + (uint32_t)draw(3);

		config = model_config(param_dtype, offload);
		config.grad_dtype = grad_dtype;
		config.optimizer = optimizers[i];
		config.schedule = draw(2) ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL;
		group_count = 1 + (uint32_t)draw(i == 0 ? ZI_PARAM_GROUPS_MAX : 5);
		groups_begin(world);
		for (uint64_t number = 1; number <= 3; number++) {
			struct zi_step_options options = drawn_options(config.schedule);

			step(world, number, &options);
		}
		end(world);
	}
}

Test(zero_groups, every_element_has_the_bits_of_its_own_group, .timeout = 120)
{
	static const uint32_t types[][2] = {
		{ ZI_DTYPE_F32, ZI_DTYPE_F32 },
		{ ZI_DTYPE_BF16, ZI_DTYPE_BF16 },
		{ ZI_DTYPE_F16, ZI_DTYPE_F32 },
	};

	for (uint32_t i = 0; i < ZI_COUNT_OF(types); i++) {
		every_optimizer(types[i][0], types[i][1], ZI_OFFLOAD_CPU);
		every_optimizer(types[i][0], types[i][1], ZI_OFFLOAD_NVME);
	}
}

/* All units of one group are what a job without groups is. */
Test(zero_groups, a_job_of_one_group_is_a_job_without)
{
	struct zi_step_options options = model_options();

	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	group_count = 1;
	groups_begin(2);
	actors_leave(actors, 2, true);
	node_settle(&node);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		memset(cut.groups[unit], 0, sizeof(cut.groups[unit]));
	attach(2);
	cr_assert_eq(materialize(2), 0, "%s", actors[0].text.chars);
	groups[0] =
		(struct zi_step_group){ .lr = options.lr, .weight_decay = options.weight_decay };
	options.group_count = 1;
	begin_all(2, &options);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t i = 0; i < 2; i++) {
			model_fill_grad(&actors[i], 1, 0, unit);
			cr_assert_eq(actor_unit(&actors[i], zero_reduce, unit), 0);
		}
	cr_assert_eq(all_call(actors, 2, zero_step, NULL), 0);
	options.group_count = 0;
	plain_step(&plain, 1, &options);
	cr_assert(plain_equals(&plain, &actors[1]));
	end(2);
}

Test(zero_groups, a_job_comes_back_with_other_groups)
{
	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NVME);
	group_count = 3;
	groups_begin(2);
	for (uint64_t number = 1; number <= 6; number++) {
		struct zi_step_options options = model_options();

		options.group_count = group_count;
		step(2, number, &options);
		actors_leave(actors, 2, false);
		if (number % 2) {
			node_stop(&node);
			node_start(&node);
		} else {
			node_settle(&node);
		}
		group_count = 2 + (uint32_t)number;
		for (uint32_t unit = 0; unit < UNITS; unit++)
			for (uint32_t i = 0; i < cut.count[unit]; i++)
				cut.groups[unit][i] = draw_group();
		for (uint32_t i = 0; i < group_count; i++)
			groups[i] = (struct zi_step_group){ .lr = 1e-3 * (double)(number + i) };
		attach(2);
		cr_assert_eq(materialize(2), 0, "%s", actors[0].text.chars);
		cr_assert_eq(actors[0].memory.committed_step, (int64_t)number);
	}
	end(2);
}

Test(zero_groups, ranks_must_agree_on_them)
{
	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NVME);
	group_count = 2;
	for (uint32_t is_stored = 0; is_stored < 2; is_stored++) {
		groups_begin(2);
		if (is_stored) {
			actors_leave(actors, 2, false);
			node_stop(&node);
			node_start(&node);
		} else {
			cr_assert_eq(all_call(actors, 2, zero_commit, NULL), 0);
			actors_leave(actors, 2, true);
			node_settle(&node);
		}
		attach(2);
		cut.groups[1][0] = 0;
		stream(&actors[0]);
		cut.groups[1][0] = ZI_LAYOUT_FROZEN;
		stream(&actors[1]);
		actor_start(&actors[0], 0, zero_materialize, NULL);
		refused(&actors[1], -EINVAL,
		        "parameter 'u1.p0' is frozen in rank 1, but of group 0 in rank 0",
		        actor_call(&actors[1], zero_materialize, NULL));
		(void)actor_wait(&actors[0], 0);
		actors_leave(actors, 2, true);
		node_settle(&node);
		attach(2);
		cut.groups[1][0] = 2;
		stream(&actors[0]);
		refused(&actors[0], -EINVAL,
		        "parameter 'u1.p0' is of group 2, but group_count of the job is 2",
		        actor_call(&actors[0], zero_materialize, NULL));
		end(2);
	}
}

Test(zero_groups, a_step_gives_all_groups_or_none_and_the_same_in_every_rank)
{
	struct zi_step_options options = model_options();
	struct zi_step_group others[3];

	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_CPU);
	group_count = 3;
	groups_begin(2);
	options.group_count = 2;
	refused(&actors[0], -EINVAL, "group_count of the step is 2, but the job has 3 groups",
	        actor_call(&actors[0], zero_step_begin,
	                   &(struct zero_op){ .options = options, .groups = groups }));
	options.group_count = 3;
	cr_assert_eq(actor_call(&actors[0], zero_step_begin,
	                        &(struct zero_op){ .options = options, .groups = groups }),
	             0);
	memcpy(others, groups, sizeof(others));
	others[2].weight_decay = 0.5;
	refused(&actors[1], -EINVAL, "group 2 has lr 0.003",
	        actor_call(&actors[1], zero_step_begin,
	                   &(struct zero_op){ .options = options, .groups = others }));
	options.group_count = 0;
	refused(&actors[1], -EINVAL, "group_count of the step is 0 in rank 1, but 3 in rank 0",
	        actor_call(&actors[1], zero_step_begin, &(struct zero_op){ .options = options }));
	end(2);
}

Test(zero_groups, a_culprit_is_looked_for_beside_what_is_frozen)
{
	struct zi_step_options options = model_options();

	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);
	group_count = 1;
	options.flags = ZI_STEP_SKIP_NONFINITE;
	groups_begin(3);
	begin_all(3, &options);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t i = 0; i < 3; i++) {
			void *grad = unit_of(&actors[i], actors[i].memory.grad, unit);
			uint64_t element = 0;

			model_fill_grad(&actors[i], 1, 0, unit);
			if (i == 2)
				spoil_frozen(&actors[i], unit);
			while (group_of(unit, element) == ZI_LAYOUT_FROZEN)
				element++;
			if (i == 1 && unit == 1)
				put(grad, element, INFINITY, config.grad_dtype);
			cr_assert_eq(actor_unit(&actors[i], zero_reduce, unit), 0);
		}
	cr_assert_eq(all_call(actors, 3, zero_step, NULL), 0);
	cr_assert_eq(actors[0].calls[0].op.stats.is_skipped, 1);
	cr_assert_eq(actors[0].calls[0].op.stats.culprit, 1);
	cr_assert_eq(actors[0].calls[0].op.culprit_unit, 1);
	end(3);
}

/* ---- betas ---- */

static void betas_begin(uint32_t world, uint32_t offload)
{
	config = model_config(ZI_DTYPE_BF16, offload);
	group_count = 3;
	seed = 11;
	groups_begin(world);
	for (uint32_t i = 0; i < group_count; i++)
		betas[i] = (struct zi_step_betas){ .beta1 = 0.5 + 0.125 * i,
			                           .beta2 = 0.75 + 0.0625 * i,
			                           .eps = 1e-6 * (1 + i) };
}

static struct zi_step_options betas_options(void)
{
	struct zi_step_options options = model_options();

	options.group_count = group_count;
	options.flags = ZI_STEP_BETAS;
	return options;
}

/* A group's bits are those of a job that has its betas throughout, also where they begin late, and
 * where a step between them has none. */
Test(zero_groups, betas_of_each_group)
{
	const uint32_t offloads[] = { ZI_OFFLOAD_CPU, ZI_OFFLOAD_NVME };

	for (uint32_t i = 0; i < ZI_COUNT_OF(offloads); i++) {
		betas_begin(2, offloads[i]);
		for (uint64_t number = 1; number <= 4; number++) {
			struct zi_step_options options = betas_options();

			options.max_norm = number == 2 ? 0.5 : 0;
			if (number == 3)
				options.flags = 0;
			if (number == 4)
				betas[1].beta2 = 0.25;
			step(2, number, &options);
		}
		end(2);
	}
}

Test(zero_groups, betas_of_a_deferred_step)
{
	struct zi_step_options options, begun;

	betas_begin(2, ZI_OFFLOAD_NVME);
	options = betas_options();
	begun = (struct zi_step_options){ .unscale = options.unscale,
		                          .micro_batches = 1,
		                          .flags = ZI_STEP_DEFERRED };
	begin_all(2, &begun);
	hand_over_all(2, 1, 1);
	cr_assert_eq(
		all_call(actors, 2, zero_step_options,
	                 &(struct zero_op){ .options = options, .groups = groups, .betas = betas }),
		0, "%s", actors[0].text.chars);
	cr_assert_eq(all_call(actors, 2, zero_step, NULL), 0, "%s", actors[0].text.chars);
	groups_plain_step(1, &options);
	cr_assert(plain_equals(&plain, &actors[1]));
	end(2);
}

Test(zero_groups, betas_that_differ_are_refused_by_group_rank_and_values)
{
	struct zi_step_options options;
	struct zi_step_betas other[3];

	betas_begin(2, ZI_OFFLOAD_CPU);
	options = betas_options();
	memcpy(other, betas, sizeof(other));
	other[2].eps = 1;
	cr_assert_eq(actor_call(&actors[0], zero_step_begin,
	                        &(struct zero_op){
					.options = options, .groups = groups, .betas = betas }),
	             0);
	cr_assert_eq(actor_call(&actors[1], zero_step_begin,
	                        &(struct zero_op){
					.options = options, .groups = groups, .betas = other }),
	             -EINVAL);
	cr_assert_not_null(strstr(actors[1].text.chars,
	                          "group 2 has beta1 0.75, beta2 0.875 and eps 1 in rank 1, but "
	                          "0.75, 0.875 and 3"),
	                   "%s", actors[1].text.chars);
	options.flags = 0;
	cr_assert_eq(actor_call(&actors[1], zero_step_begin,
	                        &(struct zero_op){ .options = options, .groups = groups }),
	             -EINVAL);
	cr_assert_not_null(strstr(actors[1].text.chars, "group_betas is not set in rank 1"));
	end(2);
}
