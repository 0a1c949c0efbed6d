/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a model that ranks on several nodes train has the bits, on every node, that it has where
 * all of them are on one: parameters, norm, clip, loss scale, what was skipped, step by step.
 * Method: each run twice, once on one node; what its ranks saw there is what they must see
 * (nodes.h: several zeros in one process, in drawn orders). One node is held against plain loops by
 * test_step.c, and several are, once, here.
 */
#include "tests/unit/zero/across_steps.h"
#include "tests/unit/zero/plain.h"

static void train_twice(const struct train *train, uint64_t seed)
{
	train_model(train, seed);
	train_on(train, train->run.places, seed + 1000, false);
}

/* ---- tests ---- */

static const char *const uneven[] = {
	"01", "001", "0012", "0111", "0120", "0123", "00012", "0101"
};
static const char *const even[] = { "0011", "0123", "01010101", "00011122" };

/* Strategies, where state lies, types, schedules, optimizers; what is clipped, skipped, scaled. */
Test(across_train, nodes_make_the_bits_of_one, .timeout = 600)
{
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO1, ZI_STRATEGY_DDP,
		                               ZI_STRATEGY_ZERO2, ZI_STRATEGY_ZERO3 };
	static const uint32_t offloads[] = { ZI_OFFLOAD_CPU, ZI_OFFLOAD_NVME, ZI_OFFLOAD_NONE };
	static const uint32_t dtypes[] = { ZI_DTYPE_BF16, ZI_DTYPE_F32, ZI_DTYPE_F16 };
	static const uint32_t optimizers[] = { ZI_OPTIMIZER_ADAMW, ZI_OPTIMIZER_LION,
		                               ZI_OPTIMIZER_ADAGRAD };

	each_draw(seed, 24) {
		bool is_sharded = seed % 3 == 0;
		struct train train = {
			.run = { .places = uneven[seed % ZI_COUNT_OF(uneven)],
			         .dtype = dtypes[seed % 5 % 3],
			         .schedule = is_sharded ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL,
			         .micro_batches = is_sharded ? 2 : 1,
			         .offload = offloads[seed % 7 % 3],
			         .strategy = strategies[seed % 4] },
			.optimizer = optimizers[seed / 4 % 3],
			.max_norm = seed % 2 ? 0 : 0.5,
			.poisoned = seed % 5 == 1 ? 2 : 0,
			.group_count = seed % 4 == 2 ? 2 : 0,
			.commit_interval = seed % 6 == 5 ? 2 : 0,
			.wants_early = seed % 2,
			.scaler_kind = dtypes[seed % 5 % 3] == ZI_DTYPE_F16 ? ZI_SCALER_TORCH : 0,
		};

		train_twice(&train, seed);
	}
}

/* Replicas that cut nodes anywhere; sums in buckets. */
Test(across_train, replicas_and_buckets, .timeout = 600)
{
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct train train = {
			.run = { .places = even[seed % ZI_COUNT_OF(even)],
			         .dtype = ZI_DTYPE_BF16,
			         .schedule = ZI_SCHEDULE_LOCAL,
			         .micro_batches = 1,
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

/* Sets of some ranks, which others read all the same. */
Test(across_train, sets_of_some_ranks, .timeout = 600)
{
	static const struct model_set sets[UNITS] = { { "some", 0x2a },
		                                      { "all", 0x3f },
		                                      { "near", 0x03 } };

	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct train train = {
			.run = { .places = seed % 2 ? "001122" : "002121",
			         .dtype = ZI_DTYPE_BF16,
			         .schedule = ZI_SCHEDULE_LOCAL,
			         .micro_batches = 1,
			         .offload = seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
			         .strategy = seed / 2 % 2 ? ZI_STRATEGY_ZERO1 : ZI_STRATEGY_DDP,
			         .sets = sets },
			.optimizer = ZI_OPTIMIZER_ADAMW,
		};

		train_twice(&train, seed);
	}
}

/* Ranks may call a barrier while the step that they have called is under way: on a node that is
 * faster with the step it comes no sooner than on the others. */
Test(across_train, a_barrier_within_a_step, .timeout = 600)
{
	each_draw(seed, 12) {
		struct run run = { .places = seed % 2 ? "01" : "0012",
			           .dtype = ZI_DTYPE_BF16,
			           .schedule = ZI_SCHEDULE_LOCAL,
			           .micro_batches = 1,
			           .offload = seed % 4 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
			           .strategy = ZI_STRATEGY_ZERO1 };
		struct zi_step_options options = model_options();

		begin_run(&run, seed);
		for (uint64_t step = 1; step <= 3; step++) {
			begin_step(&options);
			hand_over_all(step, 0);
			for (uint32_t i = 0; i < ranks.world; i++) {
				actor_start(&ranks.actors[i], 0, zero_step, NULL);
				for (uint32_t turns = net_draw(60); turns > 0; turns--)
					nodes_turn();
				actor_start(&ranks.actors[i], 1, zero_barrier, NULL);
			}
			for (uint32_t i = 0; i < 2 * ranks.world; i++)
				cr_assert_eq(nodes_wait(&ranks.actors[i / 2], i % 2), 0, "%s",
				             ranks.actors[i / 2].text.chars);
		}
		end_run(true);
	}
}

/* Against a computation that knows no nodes at all. */
Test(across_train, nodes_make_what_plain_loops_make)
{
	struct train train = { .run = { .dtype = ZI_DTYPE_BF16,
		                        .schedule = ZI_SCHEDULE_LOCAL,
		                        .micro_batches = 1,
		                        .offload = ZI_OFFLOAD_CPU,
		                        .strategy = ZI_STRATEGY_ZERO1 },
		               .optimizer = ZI_OPTIMIZER_ADAMW };
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);
	struct zi_step_options options = model_options();
	struct plain plain;

	begin_train(&train, "0012", 4);
	plain_init(&plain, &config, 4);
	for (uint64_t step = 1; step <= 3; step++) {
		cr_assert_eq(make_step(step, &options), 0, "%s", ranks.actors[0].text.chars);
		plain_step(&plain, step, &options);
		for (uint32_t i = 0; i < ranks.world; i++)
			cr_assert(plain_equals(&plain, &ranks.actors[i]), "rank %u step %llu", i,
			          (unsigned long long)step);
	}
	plain_deinit(&plain);
	end_run(true);
}
