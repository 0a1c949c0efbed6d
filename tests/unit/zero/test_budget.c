/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what jobs write is counted over restarts, and held against budgets when a step begins.
 * Method: a node whose clock the test sets; budgets that a few steps use up.
 */
#include "tests/unit/zero/world.h"

#define DAY_MS (24ull * 3600 * 1000)

static void set_up(struct tier_budget store_budget, struct tier_budget uid_budget)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	node_init(&node);
	node.store_budget = store_budget;
	node.uid_budget = uid_budget;
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	model_write(actors, 1);
}

static void step(uint64_t number)
{
	struct zi_step_options options = model_options();

	cr_assert_eq(model_step(actors, 1, number, &options), 0, "%s", actors[0].text.chars);
}

static struct zero_job *the_job(void)
{
	return actors[0].rank->job;
}

Test(zero_budget, refuses_with_figures_until_midnight)
{
	set_up((struct tier_budget){ MIB, TIER_BUDGET_REFUSE }, (struct tier_budget){ 0 });
	/* The parameters that were written have used it up already. */
	refused(&actors[0], -EDQUOT, "store 't'", step_begin(&actors[0], model_options()));
	cr_assert_not_null(strstr(actors[0].text.chars, "of 1 MiB a day"));
	node.now_ms += DAY_MS;
	step(1);
	refused(&actors[0], -EDQUOT, "no step until then", step_begin(&actors[0], model_options()));
	node.now_ms += DAY_MS;
	/* Now it is known that one step alone is too much. */
	refused(&actors[0], -EDQUOT, "by this step", step_begin(&actors[0], model_options()));
	end(1);
}

Test(zero_budget, warns_and_goes_on)
{
	set_up((struct tier_budget){ 0 }, (struct tier_budget){ MIB, TIER_BUDGET_WARN });
	step(1);
	step(2);
	cr_assert_eq(node.told_count, 1);
	cr_assert_not_null(strstr(node.told.chars, "uid 0"), "%s", node.told.chars);
	end(1);
}

Test(zero_budget, slows_without_holding_anybody_up)
{
	struct zi_step_options options = model_options();
	uint64_t huge = 1ull << 50;

	set_up((struct tier_budget){ huge, TIER_BUDGET_SLOW }, (struct tier_budget){ 0 });
	step(1);
	node.nvme.members[0].tally.write_bytes += huge; /* As if. */
	step(2);
	node.nvme.members[0].tally.paced_until_ms = node.now_ms + 5;
	actor_start(&actors[0], 0, zero_step_begin, &(struct zero_op){ .options = options });
	/* The loop's timer comes, and comes again, while the clock stands still. */
	for (uint32_t i = 0; i < 50; i++)
		node_turn(&node);
	cr_assert(!actors[0].calls[0].is_done);
	cr_assert(the_job()->is_paced);
	node.now_ms += 5;
	cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	cr_assert(!the_job()->is_paced);
	end(1);
}

Test(zero_budget, that_is_slower_than_the_timeout_says_so)
{
	uint64_t huge = 1ull << 50;

	set_up((struct tier_budget){ huge, TIER_BUDGET_SLOW }, (struct tier_budget){ 0 });
	step(1);
	node.nvme.members[0].tally.write_bytes += huge;
	node.nvme.members[0].tally.paced_until_ms = node.now_ms + 3600000;
	actors[0].rank->timeout_ns = 1;
	refused(&actors[0], -ETIMEDOUT, "write budget", step_begin(&actors[0], model_options()));
	end(1);
}

Test(zero_budget, counts_are_kept_over_a_restart_and_go_with_the_job)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	uint64_t job_bytes, store_bytes;

	set_up((struct tier_budget){ 0 }, (struct tier_budget){ 0 });
	step(1);
	step(2);
	job_bytes = the_job()->tally.write_bytes;
	store_bytes = node.nvme.members[0].tally.write_bytes;
	cr_assert_gt(job_bytes, 2 * the_job()->last_stats.write_bytes);
	cr_assert_eq(store_bytes, job_bytes);
	cr_assert_eq(the_job()->tally.parent->write_bytes, job_bytes);
	actor_leave(&actors[0], true);
	node_settle(&node);
	node_stop(&node);

	node_start(&node);
	cr_assert_eq(node.nvme.members[0].tally.write_bytes, store_bytes);
	cr_assert_eq(tier_tally_day_bytes(&node.nvme.members[0].tally), store_bytes);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(the_job()->tally.write_bytes, job_bytes);
	cr_assert_eq(the_job()->tally.parent->write_bytes, job_bytes);
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0);
	actors[0].rank = NULL;
	node_settle(&node);
	node_stop(&node);

	node_start(&node);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(the_job()->tally.write_bytes, 0);
	cr_assert_eq(node.nvme.members[0].tally.write_bytes, store_bytes);
	end(1);
}
