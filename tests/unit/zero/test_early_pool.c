/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with parameters on NVMe a unit holds its room in the pool for an early update only while it
 * is computed, so that the unit that backward uses next need not wait for the disk; what of an
 * update had not begun then is made of what the store has; what became ready last is updated first.
 * Method: a disk whose answers are held back, and whole steps beside the plain computation.
 */
#include "daemon/zero/step/queue.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/pool.h"

TestSuite(zero_early_pool, .timeout = 120);

static struct zi_step_options early_options(void)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_UPDATE_EARLY;
	return options;
}

static void hand_over(uint64_t step, uint32_t unit)
{
	cr_assert_eq(actor_unit(&actors[0], zero_grad_acquire, unit), 0, "%s",
	             actors[0].text.chars);
	model_fill_grad(&actors[0], step, 0, unit);
	cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0, "%s", actors[0].text.chars);
}

static void step_begin(void)
{
	struct zi_step_options options = early_options();

	cr_assert_eq(
		actor_call(&actors[0], zero_step_begin, &(struct zero_op){ .options = options }), 0,
		"%s", actors[0].text.chars);
}

/* Return: bytes that the step read. */
static uint64_t finish(uint64_t step)
{
	struct zi_step_options options = early_options();
	uint64_t read_bytes;

	cr_assert_eq(actor_call(&actors[0], zero_step, NULL), 0, "%s", actors[0].text.chars);
	read_bytes = actors[0].calls[0].op.stats.read_bytes;
	plain_step(&plain, step, &options);
	cr_assert(plain_equals(&plain, &actors[0]), "step %llu", (unsigned long long)step);
	return read_bytes;
}

/* A pool for embed and h.0; the third unit needs room of one of them. */
Test(zero_early_pool, room_goes_on_before_the_disk_has_what_was_updated_in_it)
{
	pool_begin(1, 262 * SLOT, 0);
	unshard(&actors[0], H0);
	reshard(&actors[0], H0);
	cr_assert(pool_has(H0));
	step_begin();
	node_settle(&node);
	/* There is no state to read in the first step: from here on writes do not end. */
	node.is_disk_held = true;
	hand_over(1, H0);
	while (node_job(&node, "train")->units[H0].update_count)
		node_turn(&node);
	cr_assert_gt(node_job(&node, "train")->units[H0].write_count, 0);
	cr_assert_eq(node_job(&node, "train")->units[H0].pooled_count, 0);
	actor_start(&actors[0], 1, zero_unshard, &(struct zero_op){ .unit = HEAD });
	cr_assert_eq(pool_of()->units[HEAD].presence, ZERO_LOADING, "it has its room");
	cr_assert_eq(pool_of()->units[H0].presence, ZERO_ABSENT);
	node.is_disk_held = false;
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	reshard(&actors[0], HEAD);
	hand_over(1, HEAD);
	hand_over(1, EMBED);
	finish(1);
	pool_end(1);
}

/* Its update waits for the disk, so that nothing of it has begun when its room is asked for. */
Test(zero_early_pool, unit_that_left_before_its_update_is_updated_from_the_store)
{
	struct zi_step_options options = early_options();

	pool_begin(1, 262 * SLOT, 0);
	node.zero->options.is_staging_kept = false;
	cr_assert_eq(model_step(actors, 1, 1, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
	unshard(&actors[0], H0);
	reshard(&actors[0], H0);
	node_settle(&node);
	node.is_disk_held = true;
	step_begin();
	hand_over(2, H0);
	cr_assert(pool_has(H0), "nothing of it has been read");
	actor_start(&actors[0], 1, zero_unshard, &(struct zero_op){ .unit = HEAD });
	cr_assert_eq(pool_of()->units[HEAD].presence, ZERO_LOADING, "it has its room");
	node.is_disk_held = false;
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	reshard(&actors[0], HEAD);
	hand_over(2, HEAD);
	hand_over(2, EMBED);
	cr_assert_geq(finish(2), (4096 + 532480 + 20480) * 10 + 532480 * 2, "h.0's as well");
	pool_end(1);
}

static uint32_t next_unit(void)
{
	bool is_ready = false;
	const struct zero_subgroup *subgroup = queue_peek(node_job(&node, "train"), &is_ready);

	cr_assert_not_null(subgroup);
	cr_assert(is_ready);
	return subgroup->unit;
}

Test(zero_early_pool, what_became_ready_last_is_updated_first)
{
	struct zi_step_options options = early_options();

	/* Three slots, which are read into for the head and two of h.0. */
	pool_begin(1, 272 * SLOT, 0);
	node.zero->options.is_staging_kept = false;
	for (uint64_t step = 1; step <= 2; step++) {
		cr_assert_eq(model_step(actors, 1, step, &options), 0, "%s", actors[0].text.chars);
		plain_step(&plain, step, &options);
	}
	node_settle(&node);
	node.is_disk_held = true;
	step_begin();
	hand_over(3, EMBED);
	hand_over(3, H0);
	cr_assert_eq(next_unit(), H0);
	node.is_disk_held = false;
	hand_over(3, HEAD);
	finish(3);
	pool_end(1);
}

/* Whatever is in the pool, or goes from it, when units become ready. */
static void train(uint64_t budget_bytes)
{
	pool_begin(1, budget_bytes, 0);
	for (uint64_t step = 1; step <= 6; step++) {
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			unshard(&actors[0], unit);
			reshard(&actors[0], unit);
		}
		step_begin();
		for (uint32_t k = 0; k < UNITS; k++) {
			uint32_t unit = (uint32_t)((2 * UNITS - 1 - k + step / 4) % UNITS);

			unshard(&actors[0], unit);
			hand_over(step, unit);
			reshard(&actors[0], unit);
			for (uint64_t turn = 0; turn < step; turn++)
				node_turn(&node);
		}
		finish(step);
	}
	pool_end(1);
}

Test(zero_early_pool, parameters_are_the_same_whatever_left_the_pool_meanwhile)
{
	train(260 * SLOT);
	train(262 * SLOT);
	train(270 * SLOT);
	train(272 * SLOT);
}
