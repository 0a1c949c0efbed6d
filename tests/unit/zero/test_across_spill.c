/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: sums of gradients of ranks on several nodes that have no room in memory go to each node's
 * store and come back as they were: every node has the bits of one node, with clipping, loss
 * scales, skipped steps, micro-batches, joined and unused parameters, replicas and sets; what is
 * written is what a node owns, what others need passes through; nothing stays reserved. Method: as
 * test_across_train.c, with units of a few subgroups and budgets of little more than one unit.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/grad/spill.h"
#include "daemon/zero/grad/spill_space.h"
#include "tests/unit/zero/across_steps.h"

TestSuite(across_spill, .timeout = 600);

/* Of the longest unit: nothing is left for sums. */
#define BUDGET_BYTES (640ull << 10)

static void flat_model(void)
{
	model_elements[0] = 300000;
	model_elements[1] = 280000;
	model_elements[2] = 270000;
	model_is_flat = true;
}

static uint64_t free_bytes(void)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < net.count; i++)
		bytes += tier_extent_free_bytes(&net.nodes[i].nvme);
	return bytes;
}

/* Bytes that go to a store in each step. */
static uint64_t stored_bytes(void)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < net.count; i++)
		bytes += spill_bytes(node_job(&net.nodes[i], "train"));
	return bytes;
}

/* @at_least: bytes that go to the stores of all nodes. */
static void train_spilling(const struct train *train, uint64_t seed, uint64_t at_least)
{
	uint64_t former;

	train_model(train, seed);
	begin_train(train, train->run.places, seed + 1000);
	cr_assert_geq(stored_bytes(), at_least, "'%s' seed %llu: %llu", train->run.places,
	              (unsigned long long)seed, (unsigned long long)stored_bytes());
	look(0, false, train->run.places);
	train_steps(train, 1, 2, false, train->run.places);
	nodes_settle();
	former = free_bytes();
	train_steps(train, 3, STEPS, false, train->run.places);
	nodes_settle();
	/* The third set of steps ahead of their commit comes and goes. */
	cr_expect(train->commit_interval > 1 || free_bytes() == former, "space is lost");
	end_run(true);
}

static uint64_t all_bytes(void)
{
	uint64_t bytes = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		bytes += zi_geometry_padded(model_elements[unit]) * 2;
	return bytes;
}

Test(across_spill, nodes_make_the_bits_of_one)
{
	static const char *const places[] = { "01", "0011", "0101", "0012", "00112233", "001" };
	static const uint32_t optimizers[] = { ZI_OPTIMIZER_ADAMW, ZI_OPTIMIZER_LION };

	flat_model();
	each_draw(seed, 18) {
		bool is_sharded = seed % 3 == 0;
		struct train train = {
			.run = { .places = places[seed % ZI_COUNT_OF(places)],
			         .dtype = seed % 4 == 3 ? ZI_DTYPE_F16 : ZI_DTYPE_BF16,
			         .schedule = is_sharded ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL,
			         .micro_batches = is_sharded ? 2 : 1,
			         .offload = ZI_OFFLOAD_NVME,
			         .strategy = seed / 2 % 2 ? ZI_STRATEGY_ZERO3 : ZI_STRATEGY_ZERO2,
			         .finds_unused = seed % 5 == 4,
			         .budget_bytes = BUDGET_BYTES },
			.optimizer = optimizers[seed / 4 % 2],
			.max_norm = seed % 2 ? 0 : 0.5,
			.poisoned = seed % 5 == 1 ? 2 : 0,
			.group_count = seed % 4 == 2 ? 2 : 0,
			.commit_interval = seed % 6 == 5 ? 2 : 0,
			.wants_early = seed % 2,
			.scaler_kind = seed % 4 == 3 ? ZI_SCALER_TORCH : 0,
		};

		train_spilling(&train, seed, all_bytes());
	}
}

/* Where the budget leaves room for some of them. */
Test(across_spill, the_first_sums_stay_in_memory)
{
	static const char *const places[] = { "00001111", "0001111", "01010101" };

	flat_model();
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct train train = {
			.run = { .places = places[seed % ZI_COUNT_OF(places)],
			         .dtype = ZI_DTYPE_BF16,
			         .micro_batches = 1,
			         .offload = ZI_OFFLOAD_NVME,
			         .strategy = seed % 2 ? ZI_STRATEGY_ZERO3 : ZI_STRATEGY_ZERO2,
			         .budget_bytes = 2 * 606208 + 150000 },
			.optimizer = ZI_OPTIMIZER_ADAMW,
			.max_norm = 1,
		};

		train_model(&train, seed);
		begin_train(&train, train.run.places, seed + 1000);
		cr_assert_gt(stored_bytes(), 0, "'%s'", train.run.places);
		cr_assert_lt(stored_bytes(), all_bytes());
		train_steps(&train, 1, STEPS, false, train.run.places);
		end_run(true);
	}
}

/* Whoever finishes a sum gives it to the owners of all replicas, and may own none of it. */
Test(across_spill, sums_come_to_all_owners_of_replicas)
{
	static const char *const places[] = { "0011",     "0101",   "000111", "00112233",
		                              "00011122", "001112", "010101", "01230123" };

	flat_model();
	for (uint64_t seed = 0; seed < 16; seed++) {
		struct train train = {
			.run = { .places = places[seed % ZI_COUNT_OF(places)],
			         .dtype = ZI_DTYPE_BF16,
			         .schedule = seed % 3 ? ZI_SCHEDULE_LOCAL : ZI_SCHEDULE_SHARDED,
			         .micro_batches = seed % 3 ? 1 : 2,
			         .offload = ZI_OFFLOAD_NVME,
			         .strategy = seed / 2 % 2 ? ZI_STRATEGY_ZERO3 : ZI_STRATEGY_ZERO2,
			         .shard_size = 2,
			         .budget_bytes = BUDGET_BYTES },
			.optimizer = ZI_OPTIMIZER_ADAMW,
			.max_norm = seed % 2,
		};

		train_spilling(&train, seed + 1, 1);
	}
}

/* Sets of all nodes, of some, and of one alone, whose sums are made there. */
Test(across_spill, sums_of_sets)
{
	static const struct model_set sets[UNITS] = { { "some", 0x2b },
		                                      { "all", 0x3f },
		                                      { "near", 0x07 } };

	flat_model();
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct train train = {
			.run = { .places = seed % 2 ? "000111" : "000121",
			         .dtype = ZI_DTYPE_BF16,
			         .micro_batches = 1,
			         .offload = ZI_OFFLOAD_NVME,
			         .strategy = seed % 3 ? ZI_STRATEGY_ZERO2 : ZI_STRATEGY_ZERO3,
			         .budget_bytes = BUDGET_BYTES,
			         .sets = sets },
			.optimizer = ZI_OPTIMIZER_ADAMW,
		};

		train_spilling(&train, seed, 1);
	}
}

/* Sums that are made for others alone are never written. */
Test(across_spill, what_is_written_is_what_a_node_owns)
{
	struct train train = { .run = { .places = "01230123",
		                        .dtype = ZI_DTYPE_BF16,
		                        .micro_batches = 1,
		                        .offload = ZI_OFFLOAD_NVME,
		                        .strategy = ZI_STRATEGY_ZERO2,
		                        .shard_size = 2,
		                        .budget_bytes = BUDGET_BYTES },
		               .optimizer = ZI_OPTIMIZER_ADAMW };
	uint32_t passing = 0;

	flat_model();
	begin_train(&train, train.run.places, 3);
	for (uint32_t i = 0; i < net.count; i++) {
		const struct zero_job *job = node_job(&net.nodes[i], "train");

		cr_assert(job->spill);
		for (uint32_t k = 0; k < job->subgroup_count; k++)
			passing += job->subgroups[k].is_sum_stored && !job->subgroups[k].is_here;
		cr_expect_eq(spill_bytes(job), job->here_elements * 2, "node %u", i);
	}
	cr_expect_gt(passing, 0);
	for (uint64_t step = 1; step <= 2; step++) {
		begin_one(&train, step);
		cr_assert_eq(nodes_all(&ranks, zero_step, NULL), 0, "%s",
		             ranks.actors[0].text.chars);
		for (uint32_t i = 0; i < ranks.world; i++)
			cr_expect_eq(ranks.actors[i].calls[0].op.stats.write_bytes,
			             ranks.actors[i].rank->job->here_elements * 14,
			             "sums, and 12 bytes");
	}
	end_run(true);
}
