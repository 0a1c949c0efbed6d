/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks of several nodes that have fewer batches than others shadow the steps that are left,
 * also where a whole node has none, to the bits of the same ranks on one node, and all go on when
 * all have joined; who waits too long, dies, or says what cannot be is told of. Method: as in
 * test_across_train.c, each run twice; ranks have drawn numbers of batches, and come in drawn
 * orders.
 */
#include "daemon/zero/across/across_private.h"
#include "tests/unit/zero/across_steps.h"

#define LAST (STEPS - 1) /* All have data in the one behind it. */

static uint32_t batches[8]; /* of each rank: 0 … LAST */

static bool is_live(uint32_t rank, uint64_t step)
{
	return step <= batches[rank] || step == STEPS;
}

static struct zi_step_options joined_options(bool divides_by_live)
{
	return (struct zi_step_options){ .unscale = 1,
		                         .micro_batches = 1,
		                         .flags = ZI_STEP_JOINED |
		                                  (divides_by_live ? ZI_STEP_DIVIDES_BY_LIVE : 0) };
}

static void start_join(uint32_t rank, bool divides_by_live, uint64_t timeout_ns)
{
	actor_start(&ranks.actors[rank], 0, zero_step_begin,
	            &(struct zero_op){ .options = joined_options(divides_by_live),
	                               .timeout_ns = timeout_ns });
}

static struct zi_step_options options_of(const struct train *train)
{
	struct zi_step_options options = model_options();

	options.micro_batches = train->run.micro_batches;
	options.max_norm = train->max_norm;
	options.group_count = train->group_count;
	return options;
}

static void start_begin(const struct train *train, uint32_t rank)
{
	actor_start(&ranks.actors[rank], 0, zero_step_begin,
	            &(struct zero_op){ .options = options_of(train), .groups = groups });
}

static void draw_turns(uint32_t most)
{
	for (uint32_t turns = net_draw(most); turns > 0; turns--)
		nodes_turn();
}

/* All that can happen does; nodes that wait for others are not at rest. */
static void go_on(void)
{
	for (uint32_t turns = 0; turns < 600; turns++)
		nodes_turn();
}

/* A unit's gradient of a rank, which is zeros where it has no data. */
static void give(uint32_t rank, uint64_t step, uint32_t micro, uint32_t unit)
{
	struct actor *actor = &ranks.actors[rank];
	const struct zero_job *job = actor->rank->job;
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);

	if (is_live(rank, step)) {
		hand_over(actor, step, micro, unit);
		return;
	}
	cr_assert_eq(call_unit(actor, zero_grad_acquire, unit), 0, "%s", actor->text.chars);
	memset(grad_at(job, rank, unit, 0), 0, model_elements[unit] * width);
	cr_assert_eq(call_unit(actor, zero_reduce, unit), 0, "%s", actor->text.chars);
}

static void begin_uneven(const struct train *train, uint64_t step, bool divides_by_live)
{
	uint32_t first = net_draw(ranks.world);

	for (uint32_t i = 0; i < ranks.world; i++) {
		uint32_t rank = (first + i) % ranks.world;

		if (is_live(rank, step))
			start_begin(train, rank);
		else
			start_join(rank, divides_by_live, 0);
		draw_turns(20);
	}
	for (uint32_t i = 0; i < ranks.world; i++) {
		cr_assert_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s", ranks.actors[i].text.chars);
		cr_assert_eq(ranks.actors[i].calls[0].op.micro_batches,
		             is_live(i, step) ? 0 : train->run.micro_batches);
	}
	for (uint32_t micro = 0; micro < train->run.micro_batches; micro++)
		for (uint32_t unit = UNITS; unit-- > 0;)
			for (uint32_t i = 0; i < ranks.world; i++)
				give((first + i) % ranks.world, step, micro, unit);
}

static void join_all(bool divides_by_live)
{
	for (uint32_t i = 0; i < ranks.world; i++) {
		for (uint32_t k = 0; k < i; k++)
			cr_assert_not(ranks.actors[k].calls[0].is_done, "rank %u has data", i);
		start_join(i, divides_by_live, 0);
		draw_turns(20);
	}
	for (uint32_t i = 0; i < ranks.world; i++) {
		cr_assert_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s", ranks.actors[i].text.chars);
		cr_assert_eq(ranks.actors[i].calls[0].op.micro_batches, 0);
	}
}

static void run_on(const struct train *train, const char *places, uint64_t seed, bool is_model,
                   bool divides_by_live)
{
	begin_train(train, places, seed);
	look(0, is_model, places);
	for (uint64_t step = 1; step <= STEPS; step++) {
		if (step == STEPS)
			join_all(divides_by_live);
		begin_uneven(train, step, divides_by_live);
		end_step(step, is_model);
		look(step, is_model, places);
	}
	end_run(true);
}

static void draw_batches(uint32_t world, uint64_t seed)
{
	for (uint32_t i = 0; i < world; i++)
		batches[i] = (uint32_t)(test_noise(seed * 64 + i) % LAST);
	batches[seed % world] = LAST;
}

/* Strategies, schedules, groups, where state lies; whose average it is. */
Test(across_join, nodes_make_the_bits_of_one, .timeout = 600)
{
	static const char *const places[] = { "01", "001", "0111", "0011", "012", "0120" };
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO1, ZI_STRATEGY_DDP,
		                               ZI_STRATEGY_ZERO2, ZI_STRATEGY_ZERO3 };
	static const uint32_t offloads[] = { ZI_OFFLOAD_CPU, ZI_OFFLOAD_NVME, ZI_OFFLOAD_NONE };

	each_draw(seed, 18) {
		const char *where = places[seed % ZI_COUNT_OF(places)];
		bool is_sharded = seed % 3 == 0;
		bool stores = seed % 5 < 2; /* Parameters too, by each strategy. */
		struct train train = {
			.run = { .dtype = seed % 2 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32,
			         .reduce_dtype = seed % 7 == 4 ? ZI_DTYPE_BF16 : 0,
			         .schedule = is_sharded ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL,
			         .micro_batches = is_sharded ? 2 : 1,
			         .offload = stores ? ZI_OFFLOAD_NVME : offloads[seed % 7 % 3],
			         .offload_param = stores ? ZI_OFFLOAD_NVME : 0,
			         .strategy = strategies[seed / 2 % 4] },
			.optimizer = ZI_OPTIMIZER_ADAMW,
			.max_norm = seed % 4 ? 0 : 0.5,
			.group_count = seed % 5 < 2 ? 2 : 0,
			.commit_interval = seed % 6 == 5 ? 2 : 0,
		};
		char here[9] = "";

		memset(here, '0', strlen(where));
		draw_batches((uint32_t)strlen(where), seed);
		run_on(&train, here, seed, true, seed / 3 % 2);
		run_on(&train, where, seed + 1000, false, seed / 3 % 2);
	}
}

/* Zeros of ranks without data go to the stores as all sums do. */
Test(across_join, sums_on_the_stores, .timeout = 600)
{
	static const char *const places[] = { "0011", "01", "000111" };

	model_elements[0] = 300000;
	model_elements[1] = 280000;
	model_elements[2] = 270000;
	model_is_flat = true;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		const char *where = places[seed % ZI_COUNT_OF(places)];
		struct train train = {
			.run = { .dtype = ZI_DTYPE_BF16,
			         .micro_batches = 1,
			         .offload = ZI_OFFLOAD_NVME,
			         .strategy = seed % 2 ? ZI_STRATEGY_ZERO2 : ZI_STRATEGY_ZERO3,
			         .shard_size = strlen(where) == 6 ? 2 : 0,
			         .budget_bytes = 640 << 10 },
			.optimizer = ZI_OPTIMIZER_ADAMW,
			.max_norm = seed % 2,
		};
		char here[9] = "";

		memset(here, '0', strlen(where));
		draw_batches((uint32_t)strlen(where), seed);
		run_on(&train, here, seed, true, seed / 2 % 2);
		run_on(&train, where, seed + 1000, false, seed / 2 % 2);
	}
}

static const struct train plainly = { .run = { .dtype = ZI_DTYPE_BF16,
	                                       .schedule = ZI_SCHEDULE_LOCAL,
	                                       .micro_batches = 1,
	                                       .offload = ZI_OFFLOAD_CPU,
	                                       .strategy = ZI_STRATEGY_ZERO1 },
	                              .optimizer = ZI_OPTIMIZER_ADAMW,
	                              .group_count = 2 };

/* Whoever dies while one node has data and another one none: all hear of it, and go on anew. */
Test(across_join, a_death_at_any_moment_ends_it_for_all, .timeout = 600)
{
	each_draw(seed, 24) {
		int64_t step;

		memset(batches, 0, sizeof(batches));
		batches[0] = LAST;
		begin_train(&plainly, "012", seed);
		for (uint32_t i = 0; i < 3; i++) {
			if (i)
				start_join(i, true, 0);
			else
				start_begin(&plainly, 0);
			draw_turns((uint32_t)seed);
		}
		if (seed % 3 == 0)
			nodes_crash(seed / 3 % 3);
		else
			actor_leave(&ranks.actors[seed % 2 ? 0 : 2], false);
		draw_turns(40);
		nodes_leave(&ranks, false);
		nodes_settle();
		cr_assert_eq(attach_train(&plainly, "012", "run.1"), 0, "%s",
		             ranks.actors[0].text.chars);
		step = ranks.actors[0].memory.committed_step;
		cr_assert_eq(step, 0);
		begin_uneven(&plainly, 1, true);
		cr_assert_eq(nodes_all(&ranks, zero_step, NULL), 0, "%s",
		             ranks.actors[0].text.chars);
		end_run(true);
	}
}

/* Gradients of step 1, and its end. */
static void make_first(void)
{
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s", ranks.actors[i].text.chars);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t i = 0; i < 2; i++)
			give(i, 1, 0, unit);
	cr_assert_eq(nodes_all(&ranks, zero_step, NULL), 0, "%s", ranks.actors[0].text.chars);
}

/* Who waits too long hears which node is late, and goes on where it stood: into the next step, to
 * the end that the others have come to, or with data. */
Test(across_join, who_gives_up_may_come_again)
{
	for (uint32_t way = 0; way < 3; way++) {
		batches[0] = way != 1;
		batches[1] = way == 2;
		begin_train(&plainly, "01", way + 1);
		start_join(1, true, 20 * ZI_NS_PER_MS);
		cr_assert_eq(nodes_wait(&ranks.actors[1], 0), -ETIMEDOUT);
		cr_expect_not_null(
			strstr(ranks.actors[1].text.chars, "has neither begun a step nor joined"),
			"%s", ranks.actors[1].text.chars);
		if (way == 0) {
			start_begin(&plainly, 0);
			go_on(); /* It has begun on node 1 as well, without its rank. */
			start_join(1, true, 0);
		} else if (way == 1) {
			start_join(0, true, 0);
			cr_assert_eq(nodes_wait(&ranks.actors[0], 0), 0);
			cr_expect_eq(ranks.actors[0].calls[0].op.micro_batches, 0);
			go_on();
			start_join(1, true, 0);
			cr_assert_eq(nodes_wait(&ranks.actors[1], 0), 0);
			cr_expect_eq(ranks.actors[1].calls[0].op.micro_batches, 0);
			batches[0] = batches[1] = 1;
			start_begin(&plainly, 1);
			start_begin(&plainly, 0);
		} else {
			start_begin(&plainly, 1);
			go_on();
			cr_expect_not(ranks.actors[1].calls[0].is_done, "others are asked");
			start_begin(&plainly, 0);
		}
		make_first();
		cr_expect_eq(ranks.actors[1].calls[0].op.stats.step, 1);
		end_run(true);
	}
}

/* Steps of others begin where they can: until then ranks hear what is missing. */
Test(across_join, a_node_without_room_says_so)
{
	struct train train = plainly;

	memset(batches, 0, sizeof(batches));
	batches[0] = LAST;
	train.run.offload = ZI_OFFLOAD_NVME;
	begin_train(&train, "01", 7);
	net.nodes[1].zero->is_stopping = true;
	start_join(1, true, 0);
	cr_assert_eq(nodes_wait(&ranks.actors[1], 0), -ESTALE);
	net.nodes[1].zero->is_stopping = false;
	start_join(1, true, 0);
	go_on();
	net.nodes[1].zero->is_stopping = true;
	start_begin(&train, 0);
	cr_assert_eq(nodes_wait(&ranks.actors[1], 0), -ESTALE, "%s", ranks.actors[1].text.chars);
	net.nodes[1].zero->is_stopping = false;
	start_join(1, true, 0);
	make_first();
	end_run(true);
}

/* Of ranks on other nodes, who are asked when sums are made. */
Test(across_join, ranks_must_agree_about_the_average)
{
	memset(batches, 0, sizeof(batches));
	batches[0] = LAST;
	begin_train(&plainly, "012", 5);
	start_begin(&plainly, 0);
	start_join(1, true, 0);
	start_join(2, false, 0);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s", ranks.actors[i].text.chars);
	for (uint32_t i = 0; i < 3; i++)
		give(i, 1, 0, 1);
	all_hear(-EINVAL, "divides_by_live is true in rank 1, but false in rank 2");
	end_run(false);
}

/* The vote of node 0 that is on its way to node 1. */
static struct talk_entry *find_entry(uint32_t kind, uint32_t what)
{
	struct net_worker *worker = net.workers;

	while (worker->place != 1)
		worker = worker->next;
	for (uint32_t i = worker->from[0].taken; i != worker->from[0].put; i++) {
		struct net_event *event = &worker->from[0].events[i % NET_EVENTS_MAX];

		if (event->what == NET_EVENT_ENTRY && event->entry.kind == kind &&
		    event->entry.what == what)
			return &event->entry;
	}
	return NULL;
}

/* How a node begins a step is hearsay: an optimizer's numbers, whose they are, groups. */
Test(across_join, words_that_cannot_be_end_the_group)
{
	struct words {
		int64_t step;
		uint32_t rank, reserved;
		struct zi_step_options options;
		uint64_t groups_digest;
	} words;

	memset(batches, 0, sizeof(batches));
	batches[0] = LAST;
	for (uint32_t i = 0; i < 7; i++) {
		uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);
		struct talk_entry *vote;

		begin_train(&plainly, "01", i + 1);
		start_join(1, true, 0);
		go_on();
		nodes_hold(0, 1, true);
		start_begin(&plainly, 0);
		for (vote = NULL; !vote; vote = find_entry(TALK_ROUND, ROUND_STEP_BEGIN)) {
			nodes_turn();
			cr_assert_lt(zi_clock_now_ns(), deadline_ns, "node 0 does not vote");
		}
		memcpy(&words, vote->data, sizeof(words));
		words.rank = i == 0 ? 1 : i == 1 ? 7 : words.rank;
		words.options.lr = i == 2 ? NAN : words.options.lr;
		words.options.flags |= i == 3 ? ZI_STEP_JOINED : 0;
		words.groups_digest += i == 4;
		memcpy(vote->data, &words, sizeof(words));
		vote->data_bytes -= i == 5;
		if (i == 6)
			find_entry(TALK_READY, AGREE_READY_GROUPS)->data[3]++;
		nodes_hold(0, 1, false);
		all_hear(-EPROTO, "begins a step cannot be");
		end_run(false);
	}
}
