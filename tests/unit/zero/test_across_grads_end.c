/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whoever goes, is late, or says what cannot be while gradients are summed over nodes is told
 * by name, and nothing is left. Method: as in test_across_grads.c.
 */
#include "daemon/zero/across/sums/grads.h"
#include "tests/unit/zero/across_grads.h"

/* Whoever goes, a rank or a worker, at any moment of a step: the group ends on all nodes, and
 * nothing is left. */
Test(across_grads_end, a_death_at_any_moment_of_a_step_leaves_nothing)
{
	each_draw(seed, 40) {
		struct run run = {
			.places = seed % 2 ? "0012" : "012",
			.dtype = ZI_DTYPE_BF16,
			.schedule = ZI_SCHEDULE_LOCAL,
			.offload = seed % 4 < 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
			.micro_batches = 1,
			.strategy = seed % 4 < 2 ? ZI_STRATEGY_DDP : ZI_STRATEGY_ZERO2,
		};
		struct zi_step_options options = model_options();

		options.max_norm = 1;
		begin_run(&run, seed);
		begin_step(&options);
		for (uint32_t unit = 0; unit < UNITS; unit++)
			for (uint32_t i = 0; i < ranks.world; i++)
				hand_over(&ranks.actors[i], 1, 0, unit);
		if (seed % 5)
			for (uint32_t i = 0; i < ranks.world; i++)
				actor_start(&ranks.actors[i], 0, zero_step, NULL);
		for (uint64_t i = 0; i < seed * seed / 4; i++)
			nodes_turn();
		if (seed % 3 == 0)
			nodes_crash(seed / 3 % 3);
		else
			actor_leave(&ranks.actors[seed % 2 ? 0 : ranks.world - 1], seed % 3 == 1);
		for (uint32_t i = 0; i < 40; i++)
			nodes_turn();
		end_run(false);
	}
}

/* Rank 0 has handed over all units, ranks of node 1 none. */
static void begin_alone(uint64_t seed)
{
	struct attach_options options = { .incarnation = "run.0",
		                          .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU) };
	struct zi_step_options step = model_options();

	options.config.schedule = ZI_SCHEDULE_SHARDED;
	step.micro_batches = 2;
	nodes_init(2, seed);
	nodes_start();
	nodes_attach(&ranks, "011", &options);
	nodes_layout(&ranks);
	cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(nodes_all(&ranks, zero_commit, NULL), 0, "%s", ranks.actors[0].text.chars);
	begin_step(&step);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		hand_over(&ranks.actors[0], 1, 0, unit);
	/* What comes before takes as long as the machine does. */
	for (uint32_t i = 0; i < ranks.world; i++)
		ranks.actors[i].rank->timeout_ns = 300 * ZI_NS_PER_MS;
}

/* Who waits for its buffer hears which node is late, with its ranks. */
Test(across_grads_end, a_node_that_does_not_hand_over_is_named)
{
	uint32_t named = 0;

	begin_alone(5);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		const char *text = ranks.actors[0].text.chars;

		cr_expect_eq(call_unit(&ranks.actors[0], zero_grad_acquire, unit), -ETIMEDOUT);
		named += strstr(text, "have not come from node 1 (ranks 1, 2") != NULL;
		cr_expect(strstr(text, "have not come from node 1 (ranks 1, 2") ||
		                  strstr(text, "not been taken by the nodes that sum them"),
		          "%s", text);
		cr_expect_not(ranks.actors[0].is_broken, "node 1 answers: the call fails alone");
	}
	cr_expect_gt(named, 0);
	end(false);
}

/* One that does not even say that it is there ends the group, with its name, on all nodes. */
Test(across_grads_end, a_node_that_is_silent_while_its_gradients_are_awaited_ends_the_group)
{
	struct zi_text text;
	uint32_t unit = 0;

	begin_alone(7);
	while (!grads_say_late(node_job(&net.nodes[0], "train"), unit, &text))
		unit = (unit + 1) % UNITS;
	nodes_hold(1, 0, true);
	cr_expect_eq(call_unit(&ranks.actors[0], zero_grad_acquire, unit), -ETIMEDOUT);
	nodes_hold(1, 0, false);
	all_hear(-ETIMEDOUT, "grad_acquire timed out after 0.3 s: node 1 (ranks 1, 2");
	all_hear(-ETIMEDOUT, ") does not report what it waits for");
	end(false);
}

/* What a node may not say, or not ask for, ends the talk. */
Test(across_grads_end, words_that_cannot_be_end_the_talk)
{
	static const struct talk_entry bad[] = {
		{ .kind = TALK_READY, .what = 1, .unit = UNITS, .micro = 1 },
		{ .kind = TALK_READY, .what = 1, .unit = 1, .micro = 2 },
		{ .kind = TALK_READY, .what = 2, .unit = 1, .subgroup = 0, .micro = 1 },
		{ .kind = TALK_READY, .what = 2, .unit = 1, .subgroup = 99, .micro = 0 },
		{ .kind = TALK_READY, .what = 9 },
		/* Ranks that have joined: another node's, nobody's; an average of none. */
		{ .kind = TALK_READY, .what = 1, .unit = 1, .micro = 1, .step = 2 },
		{ .kind = TALK_READY, .what = 1, .unit = 1, .micro = 1, .step = 4 },
		{ .kind = TALK_READY, .what = 1, .unit = 1, .micro = 1, .piece = 1 },
		{ .kind = TALK_READY, .what = 1, .unit = 1, .micro = 1, .step = 1, .piece = 2 },
		/* Groups: none, a part of one, too many. */
		{ .kind = TALK_READY, .what = 4 },
		{ .kind = TALK_READY, .what = 4, .data_bytes = 24 },
		{ .kind = TALK_READY, .what = 4, .micro = 64, .data_bytes = 16 },
		{ .kind = TALK_READY, .what = 4, .micro = UINT32_MAX, .data_bytes = 16 },
		{ .kind = TALK_PULL, .what = PULL_PARTIAL, .unit = UNITS, .bytes = 4096 },
		{ .kind = TALK_PULL, .what = PULL_PARTIAL, .unit = 1, .bytes = 4096 },
		{ .kind = TALK_PULL, .what = PULL_SUM, .unit = UNITS, .bytes = 4096 },
		{ .kind = TALK_PULL, .what = PULL_SUM, .unit = 1, .subgroup = 99, .bytes = 4096 },
		{ .kind = TALK_PULL, .what = PULL_SUM, .unit = 1, .bytes = 4096 },
		{ .kind = TALK_PULL, .what = PULL_NORM, .micro = 2, .bytes = 16 },
		{ .kind = TALK_PULL, .what = PULL_NORM, .micro = 1, .piece = 7, .bytes = 16 },
		{ .kind = TALK_PULL, .what = PULL_NORM, .micro = 1, .bytes = 3 },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		made(2, i + 1, "01");
		nodes_say(0, 1, bad[i]);
		all_hear(-EPROTO, bad[i].kind == TALK_PULL ? "node 0 asks for" : "cannot be");
		end(false);
	}
}

/* A partial that is asked for has to be the asker's, whole, and not asked for before. */
Test(across_grads_end, partials_of_nobody_are_refused)
{
	struct run run = { .places = "01",
		           .dtype = ZI_DTYPE_BF16,
		           .micro_batches = 1,
		           .offload = ZI_OFFLOAD_CPU };
	static const struct talk_entry bad[] = {
		{ .unit = 1, .micro = 2, .bytes = 8192 },
		{ .unit = 1, .micro = 1, .subgroup = 99, .bytes = 8192 },
		{ .unit = 1, .micro = 1, .subgroup = 0, .step = 7, .bytes = 8192 },
		{ .unit = 1, .micro = 1, .subgroup = 0, .step = -1, .bytes = 8192 },
		{ .unit = 1, .micro = 1, .subgroup = 0, .piece = 9, .bytes = 8192 },
		{ .unit = 1, .micro = 1, .subgroup = 0, .step = 1, .bytes = 8192 },
		{ .unit = 1, .micro = 1, .subgroup = 1, .step = 1, .bytes = 8192 },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		struct zi_step_options options = model_options();
		struct talk_entry entry = bad[i];

		begin_run(&run, i + 1);
		begin_step(&options);
		nodes_hold(0, 1, true);
		hand_over(&ranks.actors[1], 1, 0, 1);
		nodes_hold(0, 1, false);
		entry.kind = TALK_PULL;
		entry.what = PULL_PARTIAL;
		nodes_say(0, 1, entry);
		all_hear(-EPROTO, "node 0 asks for");
		end_run(false);
	}
}

/* Nobody waits for its sum, nor for its blocks of the norm. */
Test(across_grads_end, a_unit_that_is_frozen_whole_is_not_summed)
{
	struct attach_options attach = { .incarnation = "run.0",
		                         .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU) };
	struct zi_step_options options = model_options();
	double norms[2];

	options.flags = ZI_STEP_WANT_NORM;
	nodes_init(2, 17);
	nodes_start();
	nodes_attach(&ranks, "0101", &attach);
	for (uint32_t i = 0; i < ranks.world; i++)
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			struct zi_layout_entry entry = { .kind = ZI_LAYOUT_PARAM,
				                         .dim_count = 1,
				                         .group = unit == 1 ? ZI_LAYOUT_FROZEN : 0,
				                         .shape = { model_elements[unit] } };

			(void)snprintf(entry.name, sizeof(entry.name), "u%u", unit);
			layout_unit(&ranks.actors[i], entry.name);
			cr_assert_eq(zero_layout_add(ranks.actors[i].rank, &entry,
			                             &ranks.actors[i].text),
			             0);
		}
	cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(nodes_all(&ranks, zero_commit, NULL), 0);
	for (uint32_t step = 1; step <= 2; step++) {
		begin_step(&options);
		for (uint32_t i = 0; i < ranks.world; i++) {
			cr_assert_eq(call_unit(&ranks.actors[i], zero_grad_acquire, 1), -EPERM);
			hand_over(&ranks.actors[i], 1, 0, 2);
			hand_over(&ranks.actors[i], 1, 0, 0);
		}
		cr_assert_eq(nodes_all(&ranks, zero_step, NULL), 0, "%s",
		             ranks.actors[0].text.chars);
		norms[step - 1] = ranks.actors[0].calls[0].op.stats.norm;
		cr_assert_eq(ranks.actors[1].calls[0].op.stats.norm, norms[step - 1]);
	}
	cr_assert_eq(norms[0], norms[1], "the same gradients");
	for (uint32_t i = 0; i < ranks.world; i++)
		cr_assert_eq(call_unit(&ranks.actors[i], zero_unshard, 1), 0);
	cr_assert_gt(norms[0], 0);
	end(true);
}
