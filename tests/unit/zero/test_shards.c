/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: where nodes divide parameters (zero3), each holds its own alone, and every rank sees the
 * bits of one node wherever it uses a unit, whoever wrote it, with state and parameters in memory
 * and on the store.
 * Method: several zeros in one process, with what they say carried in drawn orders (nodes.h); whole
 * models trained beside the plain computation.
 */
#include "tests/unit/zero/shards.h"

static struct shards_run drawn_run(uint64_t seed, uint32_t offload, uint32_t offload_param)
{
	static const char *const places[] = {
		"01", "0123", "001", "0012", "0101", "210", "00112233"
	};
	struct shards_run run = {
		.places = places[seed % ZI_COUNT_OF(places)],
		.config = model_config(seed % 3 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32, offload),
		.training = { .strategy = ZI_STRATEGY_ZERO3 },
	};

	run.config.offload_param = offload_param;
	run.config.schedule = seed % 2 ? ZI_SCHEDULE_LOCAL : ZI_SCHEDULE_SHARDED;
	run.config.staging_bytes = offload == ZI_OFFLOAD_NVME ? 16 * MIB : 0;
	return run;
}

static void train(const struct shards_run *run, uint64_t seed)
{
	struct zi_step_options options = model_options();

	options.max_norm = seed % 2 ? 1.0 : 0;
	shards_begin(run, seed);
	shards_write();
	shards_train(1, 3, &options);
	shards_end(true);
}

Test(shards, in_memory)
{
	each_draw(seed, 14) {
		struct shards_run run = drawn_run(seed, seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NONE,
		                                  ZI_OFFLOAD_NONE);

		train(&run, seed);
	}
}

/* State goes to the store, parameters with each step, and stay in memory too. */
Test(shards, state_on_nvme)
{
	for (uint64_t seed = 1; seed <= 7; seed++) {
		struct shards_run run = drawn_run(seed, ZI_OFFLOAD_NVME, ZI_OFFLOAD_CPU);

		run.config.resident_bytes = seed % 2 ? 3 * MIB : 0;
		run.config.commit_interval = seed % 3 ? 1 : 2;
		train(&run, seed);
	}
}

/* Parameters come from the stores of all nodes. */
Test(shards, parameters_on_nvme)
{
	each_draw(seed, 14) {
		struct shards_run run = drawn_run(seed, ZI_OFFLOAD_NVME, ZI_OFFLOAD_NVME);

		run.config.commit_interval = seed % 4 ? 1 : 2;
		train(&run, seed);
	}
}

/* What is divided in a replica comes from there; each replica trains the same. */
Test(shards, replicas)
{
	static const char *const places[] = { "0011", "0123", "0101", "00112233" };

	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct shards_run run = drawn_run(seed, seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
		                                  seed % 4 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME);

		run.places = places[seed / 2 % ZI_COUNT_OF(places)];
		run.training.shard_size = 2;
		train(&run, seed);
	}
}

/* Units of all ranks, of some, and of those of one node. */
Test(shards, sets)
{
	static const struct model_set sets[UNITS] = { { "some", 0x2a },
		                                      { "all", 0x3f },
		                                      { "near", 0x03 } };

	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct shards_run run = drawn_run(seed, seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
		                                  seed % 4 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME);

		run.places = seed % 2 ? "001122" : "002121";
		run.sets = sets;
		train(&run, seed);
	}
}

/* Whatever is on NVMe, and everywhere: with ddp each node has all of it. */
Test(shards, ddp_with_parameters_on_nvme)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct shards_run run = drawn_run(seed, ZI_OFFLOAD_NVME, ZI_OFFLOAD_NVME);

		run.training.strategy = ZI_STRATEGY_DDP;
		train(&run, seed);
	}
}

/* A pool that holds the longest unit and no other beside it. */
Test(shards, pools_of_one_unit)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct shards_run run = drawn_run(seed, seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
		                                  seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME);
		struct zi_step_options options = model_options();

		run.config.param_dtype = run.config.grad_dtype = ZI_DTYPE_BF16;
		run.config.param_budget_bytes = 260 * 4096;
		shards_begin(&run, seed);
		cr_assert_eq(job_of(0)->residency->slot_count, 260);
		shards_write();
		shards_train(1, 2, &options);
		shards_end(true);
	}
}

/* ---- along the recorded order ---- */

static uint64_t misses(void)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < net.count; i++)
		count += job_of(i)->residency->miss_count + job_of(i)->residency->late_count;
	return count;
}

static uint64_t hits(void)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < net.count; i++)
		count += job_of(i)->residency->hit_count;
	return count;
}

/* Each node has recorded its own order by the second step: from then on what is used next is there
 * when it is used, though all of it has changed. */
Test(shards, what_is_used_next_is_there)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct shards_run run = drawn_run(seed, seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
		                                  seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME);
		struct zi_step_options options = model_options();
		uint64_t missed, hit;

		run.places = seed % 2 ? "012" : "01";
		shards_begin(&run, seed);
		shards_write();
		cr_assert_eq(shards_step(1, &options), 0);
		nodes_settle();
		missed = misses();
		hit = hits();
		for (uint64_t step = 2; step <= 3; step++) {
			cr_assert_eq(shards_step(step, &options), 0);
			nodes_settle();
		}
		cr_expect_eq(misses(), missed, "seed %lu: %lu more", seed, misses() - missed);
		cr_expect_eq(hits() - hit, 2ull * 2 * UNITS * ranks.world);
		for (uint32_t i = 0; i < net.count; i++)
			cr_expect_gt(job_of(i)->residency->fetches.pulled_bytes, 0);
		shards_end(true);
	}
}

/* Where gradients are not finite nothing changes, and what is in the pools stays right. */
Test(shards, a_step_that_is_skipped_leaves_all_copies)
{
	struct shards_run run = drawn_run(1, ZI_OFFLOAD_CPU, ZI_OFFLOAD_CPU);
	struct zi_step_options options = model_options();

	options.flags |= ZI_STEP_SKIP_NONFINITE;
	shards_begin(&run, 1);
	shards_write();
	poison = (struct poison){
		.what = grad_what(1, 0, 0, 1), .index = 7, .value = NAN, .count = 1
	};
	begin_step(&options);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t i = 0; i < ranks.world; i++)
			shards_use(i, unit, 1, true);
	cr_assert_eq(nodes_all(&ranks, zero_step, NULL), 0);
	cr_expect_eq(ranks.actors[0].calls[0].op.stats.is_skipped, 1);
	poison.count = 0;
	shards_train(2, 3, &options);
	shards_end(true);
}

/* Other values, between steps, on top of what was trained. */
Test(shards, written_anew_between_steps)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct shards_run run = drawn_run(seed, seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
		                                  seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME);
		struct zi_step_options options = model_options();
		uint64_t unit = seed % UNITS, padded = zi_geometry_padded(model_elements[unit]);

		shards_begin(&run, seed);
		shards_write();
		shards_train(1, 2, &options);
		cr_assert_eq(shards_write_unit((uint32_t)unit, net_draw(ranks.world), 700), 0);
		cr_assert_eq(nodes_all(&ranks, zero_commit, NULL), 0, "%s",
		             ranks.actors[0].text.chars);
		memset(plain.param[unit], 0, padded * 4);
		memset(plain.remainder[unit], 0, padded * 4);
		memset(plain.exp_avg[unit], 0, padded * 4);
		memset(plain.exp_avg_sq[unit], 0, padded * 4);
		fill(plain.param[unit], 700 + unit, model_elements[unit], run.config.param_dtype);
		shards_train(3, 3, &options);
		shards_end(true);
	}
}

/* Its ranks go and come again: what is in memory, and what is on the stores, is theirs. */
Test(shards, another_start_goes_on)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct shards_run run = drawn_run(seed, seed % 3 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU,
		                                  seed % 3 > 1 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU);
		struct zi_step_options options = model_options();

		shards_begin(&run, seed);
		shards_write();
		shards_train(1, 2, &options);
		nodes_leave(&ranks, true);
		nodes_settle();
		cr_expect_null(job_of(0)->param, "a pool is one incarnation's");
		shards_attach(&run, "run.1");
		shards_train(3, 4, &options);
		shards_end(true);
	}
}

/* A unit that is frozen whole never changes: copies of it stay where they are, and the others train
 * as ever. */
Test(shards, a_frozen_unit_stays)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct shards_run run = drawn_run(seed, seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
		                                  seed % 2 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME);
		const struct attach_options attach = { .incarnation = "run.0",
			                               .config = run.config,
			                               .training = run.training };
		struct zi_step_options options = model_options();

		nodes_init(places_count(run.places), seed);
		nodes_start();
		nodes_attach(&ranks, run.places, &attach);
		for (uint32_t i = 0; i < ranks.world; i++) {
			struct zi_layout_entry frozen = { .kind = ZI_LAYOUT_PARAM,
				                          .dim_count = 1,
				                          .group = ZI_LAYOUT_FROZEN,
				                          .shape = { model_elements[0] },
				                          .name = "embed.w" };

			layout_unit(&ranks.actors[i], "embed");
			cr_assert_eq(zero_layout_add(ranks.actors[i].rank, &frozen,
			                             &ranks.actors[i].text),
			             0, "%s", ranks.actors[i].text.chars);
			layout_unit(&ranks.actors[i], "h.0");
			layout_param(&ranks.actors[i], "h.0.w", model_elements[1], 0);
			layout_unit(&ranks.actors[i], "head");
			layout_param(&ranks.actors[i], "head.w", model_elements[2], 0);
		}
		cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
		plain_init(&plain, &run.config, ranks.world);
		shards_write();
		for (uint64_t step = 1; step <= 3; step++) {
			begin_step(&options);
			for (uint32_t unit = 0; unit < UNITS; unit++)
				for (uint32_t i = 0; i < ranks.world; i++)
					shards_use(i, unit, step, unit > 0);
			plain_step(&plain, step, &options);
			fill(plain.param[0], 900, model_elements[0], run.config.param_dtype);
			cr_assert_eq(nodes_all(&ranks, zero_step, NULL), 0, "%s",
			             ranks.actors[0].text.chars);
			for (uint32_t i = 0; i < net.count; i++)
				cr_expect_eq(job_of(i)->residency->units[0].presence,
				             ZERO_RESIDENT);
		}
		shards_end(true);
	}
}
