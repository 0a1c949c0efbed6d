/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with parameters on NVMe a read that fails ends the step with the place, whether the
 * subgroup's parameters are in the pool at that moment or not, and the committed step stays.
 * Method: all units are in the pool and are handed over before any of their state has been read, so
 * that a subgroup that begins later takes its parameters from the pool while its state is read;
 * then each read of the step fails in turn, in the order in which the disk has them and in others.
 */
#include "tests/unit/zero/pool.h"

#define READS_MAX 64u

TestSuite(zero_pool_fault, .timeout = 120);

static void restart(const char *backend)
{
	actor_leave(&actors[0], true);
	node_stop(&node);
	node.backend = backend;
	node_start(&node);
	node.zero->options.is_staging_kept = false;
	pool_attach(1, 0);
}

static void hand_over(uint64_t step, uint32_t unit)
{
	cr_assert_eq(actor_unit(&actors[0], zero_grad_acquire, unit), 0, "%s",
	             actors[0].text.chars);
	model_fill_grad(&actors[0], step, 0, unit);
	cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0, "%s", actors[0].text.chars);
}

/* Return: of the first call that failed. */
static int fill_pool(void)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		int r = actor_unit(&actors[0], zero_unshard, unit);

		if (r)
			return r;
		reshard(&actors[0], unit);
	}
	return 0;
}

/* @ret_pooled: subgroups that took their parameters from the pool while their state was read. */
static int early_step(uint64_t step, uint32_t *ret_pooled)
{
	struct zi_step_options options = model_options();
	const struct zero_job *job = node_job(&node, "train");
	int r;

	options.flags = ZI_STEP_UPDATE_EARLY;
	r = fill_pool();
	if (r)
		return r;
	node_settle(&node);
	node.is_disk_held = true;
	cr_assert_eq(
		actor_call(&actors[0], zero_step_begin, &(struct zero_op){ .options = options }), 0,
		"%s", actors[0].text.chars);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		hand_over(step, unit);
	node.is_disk_held = false;
	actor_start(&actors[0], 1, zero_step, NULL);
	while (!actors[0].calls[1].is_done) {
		for (uint32_t i = 0; i < job->item_count; i++)
			*ret_pooled +=
				job->items[i].stage == ZERO_ITEM_READING && job->items[i].is_pooled;
		node_turn(&node);
	}
	return actor_wait(&actors[0], 1);
}

/* The step with the @site-th read failing, then without. Return: whether it failed. */
static bool fail_at(uint32_t site, const char *more, uint64_t step, uint32_t *ret_pooled)
{
	struct zi_step_options options = model_options();
	char backend[96];
	int r;

	(void)snprintf(backend, sizeof(backend), "faulty:over=threads%s,EIO=read@%u", more, site);
	restart(backend);
	r = early_step(step, ret_pooled);
	if (r) {
		cr_assert_eq(r, -EIO, "read %u: %s", site, actors[0].text.chars);
		cr_assert_not_null(strstr(actors[0].text.chars, "at offset"), "%s",
		                   actors[0].text.chars);
		restart("threads");
		cr_assert_eq(early_step(step, ret_pooled), 0, "%s", actors[0].text.chars);
	}
	plain_step(&plain, step, &options);
	cr_assert(plain_equals(&plain, &actors[0]), "read %u", site);
	return r != 0;
}

static void sweep(const char *more)
{
	struct zi_step_options options = model_options();
	uint32_t pooled_count = 0;
	uint32_t site = 0;

	pool_begin(1, 272 * SLOT, 0);
	cr_assert_eq(model_step(actors, 1, 1, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
	do {
		site++;
		cr_assert_lt(site, READS_MAX);
	} while (fail_at(site, more, site + 1, &pooled_count));
	cr_assert_gt(site, 8);
	cr_assert_gt(pooled_count, 0, "no subgroup was read with its parameters in the pool");
	pool_end(1);
}

Test(zero_pool_fault, failed_read_of_state_ends_the_step_whatever_is_in_the_pool)
{
	sweep("");
}

Test(zero_pool_fault, failed_read_ends_the_step_in_whatever_order_reads_come_back)
{
	sweep(",reorder=1");
}
