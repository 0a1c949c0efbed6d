/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: of parameters that other nodes update nothing is given, or taken, but what may be; and
 * whoever goes while they are on their way leaves nothing. Method: as in test_across_grads.c, with
 * words that no node would say.
 */
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/bytes/params_private.h"
#include "tests/unit/zero/across_grads.h"

static void begin_zero1(uint64_t seed, const char *places, uint32_t offload)
{
	struct run run = { .places = places,
		           .dtype = ZI_DTYPE_BF16,
		           .schedule = ZI_SCHEDULE_LOCAL,
		           .micro_batches = 1,
		           .offload = offload,
		           .strategy = ZI_STRATEGY_ZERO1 };

	begin_run(&run, seed);
}

static struct zero_job *job_of(uint32_t place)
{
	return node_job(&net.nodes[place], "train");
}

/* Of unit 1, the first subgroup that node 1 holds, or does not. */
static uint32_t subgroup_at(bool is_held)
{
	const struct zero_job *job = job_of(1);
	uint32_t first = job->units[1].subgroup_first, i = 0;

	while (job->subgroups[first + i].is_here != is_held)
		i++;
	return i;
}

Test(across_params, words_that_cannot_be_end_the_talk)
{
	static const struct {
		bool is_held, is_whole; /* its subgroup; its bytes are right */
		struct talk_entry entry;
	} bad[] = {
		{ true, true, { .kind = TALK_PULL, .unit = UNITS, .micro = 1 } },
		{ true, true, { .kind = TALK_PULL, .unit = UINT32_MAX, .micro = 1 } },
		{ true, true, { .kind = TALK_PULL, .unit = 1, .subgroup = 77, .micro = 1 } },
		{ true, true, { .kind = TALK_PULL, .unit = 1, .subgroup = 1u << 31, .micro = 1 } },
		{ true, true, { .kind = TALK_PULL, .unit = 1 } },
		{ true, true, { .kind = TALK_PULL, .unit = 1, .micro = 3 } },
		{ true, true, { .kind = TALK_PULL, .unit = 1, .micro = UINT32_MAX } },
		{ true, true, { .kind = TALK_PULL, .unit = 1, .micro = 1, .piece = 9 } },
		{ true, true, { .kind = TALK_PULL, .unit = 1, .micro = 1, .piece = UINT32_MAX } },
		{ true, false, { .kind = TALK_PULL, .unit = 1, .micro = 1, .bytes = 4096 } },
		{ true, false, { .kind = TALK_PULL, .unit = 1, .micro = 1, .bytes = 1ull << 40 } },
		{ true, false, { .kind = TALK_PULL, .unit = 1, .micro = 1 } },
		{ false, true, { .kind = TALK_PULL, .unit = 1, .micro = 1 } },
		{ false, true, { .kind = TALK_READY, .unit = UNITS, .micro = 2 } },
		{ false, true, { .kind = TALK_READY, .unit = 1, .subgroup = 77, .micro = 2 } },
		{ false, true, { .kind = TALK_READY, .unit = 1, .micro = 1 } },
		{ false, true, { .kind = TALK_READY, .unit = 1, .micro = 3 } },
		{ false, true, { .kind = TALK_READY, .unit = 1 } },
		{ true, true, { .kind = TALK_READY, .unit = 1, .micro = 2 } },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		struct talk_entry entry = bad[i].entry;
		bool is_pull = entry.kind == TALK_PULL;

		begin_zero1(i + 1, "01", ZI_OFFLOAD_CPU);
		entry.what = (uint8_t)(is_pull ? PULL_PARAM : PARAMS_READY);
		if (!entry.subgroup)
			entry.subgroup = subgroup_at(bad[i].is_held);
		if (bad[i].is_whole)
			entry.bytes = 2 * ZI_SUBGROUP_ELEMENTS;
		nodes_say(0, 1, entry);
		all_hear(-EPROTO, is_pull ? "node 0 asks for" : "can be pulled: it cannot be");
		end_run(false);
	}
}

/* One that can be said once, said twice. */
Test(across_params, what_is_ready_is_ready_once)
{
	struct talk_entry entry = {
		.kind = TALK_READY, .what = PARAMS_READY, .unit = 1, .micro = 2
	};

	begin_zero1(1, "01", ZI_OFFLOAD_CPU);
	entry.subgroup = subgroup_at(false);
	nodes_say(0, 1, entry);
	nodes_say(0, 1, entry);
	all_hear(-EPROTO, "can be pulled: it cannot be");
	end_run(false);
}

/* The first piece of it, as node 0 pulls it from node 1. */
static struct pull pull_of(uint32_t unit, uint32_t subgroup, uint32_t number)
{
	const struct zero_job *job = job_of(1);
	const struct zero_subgroup *pulled =
		&job->subgroups[job->units[unit].subgroup_first + subgroup];

	return (struct pull){ .job = job_of(0),
		              .node = 1,
		              .what = PULL_PARAM,
		              .unit = unit,
		              .subgroup = subgroup,
		              .number = number,
		              .bytes = ZI_MIN(job_of(0)->across->slot_bytes,
		                              job_subgroup_param_bytes(job, pulled)) };
}

static void pull_came(struct pull *pull)
{
	cr_assert_eq(pull->error, 0, "%s", pull->text.chars);
	*(bool *)pull->owner = true;
}

/* What is asked for before its time is given when it is there. */
Test(across_params, who_asks_before_the_time_waits)
{
	struct zi_step_options options = model_options();
	bool has_come = false;
	struct pull pull;
	uint32_t subgroup;

	begin_zero1(1, "01", ZI_OFFLOAD_CPU);
	subgroup = subgroup_at(true);
	pull = pull_of(1, subgroup, params_number(job_of(0), 1) + 1);
	pull.done = pull_came;
	pull.owner = &has_come;
	pull_start(&pull);
	for (uint32_t i = 0; i < 256; i++)
		nodes_turn();
	cr_expect_not(has_come);
	cr_assert_eq(make_step(1, &options), 0, "%s", ranks.actors[0].text.chars);
	while (!has_come)
		nodes_turn();
	subgroup += job_of(1)->units[1].subgroup_first;
	cr_expect_eq(memcmp(pull.memory,
	                    job_subgroup_param(job_of(1), &job_of(1)->subgroups[subgroup]),
	                    pull.bytes),
	             0);
	pull_release(&pull);
	end_run(true);
}

/* It waits for a place until its source has agreed to something newer: it may not be served. */
Test(across_params, values_that_were_replaced_are_not_given)
{
	struct talk_entry entry = { .kind = TALK_PULL, .what = PULL_PARAM, .unit = 1, .micro = 2 };
	struct across *across;

	begin_zero1(1, "01", ZI_OFFLOAD_CPU);
	across = job_of(1)->across;
	entry.subgroup = subgroup_at(true);
	entry.bytes = pull_of(1, entry.subgroup, 2).bytes;
	nodes_say(0, 1, entry);
	while (!across->peers[0].pull_count)
		nodes_turn();
	across->params->numbers[1] = 3;
	serve_more(across);
	all_hear(-EPROTO, "that it has agreed to replace");
	end_run(false);
}

/* Whoever goes, at any moment of a step or of materialize: all hear of it, nothing is left. */
Test(across_params, a_death_at_any_moment_leaves_nothing, .timeout = 600)
{
	each_draw(seed, 40) {
		struct zi_step_options options = model_options();

		begin_zero1(seed, seed % 2 ? "0012" : "012",
		            seed % 4 < 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME);
		options.max_norm = seed % 3;
		begin_step(&options);
		hand_over_all(1, 0);
		for (uint32_t i = 0; i < ranks.world; i++) {
			actor_start(&ranks.actors[i], 0, zero_step, NULL);
			actor_start(&ranks.actors[i], 1, zero_unshard,
			            &(struct zero_op){ .unit = 1 });
		}
		for (uint64_t i = net_draw(2) ? net_draw(400) : net_draw(40); i > 0; i--)
			nodes_turn();
		if (seed % 3 == 0)
			nodes_crash(seed / 3 % 3);
		else
			actor_leave(&ranks.actors[seed % 2 ? 0 : ranks.world - 1], seed % 3 == 1);
		for (uint32_t i = 0; i < ranks.world; i++)
			for (uint32_t slot = 0; slot < 2 && ranks.actors[i].rank; slot++)
				(void)nodes_wait(&ranks.actors[i], slot);
		end_run(false);
	}
}
