/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a step on state in memory alone is made by all nodes or by none, whoever is lost when: what
 * a node cannot know it keeps, until it hears whether another one has made the step. Method: nodes
 * as in test_across_train.c; workers end, ranks die, links are silent around the moment at which
 * all have said that they can; then each node is asked what it has, as nodes will ask each other,
 * and training goes on with the bits of a run that nobody disturbed.
 */
#include "daemon/zero/step/doubt.h"
#include "tests/unit/zero/across_steps.h"

static struct zero_job *job_of(uint32_t place)
{
	return node_job(&net.nodes[place], "train");
}

static bool is_any_asked(void)
{
	for (uint32_t i = 0; i < net.count; i++)
		if (job_of(i)->step.is_asked)
			return true;
	return false;
}

static uint32_t settled_count;

/* Of all runs: nodes in doubt, those that made the step late, and steps that were made. */
static uint32_t doubt_count, late_count, made_count;

static void settled(struct zero_job *job, int error, const struct zi_text *text)
{
	cr_assert_eq(error, 0, "%s", text->chars);
	settled_count++;
	job_settle(job);
}

/* What nodes find when they ask each other; @is_by_hand: and do then. Return: the step of all. */
static int64_t settle(int64_t former, bool is_by_hand)
{
	bool is_made = false;

	for (uint32_t i = 0; i < net.count; i++)
		is_made |= job_of(i)->committed_step == former + 1;
	for (uint32_t i = 0; i < net.count; i++) {
		struct zero_job *job = job_of(i);
		struct doubt_name name;

		cr_assert_eq(job->current_step, job->committed_step);
		if (!step_doubt(job, &name)) {
			cr_assert(job->committed_step == former + is_made, "node %u is at %lld", i,
			          (long long)job->committed_step);
			continue;
		}
		doubt_count++;
		late_count += is_made;
		cr_assert_eq(job->committed_step, former);
		cr_assert_eq(name.step, former + 1);
		if (!is_by_hand)
			continue; /* It will be asked for. */
		settled_count = 0;
		step_doubt_settle(job, is_made, settled);
		nodes_settle();
		cr_assert_eq(settled_count, 1);
		cr_assert_not(step_doubt(job, &name));
		cr_assert_eq(job->committed_step, former + is_made);
		cr_assert_null(job->sums);
	}
	for (uint32_t i = 1; i < net.count && is_by_hand; i++) {
		cr_assert_eq(job_of(i)->committed.number, job_of(0)->committed.number);
		cr_assert_eq(job_of(i)->update_count, job_of(0)->update_count);
		cr_assert_eq(
			memcmp(&job_of(i)->scale, &job_of(0)->scale, sizeof(struct zero_scale)), 0);
	}
	made_count += is_made;
	return former + is_made;
}

/* Somebody is lost about when all have said that they can make the step. */
static void disturb(uint64_t seed)
{
	uint32_t place = net_draw(net.count), other = (place + 1) % net.count;

	for (uint32_t i = 0; i < ranks.world; i++)
		actor_start(&ranks.actors[i], 0, zero_step, NULL);
	for (uint32_t turns = 0; turns < 20000 && !is_any_asked(); turns++)
		nodes_turn();
	if (seed % 4)
		nodes_hold(place, other, true); /* It will not hear of that one's. */
	for (uint32_t turns = seed % 5 ? net_draw(24) : 400; turns > 0; turns--)
		nodes_turn();
	if (seed % 3 == 0)
		for (uint32_t i = 0; i < ranks.world; i++) {
			if (ranks.places[i] == place)
				actor_leave(&ranks.actors[i], false);
		}
	else if (seed % 3 == 1)
		nodes_crash(place);
	else
		actor_leave(&ranks.actors[net_draw(ranks.world)], false);
	for (uint32_t turns = net_draw(40); turns > 0; turns--)
		nodes_turn();
	nodes_hold(place, other, false);
	nodes_leave(&ranks, false);
	nodes_settle();
}

static void lose(const struct train *train, uint64_t seed)
{
	const char *places = train->run.places;
	int64_t step = (int64_t)(seed % 2), now;

	begin_train(train, places, seed);
	train_steps(train, 1, (uint64_t)step, false, places);
	begin_one(train, (uint64_t)step + 1);
	disturb(seed);
	if (seed % 8 == 7) {
		end_run(true); /* A daemon that ends gives all of it back. */
		return;
	}
	now = settle(step, seed / 2 % 2);
	cr_assert_eq(attach_train(train, places, "run.1"), 0, "%s", ranks.actors[0].text.chars);
	for (uint32_t i = 0; i < net.count; i++)
		cr_assert_eq(job_of(i)->committed_step, now);
	look((uint64_t)now, false, places);
	train_steps(train, (uint64_t)now + 1, (uint64_t)step + 2, false, places);
	end_run(true);
}

Test(across_doubt, a_step_is_made_by_all_or_by_none, .timeout = 600)
{
	static const char *const places[] = { "012", "0012", "0120", "01", "012", "001", "011" };
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO1, ZI_STRATEGY_DDP,
		                               ZI_STRATEGY_ZERO2, ZI_STRATEGY_ZERO1,
		                               ZI_STRATEGY_ZERO3, ZI_STRATEGY_DDP,
		                               ZI_STRATEGY_ZERO1 };
	/* In the last two sums have a type of their own: f32, in the accumulator; bf16. */
	static const uint32_t dtypes[] = { ZI_DTYPE_BF16, ZI_DTYPE_F16, ZI_DTYPE_BF16, ZI_DTYPE_F16,
		                           ZI_DTYPE_BF16, ZI_DTYPE_F16, ZI_DTYPE_F32 };
	static const uint32_t reduce[] = { 0, 0, 0, 0, 0, ZI_DTYPE_F32, ZI_DTYPE_BF16 };
	uint32_t count = 0;

	for (uint32_t kind = 0; kind < ZI_COUNT_OF(places); kind++) {
		struct train train = {
			.run = { .places = places[kind],
			         .dtype = dtypes[kind],
			         .reduce_dtype = reduce[kind],
			         .finds_unused = kind == 0 || kind == 6,
			         .schedule = kind == 2 ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL,
			         .micro_batches = kind == 2 ? 2 : 1,
			         .offload = kind % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NONE,
			         .strategy = strategies[kind],
			         .budget_bytes = kind == 2 ? 4 * MIB : 0 },
			.optimizer = ZI_OPTIMIZER_ADAMW,
			.scaler_kind = kind % 2 ? ZI_SCALER_TORCH : 0,
			.max_norm = kind == 3 ? 0 : 1,
			.group_count = kind == 0 ? 2 : 0,
			.cut_count = kind == 6 ? 20 : 0,
			.poisoned = kind == 1 ? 2 : 0,
		};

		train_model(&train, 1);
		each_draw(seed, 12) {
			lose(&train, seed + 100 * kind);
			count++;
		}
	}
	/* All of what may be has been. */
	cr_expect_gt(doubt_count, draw_share(4));
	cr_expect_gt(late_count, draw_share(2));
	cr_expect_gt(made_count, draw_share(4));
	cr_expect_lt(made_count, count - draw_share(4));
}

/* What no node has made is dropped by all when ranks come again. */
Test(across_doubt, what_no_node_has_made_is_dropped)
{
	struct train train = { .run = { .places = "01",
		                        .dtype = ZI_DTYPE_BF16,
		                        .schedule = ZI_SCHEDULE_LOCAL,
		                        .micro_batches = 1,
		                        .offload = ZI_OFFLOAD_CPU,
		                        .strategy = ZI_STRATEGY_ZERO1 },
		               .optimizer = ZI_OPTIMIZER_ADAMW };
	struct doubt_name name;
	uint32_t count = 0;

	train_model(&train, 1);
	for (uint64_t seed = 1; seed <= 8; seed++) {
		begin_train(&train, "01", seed);
		begin_one(&train, 1);
		for (uint32_t i = 0; i < ranks.world; i++)
			actor_start(&ranks.actors[i], 0, zero_step, NULL);
		while (!is_any_asked() && !job_of(0)->committed_step && !job_of(1)->committed_step)
			nodes_turn();
		nodes_hold(0, 1, true);
		nodes_hold(1, 0, true);
		nodes_leave(&ranks, false);
		nodes_hold(0, 1, false);
		nodes_hold(1, 0, false);
		nodes_settle();
		if (!job_of(0)->committed_step && !job_of(1)->committed_step) {
			count += step_doubt(job_of(0), &name) || step_doubt(job_of(1), &name);
			cr_assert_eq(attach_train(&train, "01", "run.1"), 0, "%s",
			             ranks.actors[0].text.chars);
			cr_expect_not(step_doubt(job_of(0), &name));
			cr_expect_not(step_doubt(job_of(1), &name));
			train_steps(&train, 1, 2, false, "01");
		}
		end_run(true);
	}
	cr_expect_gt(count, 0);
}
