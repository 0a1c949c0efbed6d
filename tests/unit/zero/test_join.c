/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks with fewer batches than others shadow the steps that are left, before or after these
 * begin, and the results are those of zeros in their place, divided by all or by those with data;
 * their blobs stay; all go on when all have joined; and one that dies, waits too long or says
 * something else than the others is told of. Method: three ranks with 5, 3 and 4 batches beside the
 * plain computation, in all schedules and places; what libclient does of a join done by hand.
 */
#include "tests/unit/zero/world.h"

#define WORLD 3u

static const uint32_t batches[WORLD] = { 5, 3, 4 };

static struct zi_step_options joined_options(bool divides_by_live)
{
	return (struct zi_step_options){ .unscale = 1,
		                         .micro_batches = 1,
		                         .flags = ZI_STEP_JOINED |
		                                  (divides_by_live ? ZI_STEP_DIVIDES_BY_LIVE : 0) };
}

static void start_join(struct actor *actor, bool divides_by_live)
{
	actor_start(actor, 0, zero_step_begin,
	            &(struct zero_op){ .options = joined_options(divides_by_live) });
}

static void zero_grad(struct actor *actor, uint32_t unit)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)actor->rank->job->config.grad_dtype);

	memset(unit_of(actor, actor->memory.grad, unit), 0, model_elements[unit] * width);
}

static void hand_over(struct actor *actor, uint64_t step, uint32_t micro, bool is_live)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		cr_assert_eq(actor_unit(actor, zero_grad_acquire, unit), 0, "%s",
		             actor->text.chars);
		if (is_live)
			model_fill_grad(actor, step, micro, unit);
		else
			zero_grad(actor, unit);
		cr_assert_eq(actor_unit(actor, zero_reduce, unit), 0, "%s", actor->text.chars);
	}
}

static bool is_live(uint32_t rank, uint64_t step)
{
	return step <= batches[rank];
}

/* @is_late: those that join do so when the step has begun. */
static void begin_step(uint64_t step, const struct zi_step_options *options, bool divides_by_live,
                       bool is_late)
{
	for (uint32_t pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < WORLD; i++) {
			if (is_live(i, step) && pass == !is_late)
				actor_start(&actors[i], 0, zero_step_begin,
				            &(struct zero_op){ .options = *options });
			else if (!is_live(i, step) && pass == is_late)
				start_join(&actors[i], divides_by_live);
		}
	for (uint32_t i = 0; i < WORLD; i++) {
		cr_assert_eq(actor_wait(&actors[i], 0), 0, "%s", actors[i].text.chars);
		cr_assert_eq(actors[i].calls[0].op.micro_batches,
		             is_live(i, step) ? 0 : options->micro_batches);
	}
}

static void end_step(uint64_t step)
{
	char blob[16];

	(void)snprintf(blob, sizeof(blob), "step %llu", (unsigned long long)step);
	for (uint32_t i = 0; i < WORLD; i++)
		actor_start(
			&actors[i], 0, zero_step,
			&(struct zero_op){ .blob = blob, .blob_bytes = is_live(i, step) ? 6 : 0 });
	for (uint32_t i = 0; i < WORLD; i++)
		cr_assert_eq(actor_wait(&actors[i], 0), 0, "%s", actors[i].text.chars);
}

static void one_step(uint64_t step, const struct zi_step_options *options, bool divides_by_live,
                     bool is_late)
{
	begin_step(step, options, divides_by_live, is_late);
	for (uint32_t micro = 0; micro < options->micro_batches; micro++)
		for (uint32_t i = 0; i < WORLD; i++)
			hand_over(&actors[i], step, micro, is_live(i, step));
	end_step(step);
	plain.joined = 0;
	plain.divides_by_live = divides_by_live;
	for (uint32_t i = 0; i < WORLD; i++)
		plain.joined |= is_live(i, step) ? 0 : 1ull << i;
	plain_step(&plain, step, options);
	cr_assert(plain_equals(&plain, &actors[step % WORLD]), "step %llu",
	          (unsigned long long)step);
}

static void expect_all_joined(bool divides_by_live)
{
	for (uint32_t i = 0; i < WORLD; i++) {
		for (uint32_t k = 0; k < i; k++)
			cr_assert_not(actors[k].calls[0].is_done, "rank %u has data", i);
		start_join(&actors[i], divides_by_live);
	}
	for (uint32_t i = 0; i < WORLD; i++) {
		cr_assert_eq(actor_wait(&actors[i], 0), 0, "%s", actors[i].text.chars);
		cr_assert_eq(actors[i].calls[0].op.micro_batches, 0);
	}
}

static void train(const struct zi_job_config *config, const struct zi_step_options *options,
                  bool divides_by_live)
{
	uint64_t bytes = 0;

	begin_with(WORLD, config);
	for (uint64_t step = 1; step <= 5; step++)
		one_step(step, options, divides_by_live, step % 2);
	expect_all_joined(divides_by_live);
	cr_expect_eq(memcmp(zero_blob(actors[0].rank, &bytes), "step 5", 6), 0);
	cr_expect_eq(memcmp(zero_blob(actors[1].rank, &bytes), "step 3", 6), 0);
	cr_expect_eq(memcmp(zero_blob(actors[2].rank, &bytes), "step 4", 6), 0);
	end(WORLD);
}

static void train_everywhere(bool divides_by_live)
{
	static const uint32_t places[] = { ZI_OFFLOAD_NONE, ZI_OFFLOAD_NVME };

	for (uint32_t place = 0; place < ZI_COUNT_OF(places); place++)
		for (uint32_t schedule = ZI_SCHEDULE_LOCAL; schedule <= ZI_SCHEDULE_SHARDED;
		     schedule++) {
			struct zi_job_config config = model_config(ZI_DTYPE_BF16, places[place]);
			struct zi_step_options options = model_options();

			config.schedule = schedule;
			options.flags = ZI_STEP_UPDATE_EARLY;
			if (schedule == ZI_SCHEDULE_SHARDED)
				options.micro_batches = 2;
			else if (place)
				options.max_norm = 0.5;
			train(&config, &options, divides_by_live);
		}
}

Test(zero_join, ranks_without_data_count_in_the_average)
{
	train_everywhere(false);
}

Test(zero_join, ranks_without_data_are_left_out_of_it)
{
	train_everywhere(true);
}

/* Of a set in which one has data left he alone is counted; the other set is as ever. */
Test(zero_join, averages_are_each_sets_own)
{
	static const struct model_set sets[UNITS] = { { "both", 6 }, { "one", 1 }, { "both", 6 } };
	struct zi_step_options options = model_options();

	model_sets = sets;
	begin(WORLD, ZI_OFFLOAD_NONE, ZI_SCHEDULE_LOCAL);
	start_join(&actors[1], true);
	cr_assert_eq(step_begin(&actors[0], options), 0);
	cr_assert_eq(step_begin(&actors[2], options), 0);
	cr_assert_eq(actor_wait(&actors[1], 0), 0);
	cr_expect_eq(node_job(&node, "train")->sets[0].factor, 1.0f);
	cr_expect_eq(node_job(&node, "train")->sets[1].factor, 1.0f);
	end(WORLD);
}

Test(zero_join, sums_are_not_divided)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_SUM;
	begin(WORLD, ZI_OFFLOAD_NONE, ZI_SCHEDULE_LOCAL);
	one_step(4, &options, true, false);
	end(WORLD);
}

Test(zero_join, ranks_must_agree_about_the_average)
{
	struct zi_step_options options = model_options();

	begin(WORLD, ZI_OFFLOAD_NONE, ZI_SCHEDULE_LOCAL);
	start_join(&actors[1], true);
	start_join(&actors[2], false);
	cr_assert_eq(step_begin(&actors[0], options), 0);
	cr_assert_eq(actor_wait(&actors[1], 0), 0);
	refused(&actors[2], -EINVAL, "divides_by_live is false in rank 2, but true in rank 1",
	        actor_wait(&actors[2], 0));
	start_join(&actors[1], true);
	refused(&actors[1], -EALREADY, "rank 1 began this step before", actor_wait(&actors[1], 0));
	end(WORLD);
}

Test(zero_join, a_join_that_waits_too_long_names_those_with_data)
{
	begin(WORLD, ZI_OFFLOAD_NONE, ZI_SCHEDULE_LOCAL);
	actor_start(&actors[1], 0, zero_step_begin,
	            &(struct zero_op){ .options = joined_options(false),
	                               .timeout_ns = 10 * ZI_NS_PER_MS });
	refused(&actors[1], -ETIMEDOUT, "ranks 0, 2 have not joined, and none of them has begun",
	        actor_wait(&actors[1], 0));
	end(WORLD);
}

Test(zero_join, one_that_dies_breaks_the_group)
{
	struct zi_step_options options = model_options();

	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	start_join(&actors[1], false);
	cr_assert_eq(step_begin(&actors[0], options), 0);
	cr_assert_eq(actor_wait(&actors[1], 0), 0);
	actor_leave(&actors[1], false);
	node_settle(&node);
	cr_assert(actors[0].is_broken);
	cr_assert_eq(actors[0].broken_culprit, 1);
	end(WORLD);
}

Test(zero_join, a_daemon_that_stops_lets_go_of_them)
{
	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	node.zero->is_stopping = true;
	start_join(&actors[1], false);
	refused(&actors[1], -ESTALE, "the daemon is stopping", actor_wait(&actors[1], 0));
	node.zero->is_stopping = false;
	end(WORLD);
}
