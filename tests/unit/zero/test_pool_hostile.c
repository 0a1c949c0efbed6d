/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a rank does with the units of a pool costs at most its own group: another job trains
 * on, bit by bit, and the others of the group hear in time, in words, who is in their way, and go
 * on when it is gone. Method: a job of two ranks, of which the second one is hostile, and one of a
 * neighbour with a pool of its own on the same store.
 */
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/pool.h"

TestSuite(zero_pool_hostile, .timeout = 120);

static struct actor *const good = &actors[0];
static struct actor *const bad = &actors[1];
static struct actor *const neighbour = &actors[3];
static struct plain neighbour_plain;
static uint64_t neighbour_step;

static void begin(uint64_t budget_bytes)
{
	struct attach_options options = { .job = "neighbour" };

	node_init(&node);
	node.store_bytes = 48 * MIB;
	node_start(&node);
	config = pool_config(272 * SLOT);
	options.config = config;
	plain_init(&neighbour_plain, &config, 1);
	model_begin(&node, neighbour, 1, &options);
	config = pool_config(budget_bytes);
	plain_init(&plain, &config, 2);
	pool_attach(2, 0);
	model_write(actors, 2);
}

/* The neighbour trains, and is where it should be. */
static void expect_unharmed(void)
{
	struct zi_step_options options = model_options();

	neighbour_step++;
	cr_assert_eq(model_step(neighbour, 1, neighbour_step, &options), 0, "%s",
	             neighbour->text.chars);
	plain_step(&neighbour_plain, neighbour_step, &options);
	cr_assert(plain_equals(&neighbour_plain, neighbour));
}

/* Both ranks train as if nothing had been. @step: the next one. */
static void expect_trains(uint64_t step)
{
	struct zi_step_options options = model_options();

	cr_assert_eq(model_step(actors, 2, step, &options), 0, "%s", good->text.chars);
	plain_step(&plain, step, &options);
	cr_assert(plain_equals(&plain, good));
}

static void end(void)
{
	expect_unharmed();
	actors_leave(actors, 2, true);
	actor_leave(neighbour, true);
	plain_deinit(&neighbour_plain);
	plain_deinit(&plain);
	node_deinit(&node);
}

/* The hostile rank dies; the other one hears of it, and both come again. */
static void come_back(void)
{
	actor_leave(bad, false);
	node_settle(&node);
	cr_assert_eq(good->broken_error, -EPIPE);
	cr_assert_eq(good->broken_culprit, 1);
	actor_leave(good, true);
	node_settle(&node);
	pool_attach(2, 0);
}

Test(zero_pool_hostile, flood_of_reshards_is_refused_one_by_one)
{
	begin(260 * SLOT);
	unshard(good, EMBED);
	for (uint32_t i = 0; i < 3000; i++) {
		actor_start(bad, 0, zero_reshard, &(struct zero_op){ .unit = i % UNITS });
		cr_assert(bad->calls[0].is_done);
		cr_assert_eq(bad->calls[0].op.result, -EINVAL);
	}
	cr_assert_eq(pool_of()->units[EMBED].pinned_mask, 1, "nobody else's pin is given back");
	cr_assert(pool_has(EMBED));
	reshard(good, EMBED);
	expect_trains(1);
	end();
}

/* Any call at any time, several of them waiting, for units that are there or are not. */
Test(zero_pool_hostile, calls_at_random_cost_nobody_anything)
{
	static const call_fn functions[] = { zero_unshard,      zero_reshard,
		                             zero_prefetch,     zero_param_write_begin,
		                             zero_grad_acquire, zero_reduce };
	uint64_t seed = 20261121;

	begin(262 * SLOT);
	for (uint32_t i = 0; i < 4000; i++) {
		struct call *call = &bad->calls[i % CALLS_MAX];
		uint64_t bits = test_noise(seed + i);

		if (!i || call->is_done || !call->op.done)
			actor_start(
				bad, i % CALLS_MAX, functions[bits % ZI_COUNT_OF(functions)],
				&(struct zero_op){ .unit = (uint32_t)(bits >> 32) % (UNITS + 1) });
		if (i % 16 == 0)
			node_turn(&node);
		if (i % 1000 == 0)
			expect_unharmed();
	}
	node_settle(&node);
	cr_assert_gt(pool_of()->hit_count, 0);
	cr_assert_gt(pool_of()->miss_count, 0);
	come_back();
	cr_assert(plain_equals(&plain, good));
	expect_trains(1);
	end();
}

Test(zero_pool_hostile, pins_that_are_never_given_back_are_named_and_gone_with_their_rank)
{
	struct zi_step_options options = model_options();

	begin(260 * SLOT);
	unshard(bad, HEAD);
	good->rank->timeout_ns = 50 * ZI_NS_PER_MS;
	expect_refused(good, -ETIMEDOUT, "param_budget_bytes", actor_unit(good, zero_unshard, H0));
	good->rank->timeout_ns = TURN_LIMIT_NS;
	expect_unharmed();
	/* Its own step is refused, so that the other's names it. */
	model_gradients(actors, 2, 1, &options);
	expect_refused(bad, -EBUSY, "units still unsharded: 'head'",
	               actor_call(bad, zero_step, NULL));
	good->rank->timeout_ns = 50 * ZI_NS_PER_MS;
	expect_refused(good, -ETIMEDOUT, "rank 1", actor_call(good, zero_step, NULL));
	expect_unharmed();
	come_back();
	cr_assert(plain_equals(&plain, good), "nothing of the step remains");
	expect_trains(1);
	end();
}

/* More than the pool holds: what it pins itself is in its way, and it is told; who waits behind it
 * goes on when it gives something back. */
Test(zero_pool_hostile, all_units_at_once_are_refused_to_who_wants_them)
{
	begin(260 * SLOT);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		actor_start(bad, unit, zero_unshard, &(struct zero_op){ .unit = unit });
	node_settle(&node);
	expect_unharmed();
	cr_assert_eq(actor_wait(bad, EMBED), 0, "%s", bad->text.chars);
	expect_refused(bad, -ENOSPC, "reshard first", actor_wait(bad, H0));
	cr_assert_eq(actor_wait(bad, HEAD), 0, "%s", bad->text.chars);
	actor_start(good, 0, zero_unshard, &(struct zero_op){ .unit = H0 });
	node_settle(&node);
	cr_assert_not(good->calls[0].is_done);
	reshard(bad, EMBED);
	reshard(bad, HEAD);
	cr_assert_eq(actor_wait(good, 0), 0, "%s", good->text.chars);
	reshard(good, H0);
	expect_trains(1);
	end();
}

static void write_head(int error)
{
	const struct zero_op head = { .unit = HEAD };

	for (uint32_t i = 0; i < 2; i++)
		actor_start(&actors[i], 1, zero_param_write_end, &head);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(actor_wait(&actors[i], 1), error, "%s", actors[i].text.chars);
		if (error)
			cr_assert_not_null(
				strstr(actors[i].text.chars, "rank 1 has unit 'head' unsharded"),
				"%s", actors[i].text.chars);
	}
}

Test(zero_pool_hostile, unit_that_another_rank_pins_is_not_replaced)
{
	begin(272 * SLOT);
	unshard(bad, HEAD);
	cr_assert_eq(actor_unit(good, zero_param_write_begin, HEAD), 0, "%s", good->text.chars);
	fill(zero_param_staging(good->rank)->region.base, 7000, model_elements[HEAD],
	     config.param_dtype);
	write_head(-EBUSY);
	expect_unharmed();
	reshard(bad, HEAD);
	write_head(0);
	fill(plain.param[HEAD], 7000, model_elements[HEAD], config.param_dtype);
	cr_assert(plain_equals(&plain, good));
	end();
}

/* It opens a unit for writing, and never ends that: the others are told who holds them up. */
Test(zero_pool_hostile, unit_left_open_for_writing_is_named_and_gone_with_its_rank)
{
	struct zi_step_options options = model_options();

	begin(272 * SLOT);
	cr_assert_eq(actor_unit(bad, zero_param_write_begin, HEAD), 0, "%s", bad->text.chars);
	for (uint32_t i = 0; i < 1000; i++) {
		actor_start(bad, 0, zero_param_write_begin, &(struct zero_op){ .unit = i % UNITS });
		cr_assert_eq(bad->calls[0].op.result, -EBUSY, "one at a time");
	}
	expect_refused(good, -EBUSY, "rank 1 has unit 'head' open for writing",
	               actor_call(good, zero_step_begin, &(struct zero_op){ .options = options }));
	expect_refused(good, -EBUSY, "rank 1 has unit 'head' open for writing",
	               actor_call(good, zero_commit, NULL));
	expect_unharmed();
	come_back();
	cr_assert(plain_equals(&plain, good));
	expect_trains(1);
	end();
}
