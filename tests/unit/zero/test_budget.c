/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what jobs write is counted over restarts, and held against budgets when a step begins.
 * Method: a node whose clock the test sets; budgets that a few steps use up.
 */
#include "daemon/tier/drain.h"
#include "daemon/zero/step/step.h"
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
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
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
	set_up((struct tier_budget){ 4 * MIB, TIER_BUDGET_REFUSE }, (struct tier_budget){ 0 });
	/* A day that has nothing in it yet: one step alone is too much, also the very first. */
	node.now_ms += DAY_MS;
	refused(&actors[0], -EDQUOT, "store 't'", step_begin(&actors[0], model_options()));
	cr_assert_not_null(strstr(actors[0].text.chars, "0 B written today and 6.4 MiB by this"),
	                   "%s", actors[0].text.chars);
	cr_assert_not_null(strstr(actors[0].text.chars, "of 4 MiB a day"));
	node.nvme.members[0].tally.budget.day_bytes = 8 * MIB;
	step(1);
	refused(&actors[0], -EDQUOT, "no step until then", step_begin(&actors[0], model_options()));
	cr_assert_eq(tier_member_used_bytes(&node.nvme.members[0]),
	             the_job()->nvme_charge.bytes / 2, "nothing stays reserved");
	node.now_ms += DAY_MS;
	step(2);
	end(1);
}

/* What is asked for is what is then written, step by step. */
static void check_due(uint32_t interval, uint64_t resident_bytes, uint64_t step_count)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct tier_tally *tally;

	config.commit_interval = interval;
	config.resident_bytes = resident_bytes;
	node_init(&node);
	/* SLOW tells the price: with a budget of a byte, beyond it from the start, B bytes are B
	 * days. */
	node.store_budget = (struct tier_budget){ 1, TIER_BUDGET_SLOW };
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	tally = &node.nvme.members[0].tally;
	for (uint64_t i = 1; i <= step_count; i++) {
		uint64_t before_bytes = tally->write_bytes, due_ms;

		tally->paced_until_ms = 0;
		step(i);
		due_ms = tally->paced_until_ms ? tally->paced_until_ms - node.now_ms : 0;
		cr_assert_eq(due_ms, (tally->write_bytes - before_bytes) * DAY_MS,
		             "step %llu of interval %u", (unsigned long long)i, interval);
	}
	end(1);
}

Test(zero_budget, asks_for_what_the_step_will_write)
{
	check_due(1, 0, 3);
	check_due(1, 2 * MIB, 3);
	check_due(3, 0, 7);
	check_due(3, 2 * MIB, 7);
}

Test(zero_budget, each_path_is_asked_for_its_part)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	uint64_t before_bytes[2], sum = 0;

	node_init(&node);
	node.store_count = 2;
	node.store_budget = (struct tier_budget){ 1ull << 40, TIER_BUDGET_REFUSE };
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	for (uint32_t i = 0; i < 2; i++)
		before_bytes[i] = node.nvme.members[i].tally.write_bytes;
	step(1);
	for (uint32_t i = 0; i < 2; i++) {
		struct tier_tally *tally = &node.nvme.members[i].tally;

		sum += tally->write_bytes - before_bytes[i];
		cr_assert_gt(tally->write_bytes, before_bytes[i]);
	}
	/* Room for more than any part, and less than the whole, on both. */
	node.now_ms += DAY_MS;
	for (uint32_t i = 0; i < 2; i++)
		node.nvme.members[i].tally.budget.day_bytes = sum - 1;
	step(2);
	/* One that has no room at all says so by its name; drained, it is not asked. */
	node.nvme.members[1].tally.budget.day_bytes = 1;
	node.nvme.members[0].tally.budget.day_bytes = 1ull << 40;
	refused(&actors[0], -EDQUOT, "store 't1'", step_begin(&actors[0], model_options()));
	cr_assert_eq(tier_member_drain(&node.nvme.members[1], true, &actors[0].text), 0);
	step(3);
	end(1);
}

Test(zero_budget, step_over_midnight_counts_to_both_days)
{
	struct zi_step_options options = model_options();
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);
	struct tier_tally *tallies[3];
	uint64_t day;

	node_init(&node);
	node.now_ms += DAY_MS - 2;
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	step(1);
	tallies[0] = &node.nvme.members[0].tally;
	tallies[1] = &the_job()->account->tally;
	tallies[2] = tallies[1]->parent;
	day = tallies[0]->day;
	cr_assert_gt(tier_tally_day_bytes(tallies[0]), 0);
	/* Begun before midnight, written after it. The loop's timer sees to it. */
	model_gradients(actors, 1, 2, &options);
	node.now_ms += 2;
	while (tallies[0]->day == day) {
		node_turn(&node);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "no day begins");
	}
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert_eq(tallies[i]->day, day + 1);
		cr_assert_eq(tier_tally_day_bytes(tallies[i]), 0);
	}
	cr_assert_eq(all_call(actors, 1, zero_step, &(struct zero_op){ .blob_bytes = 0 }), 0, "%s",
	             actors[0].text.chars);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(tier_tally_day_bytes(tallies[i]), the_job()->last_stats.write_bytes);
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
	job_bytes = the_job()->account->tally.write_bytes;
	store_bytes = node.nvme.members[0].tally.write_bytes;
	cr_assert_gt(job_bytes, 2 * the_job()->last_stats.write_bytes);
	cr_assert_eq(store_bytes, job_bytes);
	cr_assert_eq(the_job()->account->tally.parent->write_bytes, job_bytes);
	actor_leave(&actors[0], true);
	node_settle(&node);
	node_stop(&node);

	node_start(&node);
	cr_assert_eq(node.nvme.members[0].tally.write_bytes, store_bytes);
	cr_assert_eq(tier_tally_day_bytes(&node.nvme.members[0].tally), store_bytes);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(the_job()->account->tally.write_bytes, job_bytes);
	cr_assert_eq(the_job()->account->tally.parent->write_bytes, job_bytes);
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0);
	actors[0].rank = NULL;
	node_settle(&node);
	node_stop(&node);

	node_start(&node);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(the_job()->account->tally.write_bytes, 0);
	cr_assert_eq(node.nvme.members[0].tally.write_bytes, store_bytes);
	end(1);
}
