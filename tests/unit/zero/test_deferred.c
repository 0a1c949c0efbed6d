/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a step whose hyperparameters come when it ends has the bits of one that was begun with
 * them; the norm is known before, and is the step's; options that differ are refused with rank,
 * field and values, and may be given again. Method: the plain computation beside it, in all places
 * and schedules; calls out of order.
 */
#include "tests/unit/zero/deferred.h"
#include "tests/unit/zero/world.h"

TestSuite(zero_deferred, .timeout = 240);

#define WORLD 2u

static const struct zi_step_stats *stats(void)
{
	return &actors[0].calls[0].op.stats;
}

static int step_with(struct actor *actor, struct zi_step_options options)
{
	return actor_call(actor, zero_step_options, &(struct zero_op){ .options = options });
}

/* Each step has other hyperparameters; all of them are known only at its end. */
static void steps_are_right(uint32_t micro_batches)
{
	struct zi_step_options options = model_options();
	double norm = 0;

	options.micro_batches = micro_batches;
	for (uint64_t step = 1; step <= 4; step++) {
		options.lr = 1e-3 * (double)step;
		options.weight_decay = step % 2 ? 0.1 : 0;
		options.max_norm = step == 3 ? 0.25 : 0;
		options.flags = step == 2 ? ZI_STEP_NO_BIAS_CORRECTION : 0;
		deferred_gradients(actors, WORLD, step, &options);
		cr_assert_eq(deferred_end(actors, WORLD, &options, &norm), 0, "%s",
		             actors[0].text.chars);
		plain_step(&plain, step, &options);
		cr_assert_eq(norm, plain.norm);
		cr_assert_eq(stats()->norm, plain.norm);
		cr_assert(plain_equals(&plain, &actors[1]), "step %llu", (unsigned long long)step);
	}
	cr_assert_lt(stats()->clip, 1.0 + 1e-9);
}

Test(zero_deferred, bits_are_those_of_options_from_the_beginning)
{
	const uint32_t offloads[] = { ZI_OFFLOAD_CPU, ZI_OFFLOAD_NVME };

	for (uint32_t i = 0; i < ZI_COUNT_OF(offloads); i++) {
		begin(WORLD, offloads[i], ZI_SCHEDULE_LOCAL);
		steps_are_right(1);
		end(WORLD);
		begin(WORLD, offloads[i], ZI_SCHEDULE_SHARDED);
		steps_are_right(3);
		end(WORLD);
	}
}

Test(zero_deferred, parameters_on_nvme_and_steps_between_commits)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	config.offload_param = ZI_OFFLOAD_NVME;
	config.commit_interval = 3;
	begin_staged(WORLD, &config, 12 * MIB);
	steps_are_right(1);
	end(WORLD);
}

Test(zero_deferred, norm_waits_for_all_ranks_and_is_told_several_times)
{
	struct zi_step_options options = model_options();
	double norm = 0;

	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	refused(&actors[0], -EINVAL, "grad_norm before step_begin",
	        actor_call(&actors[0], zero_grad_norm, NULL));
	cr_assert_eq(all_call(actors, WORLD, zero_step_begin,
	                      &(struct zero_op){ .options = deferred_options(&options) }),
	             0);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		model_fill_grad(&actors[0], 1, 0, unit);
		if (unit == 1)
			refused(&actors[0], -ENODATA, "'h.0', 'head'",
			        actor_call(&actors[0], zero_grad_norm, NULL));
		cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
	}
	actor_start(&actors[0], 1, zero_grad_norm, NULL);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		node_settle(&node);
		cr_assert_not(actors[0].calls[1].is_done);
		model_fill_grad(&actors[1], 1, 0, unit);
		cr_assert_eq(actor_unit(&actors[1], zero_reduce, unit), 0);
	}
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actor_call(&actors[0], zero_grad_norm, NULL), 0);
	cr_assert_eq(actors[0].calls[0].op.norm, actors[0].calls[1].op.norm);
	cr_assert_eq(deferred_end(actors, WORLD, &options, &norm), 0);
	plain_step(&plain, 1, &options);
	cr_assert_eq(norm, plain.norm);
	cr_assert(plain_equals(&plain, &actors[0]));
	end(WORLD);
}

Test(zero_deferred, norm_is_of_any_step_that_has_one)
{
	struct zi_step_options options = model_options();

	begin(1, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	model_gradients(actors, 1, 1, &options);
	refused(&actors[0], -EINVAL, "this step computes no norm",
	        actor_call(&actors[0], zero_grad_norm, NULL));
	cr_assert_eq(actor_call(&actors[0], zero_step, NULL), 0);
	plain_step(&plain, 1, &options);
	options.flags = ZI_STEP_WANT_NORM;
	model_gradients(actors, 1, 2, &options);
	cr_assert_eq(actor_call(&actors[0], zero_grad_norm, NULL), 0);
	plain_step(&plain, 2, &options);
	cr_assert_eq(actors[0].calls[0].op.norm, plain.norm);
	cr_assert_eq(actor_call(&actors[0], zero_step, NULL), 0);
	cr_assert_eq(stats()->norm, plain.norm);
	end(1);
}

Test(zero_deferred, norm_that_is_not_finite_is_told_and_the_step_may_be_skipped)
{
	struct zi_step_options options = model_options();
	double norm = 0;

	options.flags = ZI_STEP_SKIP_NONFINITE;
	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	poison = (struct poison){ .what = grad_what(1, 0, 1, 1), .value = INFINITY, .count = 1 };
	deferred_gradients(actors, WORLD, 1, &options);
	poison.count = 0;
	cr_assert_eq(deferred_end(actors, WORLD, &options, &norm), 0, "%s", actors[0].text.chars);
	cr_assert_not(isfinite(norm));
	cr_assert_eq(stats()->is_skipped, 1);
	cr_assert(plain_equals(&plain, &actors[0]));
	deferred_gradients(actors, WORLD, 2, &options);
	cr_assert_eq(deferred_end(actors, WORLD, &options, &norm), 0);
	plain_step(&plain, 2, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	end(WORLD);
}

Test(zero_deferred, options_that_differ_are_refused_and_may_be_given_again)
{
	struct zi_step_options options = model_options(), other = options;
	double norm = 0;

	begin(WORLD, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	deferred_gradients(actors, WORLD, 1, &options);
	cr_assert_eq(step_with(&actors[0], options), 0);
	other.lr = 0.5;
	refused(&actors[1], -EINVAL, "lr is 0.5 in rank 1, but 0.01 in rank 0",
	        step_with(&actors[1], other));
	refused(&actors[1], -EINVAL, "zinf_step_with() ends it",
	        actor_call(&actors[1], zero_step, NULL));
	other = options;
	other.max_norm = 1;
	refused(&actors[1], -EINVAL, "max_norm is 1 in rank 1, but 0 in rank 0",
	        step_with(&actors[1], other));
	other = options;
	other.flags = ZI_STEP_NO_BIAS_CORRECTION;
	refused(&actors[1], -EINVAL, "no_bias_correction is set in rank 1",
	        step_with(&actors[1], other));
	/* Of a rank that came before others it may be changed. */
	options.lr = 0.25;
	cr_assert_eq(step_with(&actors[0], options), 0);
	cr_assert_eq(deferred_end(actors, WORLD, &options, &norm), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
	cr_assert(plain_equals(&plain, &actors[1]));
	end(WORLD);
}

Test(zero_deferred, what_the_step_began_with_is_not_changed)
{
	struct zi_step_options options = model_options(), other = options;

	begin(1, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	refused(&actors[0], -EINVAL, "step_with before step_begin", step_with(&actors[0], options));
	deferred_gradients(actors, 1, 1, &options);
	refused(&actors[0], -EINVAL, "zinf_step_with() ends it",
	        actor_call(&actors[0], zero_step, NULL));
	other.unscale = 1;
	refused(&actors[0], -EINVAL, "unscale is 1 in zinf_step_with(), but 0.5",
	        step_with(&actors[0], other));
	other = options;
	other.micro_batches = 2;
	refused(&actors[0], -EINVAL, "micro_batches is 2 in zinf_step_with(), but 1",
	        step_with(&actors[0], other));
	other = options;
	other.flags = ZI_STEP_SUM;
	refused(&actors[0], -EINVAL, "sum (2) and skip_nonfinite (4) are 2",
	        step_with(&actors[0], other));
	other.flags = ZI_STEP_UPDATE_EARLY;
	refused(&actors[0], -EINVAL, "for zinf_step_begin() only", step_with(&actors[0], other));
	other = options;
	other.lr_decay = 0.5;
	refused(&actors[0], -EINVAL, "adagrad has one", step_with(&actors[0], other));
	other = options;
	other.group_count = 2;
	refused(&actors[0], -EINVAL, "the job has 1 groups",
	        actor_call(&actors[0], zero_step_options,
	                   &(struct zero_op){ .options = other,
	                                      .groups = (struct zi_step_group[2]){ { 0 } } }));
	cr_assert_eq(step_with(&actors[0], options), 0);
	cr_assert_eq(actor_call(&actors[0], zero_step, NULL), 0, "%s", actors[0].text.chars);
	/* And of a step that is not deferred. */
	model_gradients(actors, 1, 2, &options);
	refused(&actors[0], -EINVAL, "begun with its hyperparameters",
	        step_with(&actors[0], options));
	cr_assert_eq(actor_call(&actors[0], zero_step, NULL), 0);
	end(1);
}

Test(zero_deferred, ranks_begin_alike)
{
	struct zi_step_options options = model_options();

	begin(WORLD, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(step_begin(&actors[0], deferred_options(&options)), 0);
	options.lr = 0;
	options.beta1 = options.beta2 = options.eps = options.weight_decay = 0;
	refused(&actors[1], -EINVAL, "is_deferred is not set in rank 1, but set in rank 0",
	        step_begin(&actors[1], options));
	cr_assert_eq(step_begin(&actors[1], deferred_options(&options)), 0);
	end(WORLD);
}

Test(zero_deferred, deadline_of_the_norm_names_who_has_not_handed_over)
{
	struct zi_step_options options = model_options();
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);

	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, WORLD);
	model_begin(&node, actors, WORLD,
	            &(struct attach_options){ .config = config, .timeout_ns = TURN_LIMIT_NS });
	cr_assert_eq(all_call(actors, WORLD, zero_step_begin,
	                      &(struct zero_op){ .options = deferred_options(&options) }),
	             0);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
	cr_assert_eq(actor_unit(&actors[1], zero_reduce, 2), 0);
	actors[0].rank->timeout_ns = 50 * ZI_NS_PER_MS;
	refused(&actors[0], -ETIMEDOUT, "has not handed over unit 'h.0', its last call was reduce",
	        actor_call(&actors[0], zero_grad_norm, NULL));
	cr_assert_not_null(
		strstr(actors[0].text.chars, "grad_norm timed out after 0.1 s: rank 1 "));
	end(WORLD);
}

/* All ranks have handed over; the device needs several turns of the loop for the sums. */
Test(zero_deferred, deadline_of_the_norm_says_that_sums_are_not_made)
{
	struct zi_step_options options = model_options();

	begin(1, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(step_begin(&actors[0], deferred_options(&options)), 0);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		actor_start(&actors[0], 0, zero_reduce, &(struct zero_op){ .unit = unit });
	cr_assert_gt(node_job(&node, "train")->step.reduce_count, 0);
	actors[0].rank->timeout_ns = 1;
	refused(&actors[0], -ETIMEDOUT, "gradients are still being summed",
	        actor_call(&actors[0], zero_grad_norm, NULL));
	end(1);
}

Test(zero_deferred, calls_after_the_end_of_the_step_are_refused)
{
	struct zi_step_options options = model_options();
	double norm = 0;

	begin(WORLD, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	deferred_gradients(actors, WORLD, 1, &options);
	cr_assert_eq(step_with(&actors[0], options), 0);
	actor_start(&actors[0], 1, zero_step, NULL);
	refused(&actors[0], -EALREADY, "step_with was called before",
	        step_with(&actors[0], options));
	refused(&actors[0], -EINVAL, "grad_norm after step",
	        actor_call(&actors[0], zero_grad_norm, NULL));
	cr_assert_eq(actor_call(&actors[1], zero_grad_norm, NULL), 0);
	norm = actors[1].calls[0].op.norm;
	cr_assert_eq(step_with(&actors[1], options), 0);
	cr_assert_eq(actor_call(&actors[1], zero_step, NULL), 0);
	cr_assert_eq(actor_wait(&actors[0], 1), 0);
	plain_step(&plain, 1, &options);
	cr_assert_eq(norm, plain.norm);
	cr_assert(plain_equals(&plain, &actors[0]));
	end(WORLD);
}

static int step_with_group(struct actor *actor, struct zi_step_options options, double lr)
{
	const struct zi_step_group group = { .lr = lr };

	options.group_count = 1;
	return actor_call(actor, zero_step_options,
	                  &(struct zero_op){ .options = options, .groups = &group });
}

Test(zero_deferred, groups_that_differ_are_refused)
{
	struct zi_step_options options = model_options();

	begin(WORLD, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	deferred_gradients(actors, WORLD, 1, &options);
	cr_assert_eq(step_with_group(&actors[0], options, 0.25), 0, "%s", actors[0].text.chars);
	refused(&actors[1], -EINVAL, "group 0 has lr 0.5 and weight_decay 0 in rank 1, but 0.25",
	        step_with_group(&actors[1], options, 0.5));
	refused(&actors[1], -EINVAL, "group_count of the step is 0 in rank 1, but 1 in rank 0",
	        step_with(&actors[1], options));
	cr_assert_eq(step_with_group(&actors[1], options, 0.25), 0, "%s", actors[1].text.chars);
	cr_assert_eq(all_call(actors, WORLD, zero_step, NULL), 0);
	options.lr = 0.25;
	options.weight_decay = 0;
	plain_step(&plain, 1, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	end(WORLD);
}

/* A group that broke serves no call. */
Test(zero_deferred, calls_of_a_broken_group_end_with_its_error)
{
	struct zi_step_options options = model_options();

	begin(WORLD, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(all_call(actors, WORLD, zero_step_begin,
	                      &(struct zero_op){ .options = deferred_options(&options) }),
	             0);
	actor_leave(&actors[1], false);
	refused(&actors[0], -EPIPE, "rank 1", actor_call(&actors[0], zero_grad_norm, NULL));
	refused(&actors[0], -EPIPE, "rank 1", step_with(&actors[0], options));
	refused(&actors[0], -EPIPE, "rank 1", actor_call(&actors[0], zero_step_discard, NULL));
	end(WORLD);
}

Test(zero_deferred, rank_that_dies_ends_who_waits_for_the_norm)
{
	struct zi_step_options options = model_options();

	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(all_call(actors, WORLD, zero_step_begin,
	                      &(struct zero_op){ .options = deferred_options(&options) }),
	             0);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
	actor_start(&actors[0], 0, zero_grad_norm, NULL);
	actor_leave(&actors[1], false);
	refused(&actors[0], -EPIPE, "rank 1", actor_wait(&actors[0], 0));
	end(WORLD);
}
