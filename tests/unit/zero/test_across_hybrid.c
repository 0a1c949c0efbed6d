/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: planes that ranks of one replica divide, and replicas that cut nodes anywhere, train the
 * bits of the plain computation, in every strategy and place; so do sets of some ranks, tensors and
 * stages cut along nodes and across them, and ranks that lie unevenly. Whoever dies, at whatever
 * moment, all go on with the same bits. Method: several zeros in one process, carried in drawn
 * orders (nodes.h), daemons that are killed with what is on their disks (across_train.h).
 */
#include "tests/unit/zero/across_train.h"

TestSuite(across_hybrid, .timeout = 600);

/* A shard in a node, over nodes, cut by them, and more than one to a node. */
static const struct {
	const char *places;
	uint32_t shard_size;
} replicas[] = {
	{ "0011", 2 },   { "0101", 2 },   { "0123", 2 },   { "0012", 2 },     { "0120", 2 },
	{ "0111", 2 },   { "0001", 2 },   { "1022", 2 },   { "00112233", 4 }, { "000111", 3 },
	{ "001112", 2 }, { "012012", 3 }, { "000011", 2 },
};

/* Stages of a pipeline, or parts of tensors, of four ranks. */
static const struct model_set grids[][UNITS] = {
	{ { "left", 0x5 }, { "right", 0xa }, { "all", 0xf } },
	{ { "first", 0x3 }, { "first", 0x3 }, { "second", 0xc } },
	{ { "outer", 0x9 }, { "inner", 0x6 }, { "outer", 0x9 } },
	{ { "alone", 0x8 }, { "most", 0x7 }, { "all", 0xf } },
};
static const char *const grid_places[] = { "0011", "0101", "0123", "0001", "0111", "0012" };

struct tiers {
	uint32_t offload, offload_param;
};

static const struct tiers everywhere[] = {
	{ ZI_OFFLOAD_NONE, ZI_OFFLOAD_NONE },
	{ ZI_OFFLOAD_CPU, ZI_OFFLOAD_CPU },
	{ ZI_OFFLOAD_NVME, ZI_OFFLOAD_CPU },
	{ ZI_OFFLOAD_NVME, ZI_OFFLOAD_NVME },
};

static struct train drawn(uint64_t seed, const char *places, uint32_t strategy)
{
	const struct tiers *place = &everywhere[seed % ZI_COUNT_OF(everywhere)];
	struct train what = wanted(places, place->offload);

	what.training.strategy = strategy;
	what.config.offload_param = place->offload_param;
	what.config.schedule = seed / 4 % 2 ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL;
	return what;
}

/* … its ranks go, and come again. */
static void train_and_come_again(const struct train *what, uint64_t seed)
{
	begin_train(what, seed);
	steps(1, 2);
	train_leave(true);
	resumed(2);
	steps(3, 3);
	end_train();
}

Test(across_hybrid, replicas_cut_by_nodes_anywhere)
{
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO3, ZI_STRATEGY_ZERO1,
		                               ZI_STRATEGY_ZERO3, ZI_STRATEGY_ZERO2 };

	for (uint64_t seed = 0; seed < 2 * ZI_COUNT_OF(replicas); seed++) {
		struct train what = drawn(seed, replicas[seed / 2].places, strategies[seed % 3]);

		what.training.shard_size = replicas[seed / 2].shard_size;
		train_and_come_again(&what, seed + 1);
	}
}

Test(across_hybrid, sets_along_nodes_and_across_them)
{
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO3, ZI_STRATEGY_DDP,
		                               ZI_STRATEGY_ZERO1, ZI_STRATEGY_ZERO2 };

	for (uint64_t seed = 0; seed < ZI_COUNT_OF(grids) * ZI_COUNT_OF(grid_places); seed++) {
		struct train what = drawn(seed / 2, grid_places[seed % ZI_COUNT_OF(grid_places)],
		                          strategies[(seed + seed / 4) % 4]);

		what.sets = grids[seed / ZI_COUNT_OF(grid_places)];
		train_and_come_again(&what, seed + 1);
	}
}

/* ---- who is lost ---- */

/* Return: steps that were not lost. */
static uint32_t lose_often(const struct train *what, uint64_t seed, uint32_t loss_count)
{
	int64_t committed = 0;
	uint32_t kept = 0;

	begin_train(what, seed);
	for (uint32_t i = 0; i < 3; i++) {
		int64_t former = committed;
		enum loss loss = (enum loss)net_draw(loss_count);
		uint32_t turns = net_draw(30), place = net_draw(net.count);
		uint64_t step = (uint64_t)committed + 1;

		lose_in_step(step, (enum anchor)net_draw(_ANCHOR_COUNT), turns, loss, place);
		committed = go_on_from(step);
		kept += committed > former;
	}
	steps((uint64_t)committed + 1, (uint64_t)committed + 1);
	end_train();
	return kept;
}

Test(across_hybrid, a_node_of_replicas_that_is_lost_costs_a_step_at_most)
{
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO3, ZI_STRATEGY_ZERO2,
		                               ZI_STRATEGY_ZERO1 };
	uint32_t kept = 0, count = ZI_COUNT_OF(replicas);

	for (uint64_t seed = 0; seed < count; seed++) {
		struct train what =
			drawn(2 + seed % 2, replicas[seed].places, strategies[seed % 3]);

		what.training.shard_size = replicas[seed].shard_size;
		kept += lose_often(&what, seed + 1, _LOSS_COUNT);
	}
	cr_expect(kept >= 4 && kept <= 3 * count - 4, "%u kept of %u", kept, 3 * count);
}

/* State in memory outlives ranks and workers. */
Test(across_hybrid, replicas_in_memory_outlive_ranks_and_workers)
{
	for (uint64_t seed = 0; seed < 6; seed++) {
		struct train what = drawn(seed % 2, replicas[seed].places,
		                          seed % 3 ? ZI_STRATEGY_ZERO3 : ZI_STRATEGY_ZERO2);

		what.training.shard_size = replicas[seed].shard_size;
		(void)lose_often(&what, seed + 1, LOSS_DAEMON);
	}
}

Test(across_hybrid, a_node_of_some_sets_that_is_lost_costs_a_step_at_most)
{
	for (uint64_t seed = 0; seed < 8; seed++) {
		struct train what =
			drawn(2 + seed / 2 % 2, grid_places[seed % 6], strategy_of(seed));

		what.sets = grids[seed % 4];
		(void)lose_often(&what, seed + 1, _LOSS_COUNT);
	}
}

/* ---- what is found again ---- */

/* The first of two stages is a small part of a model: its node, which has few extents, believes the
 * layout all the same. */
Test(across_hybrid, a_node_of_the_smallest_stage_finds_it_again)
{
	const struct model_set small = { "small", 0x1 }, large = { "large", 0x2 };
	struct attach_options options = { .incarnation = "run.0",
		                          .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME) };

	options.config.staging_bytes = 16 * MIB;
	nodes_init(2, 3);
	net.nodes[1].store_bytes = 64 * MIB;
	nodes_start();
	nodes_attach(&ranks, "01", &options);
	for (uint32_t i = 0; i < ranks.world; i++) {
		struct actor *actor = &ranks.actors[i];

		cr_assert_eq(layout_set(actor, &small), 0);
		layout_unit(actor, "embed");
		layout_param(actor, "embed.w", 1000, 0);
		cr_assert_eq(layout_set(actor, &large), 0);
		layout_unit(actor, "rest");
		layout_param(actor, "rest.w", 7 * ZI_SUBGROUP_ELEMENTS, 0);
	}
	cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(nodes_all(&ranks, zero_commit, &(struct zero_op){ .blob = "" }), 0, "%s",
	             ranks.actors[0].text.chars);
	nodes_leave(&ranks, true);
	nodes_settle();
	for (uint32_t i = 0; i < 2; i++) {
		const struct zero_job *job;

		node_stop(&net.nodes[i]);
		node_start(&net.nodes[i]);
		job = node_job(&net.nodes[i], "train");
		cr_expect_eq(job->refusal, 0, "node %u: %s", i, job->refusal_text.chars);
		cr_expect_eq(job->here_count, i ? 7 : 1);
		cr_expect_eq(job->committed_step, 0);
	}
	nodes_deinit();
}
