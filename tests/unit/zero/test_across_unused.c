/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what no rank of any node has a gradient of in a step is left alone by it, and what some
 * have, wherever they are, is not: the bits, and the number that is told, of the same ranks on one
 * node. Whoever goes while nodes ask each other costs the step, and what cannot be ends the group.
 * Method: as in test_across_train.c, each run twice, with parameters that drawn ranks leave out
 * (leave_out()), some of them more than one round can tell of.
 */
#include "tests/unit/zero/across_steps.h"

static void train_twice(const struct train *train, uint64_t seed)
{
	train_model(train, seed);
	train_on(train, train->run.places, seed + 1000, false);
}

/* Strategies, schedules, where state lies; what is clipped, grouped, of replicas. */
Test(across_unused, nodes_make_the_bits_of_one, .timeout = 600)
{
	static const char *const places[] = { "01", "001", "0111", "0011", "0120", "00012" };
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO1, ZI_STRATEGY_DDP,
		                               ZI_STRATEGY_ZERO2, ZI_STRATEGY_ZERO3 };
	static const uint32_t offloads[] = { ZI_OFFLOAD_CPU, ZI_OFFLOAD_NVME, ZI_OFFLOAD_NONE };
	static const uint32_t cuts[] = { 0, 40, 1600, 0, 300 };
	uint32_t unused_count = 0;

	each_draw(seed, 24) {
		bool is_sharded = seed % 3 == 0;
		bool stores = seed % 5 < 2; /* Parameters too, by each strategy. */
		struct train train = {
			.run = { .places = places[seed % ZI_COUNT_OF(places)],
			         .dtype = seed % 2 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32,
			         .reduce_dtype = seed % 7 == 4 ? ZI_DTYPE_F32 : 0,
			         .finds_unused = true,
			         .schedule = is_sharded ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL,
			         .micro_batches = is_sharded ? 2 : 1,
			         .offload = stores ? ZI_OFFLOAD_NVME : offloads[seed % 7 % 3],
			         .offload_param = stores ? ZI_OFFLOAD_NVME : 0,
			         .strategy = strategies[seed / 2 % 4] },
			.optimizer = ZI_OPTIMIZER_ADAMW,
			.max_norm = seed % 4 ? 0 : 0.5,
			.cut_count = cuts[seed % ZI_COUNT_OF(cuts)],
			.group_count = !cuts[seed % ZI_COUNT_OF(cuts)] ? 2 : 0,
			.commit_interval = seed % 6 == 5 ? 2 : 0,
		};

		if (!strcmp(train.run.places, "0011") && train.run.strategy != ZI_STRATEGY_DDP)
			train.run.shard_size = 2;
		train_twice(&train, seed);
		for (uint32_t step = 1; step <= STEPS; step++)
			unused_count += seen[step].unused_count;
	}
	cr_expect_gt(unused_count, draw_share(500));
}

/* Of a set of some ranks, and of one that is of a node alone, all nodes count alike. */
Test(across_unused, sets_of_some_ranks, .timeout = 600)
{
	static const struct model_set sets[UNITS] = { { "some", 0x2a },
		                                      { "all", 0x3f },
		                                      { "near", 0x03 } };

	for (uint64_t seed = 1; seed <= 3; seed++) {
		struct train train = {
			.run = { .places = seed % 2 ? "001122" : "002121",
			         .dtype = ZI_DTYPE_BF16,
			         .finds_unused = true,
			         .schedule = ZI_SCHEDULE_LOCAL,
			         .micro_batches = 1,
			         .offload = seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
			         .strategy = seed / 2 % 2 ? ZI_STRATEGY_ZERO1 : ZI_STRATEGY_DDP,
			         .sets = sets },
			.optimizer = ZI_OPTIMIZER_ADAMW,
			.cut_count = 90,
		};

		train_twice(&train, seed);
	}
}

static const struct train lost = { .run = { .places = "0012",
	                                    .dtype = ZI_DTYPE_BF16,
	                                    .finds_unused = true,
	                                    .schedule = ZI_SCHEDULE_LOCAL,
	                                    .micro_batches = 1,
	                                    .offload = ZI_OFFLOAD_NVME,
	                                    .strategy = ZI_STRATEGY_ZERO1 },
	                           .optimizer = ZI_OPTIMIZER_ADAMW,
	                           .cut_count = 1600 };

/* The group ends on all nodes, and the next start makes the same steps. */
Test(across_unused, a_death_at_any_moment_costs_a_step_at_most, .timeout = 600)
{
	train_model(&lost, 1);
	each_draw(seed, 24) {
		const char *places = lost.run.places;
		int64_t step;

		begin_train(&lost, places, seed);
		train_steps(&lost, 1, 1, false, places);
		begin_one(&lost, 2);
		for (uint32_t i = 0; i < ranks.world; i++)
			actor_start(&ranks.actors[i], 0, zero_step, NULL);
		for (uint64_t i = 0; i < seed * seed; i++)
			nodes_turn();
		if (seed % 3 == 0)
			nodes_crash(seed / 3 % 3);
		else
			actor_leave(&ranks.actors[seed % 2 ? 0 : ranks.world - 1], false);
		for (uint64_t i = 0; i < 40; i++)
			nodes_turn();
		nodes_leave(&ranks, false);
		nodes_settle();
		cr_assert_eq(attach_train(&lost, places, "run.1"), 0, "%s",
		             ranks.actors[0].text.chars);
		step = ranks.actors[0].memory.committed_step;
		cr_assert(step == 1 || step == 2);
		look((uint64_t)step, false, places);
		train_steps(&lost, (uint64_t)step + 1, 3, false, places);
		end_run(true);
	}
}

/* The vote of node 0 that is on its way to node 1. */
static struct talk_entry *find_vote(void)
{
	struct net_worker *worker = net.workers;

	while (worker->place != 1)
		worker = worker->next;
	for (uint32_t i = worker->from[0].taken; i != worker->from[0].put; i++) {
		struct net_event *event = &worker->from[0].events[i % NET_EVENTS_MAX];

		if (event->what == NET_EVENT_ENTRY && event->entry.kind == TALK_ROUND &&
		    event->entry.what == ROUND_USED)
			return &event->entry;
	}
	return NULL;
}

/* What is said of another step, of other parameters, or of some that there are not; half of it; an
 * error. */
Test(across_unused, words_that_cannot_be_end_the_group)
{
	struct words {
		uint64_t step;
		uint32_t first, reserved;
		uint64_t words[22];
	};
	static const struct words bad[] = {
		{ .step = 2 },
		{ .step = 1, .first = 1 },
		{ .step = 1, .reserved = 1 },
		{ .step = 1, .words = { 1ull << 43 } },
		{ .step = 1, .words = { [1] = 1 } },
		{ .step = 1 },
		{ .step = 1 },
	};
	struct train train = lost;

	train.run.places = "01";
	train.run.offload = ZI_OFFLOAD_CPU;
	train.cut_count = 40; /* 43 in all. */
	for (uint32_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);
		struct talk_entry *vote;

		begin_train(&train, "01", i + 1);
		begin_one(&train, 1);
		nodes_settle();
		nodes_hold(0, 1, true);
		for (uint32_t rank = 0; rank < 2; rank++)
			actor_start(&ranks.actors[rank], 0, zero_step, NULL);
		for (vote = find_vote(); !vote; vote = find_vote()) {
			nodes_turn();
			cr_assert_lt(zi_clock_now_ns(), deadline_ns, "node 0 does not vote");
		}
		memcpy(vote->data, &bad[i], sizeof(bad[i]));
		vote->data_bytes = i == 5 ? sizeof(bad[i]) / 2 : sizeof(bad[i]);
		vote->error = i == 6 ? -EIO : 0;
		nodes_hold(0, 1, false);
		all_hear(-EPROTO, "of parameters from 0 on");
		end_run(false);
	}
}
