/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: sums of gradients that have a type of their own (reduce_dtype) have, over nodes, the bits
 * that the same ranks get on one node, wherever these are; what 16 bits cannot have is told of the
 * same rank; and where values are of 16 bits, no more than these travel. Method: as in
 * test_across_train.c, each run twice.
 */
#include "tests/unit/zero/across_steps.h"

static const struct {
	uint32_t dtype, reduce;
} types[] = {
	{ ZI_DTYPE_BF16, ZI_DTYPE_F32 }, { ZI_DTYPE_F32, ZI_DTYPE_BF16 },
	{ ZI_DTYPE_F16, ZI_DTYPE_F32 },  { ZI_DTYPE_F32, ZI_DTYPE_F16 },
	{ ZI_DTYPE_F32, ZI_DTYPE_F32 },
};

static void train_twice(const struct train *train, uint64_t seed)
{
	train_model(train, seed);
	train_on(train, train->run.places, seed + 1000, false);
}

/* Strategies, schedules, where state lies, what is clipped and skipped. */
Test(across_reduce, nodes_make_the_bits_of_one, .timeout = 600)
{
	static const char *const places[] = { "01", "001", "0111", "0011", "0120", "00012" };
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO1, ZI_STRATEGY_DDP,
		                               ZI_STRATEGY_ZERO2, ZI_STRATEGY_ZERO3 };
	static const uint32_t offloads[] = { ZI_OFFLOAD_CPU, ZI_OFFLOAD_NVME, ZI_OFFLOAD_NONE };

	each_draw(seed, 24) {
		bool is_sharded = seed % 3 == 0;
		bool stores = seed % 5 < 2; /* Parameters too, by each strategy. */
		struct train train = {
			.run = { .places = places[seed % ZI_COUNT_OF(places)],
			         .dtype = types[seed % ZI_COUNT_OF(types)].dtype,
			         .reduce_dtype = types[seed % ZI_COUNT_OF(types)].reduce,
			         .schedule = is_sharded ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL,
			         .micro_batches = is_sharded ? 2 : 1,
			         .offload = stores ? ZI_OFFLOAD_NVME : offloads[seed % 7 % 3],
			         .offload_param = stores ? ZI_OFFLOAD_NVME : 0,
			         .strategy = strategies[seed / 2 % 4] },
			.optimizer = ZI_OPTIMIZER_ADAMW,
			.max_norm = seed % 2 ? 0 : 0.5,
			.poisoned = seed % 5 == 1 ? 2 : 0,
			.group_count = seed % 4 == 2 ? 2 : 0,
		};

		train_twice(&train, seed);
	}
}

/* Sums come to nodes that do not make them: replicas; and lie in buckets. */
Test(across_reduce, sums_come_to_all_owners_of_replicas, .timeout = 600)
{
	static const char *const places[] = { "0011", "0123", "0101" };

	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct train train = {
			.run = { .places = places[seed % ZI_COUNT_OF(places)],
			         .dtype = types[seed % ZI_COUNT_OF(types)].dtype,
			         .reduce_dtype = types[seed % ZI_COUNT_OF(types)].reduce,
			         .schedule = seed % 4 ? ZI_SCHEDULE_LOCAL : ZI_SCHEDULE_SHARDED,
			         .micro_batches = seed % 4 ? 1 : 2,
			         .offload = seed % 3 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
			         .strategy = seed % 2 ? ZI_STRATEGY_ZERO2 : ZI_STRATEGY_ZERO1,
			         .shard_size = 2,
			         .budget_bytes = seed % 4 == 1 ? 4 * MIB : 0 },
			.optimizer = ZI_OPTIMIZER_ADAMW,
			.max_norm = 1,
		};

		train_twice(&train, seed);
	}
}

/* What f16 cannot have is the rank's whose gradient it is, on all nodes. */
Test(across_reduce, an_overflow_of_the_sums_type_is_told_by_rank)
{
	for (uint32_t culprit = 0; culprit < 3; culprit++) {
		struct run run = { .places = "012",
			           .dtype = ZI_DTYPE_F32,
			           .reduce_dtype = ZI_DTYPE_F16,
			           .micro_batches = 1,
			           .offload = culprit % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME };
		struct zi_step_options options = model_options();

		options.flags |= ZI_STEP_SKIP_NONFINITE;
		begin_run(&run, culprit + 1);
		poison = (struct poison){ .what = grad_what(1, 0, culprit, 1),
			                  .index = 300,
			                  .value = 70000,
			                  .count = 1 };
		cr_assert_eq(make_step(1, &options), 0, "%s", ranks.actors[0].text.chars);
		for (uint32_t i = 0; i < ranks.world; i++) {
			const struct zero_op *op = &ranks.actors[i].calls[0].op;

			cr_expect_eq(op->stats.is_skipped, 1);
			cr_expect_eq(op->stats.culprit, culprit, "rank %u, not %u",
			             op->stats.culprit, culprit);
			cr_expect_eq(op->culprit_unit, 1);
		}
		end_run(true);
	}
}

/* Bytes of gradients and sums that nodes pull in a step. */
static uint64_t moved_bytes(uint32_t reduce_dtype, uint32_t shard_size)
{
	struct run run = { .places = "0101",
		           .dtype = ZI_DTYPE_F32,
		           .reduce_dtype = reduce_dtype,
		           .micro_batches = 1,
		           .strategy = ZI_STRATEGY_ZERO1,
		           .shard_size = shard_size,
		           .offload = ZI_OFFLOAD_CPU };
	struct zi_step_options options = model_options();
	uint64_t bytes;

	begin_run(&run, 1);
	begin_step(&options);
	nodes_settle();
	bytes = net.moved_bytes; /* Parameters. */
	hand_over_all(1, 0);
	nodes_settle();
	bytes = net.moved_bytes - bytes;
	cr_assert_eq(nodes_all(&ranks, zero_step, NULL), 0, "%s", ranks.actors[0].text.chars);
	end_run(true);
	return bytes;
}

Test(across_reduce, values_of_16_bits_travel_as_such)
{
	for (uint32_t shard_size = 0; shard_size <= 2; shard_size += 2) {
		uint64_t wide = moved_bytes(0, shard_size);

		cr_expect_gt(wide, 0);
		cr_expect_eq(2 * moved_bytes(ZI_DTYPE_BF16, shard_size), wide);
		cr_expect_eq(2 * moved_bytes(ZI_DTYPE_F16, shard_size), wide);
	}
}
