/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: where nodes divide planes, what each of them holds is what common/wire/plan.h says, at each
 * moment of training; and that is its own share and a pool, not the model. Method: jobs with drawn
 * settings over several zeros (nodes.h), planned and made; each node's charges looked at in each
 * phase.
 */
#include "common/wire/plan_part.h"
#include "tests/unit/zero/shards.h"

static struct zero_job_report report;

static void take_report(void *arg, const struct zero_job_report *given)
{
	(void)arg;
	report = *given;
}

static uint64_t here_mask(const char *places, uint32_t place)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; places[i]; i++)
		mask |= (uint64_t)(places[i] == (char)('0' + place)) << i;
	return mask;
}

/* The sets of units in the order in which layouts name them: each once. */
static void take_sets(const struct model_set *sets, struct zi_plan_model *model, uint64_t *members,
                      uint32_t *unit_sets)
{
	for (uint32_t i = 0; i < UNITS && sets; i++) {
		uint32_t first = 0;

		while (strcmp(sets[first].name, sets[i].name))
			first++;
		unit_sets[i] = first == i ? model->set_count : unit_sets[first];
		if (first == i)
			members[model->set_count++] = sets[i].members;
	}
	model->set_members = members;
	model->unit_sets = unit_sets;
}

static struct zi_share shares[ZI_WORLD_MAX];
static uint64_t last_stored; /* of sums, on all nodes */

/* What a node holds; what each rank stands for is in `shares`. */
static struct zi_plan plan_of(const struct shards_run *run, uint32_t place)
{
	uint64_t padded[UNITS], members[UNITS];
	uint32_t unit_sets[UNITS];
	struct zi_plan_model model = { .unit_count = UNITS,
		                       .param_count = 4,
		                       .unit_padded = padded };
	struct zi_plan_options options = {
		.config = run->config,
		.training = run->training,
		.local_ranks = nodes_local_size(&ranks, place),
		.here_mask = here_mask(run->places, place),
		.world_size = ranks.world,
		.node_count = net.count,
		.default_staging_bytes = net.nodes[place].staging_bytes,
		.wants_huge = net.nodes[place].cpu.wants_huge,
	};
	struct zi_text text = { "" };
	struct zi_plan plan;

	for (uint32_t i = 0; i < UNITS; i++) {
		padded[i] = zi_geometry_padded(model_elements[i]);
		model.element_count += model_elements[i];
		model.padded_count += padded[i];
	}
	take_sets(run->sets, &model, members, unit_sets);
	cr_assert_eq(zi_plan_make(&model, &options, &plan, &text), 0, "%s", text.chars);
	zi_plan_shares(&model, &options, shares);
	return plan;
}

/* What ranks have been given to write into stays theirs. */
static uint64_t copy_bytes(void)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < ranks.world; i++)
		bytes += report.ranks[i].copy_bytes;
	return bytes;
}

static void compare_logical(const struct shards_run *run)
{
	cr_expect_eq(report.logical_count, ranks.world);
	for (uint32_t i = 0; i < ranks.world; i++) {
		struct zi_plane_bytes bytes;

		zi_logical_bytes(&shares[i], &run->config, &run->training, &bytes);
		cr_expect_eq(report.logical[i].param, bytes.param, "rank %u", i);
		cr_expect_eq(report.logical[i].param_live, bytes.param_live, "rank %u", i);
		cr_expect_eq(report.logical[i].grad, bytes.grad, "rank %u", i);
		cr_expect_eq(report.logical[i].grad_buckets, bytes.grad_buckets, "rank %u", i);
		cr_expect_eq(report.logical[i].accum, bytes.accum, "rank %u", i);
		cr_expect_eq(report.logical[i].state, bytes.state, "rank %u", i);
	}
}

static void compare(const struct shards_run *run, const char *when)
{
	last_stored = 0;
	for (uint32_t place = 0; place < net.count; place++) {
		const struct zi_plan plan = plan_of(run, place);
		uint64_t used;

		last_stored += plan.grad_nvme_bytes;

		cr_assert(zero_report(net.nodes[place].zero, "train", take_report, NULL));
		cr_expect_eq(report.param_cpu_bytes, plan.param_cpu_bytes,
		             "'%s' %s: node %u: %lu, %lu", run->places, when, place,
		             report.param_cpu_bytes, plan.param_cpu_bytes);
		cr_expect_eq(report.grad_cpu_bytes, plan.grad_cpu_bytes, "grad");
		cr_expect_eq(report.accum_cpu_bytes, plan.accum_cpu_bytes, "accum");
		cr_expect_eq(report.state_cpu_bytes, plan.state_cpu_bytes, "state");
		cr_expect_eq(report.staging_cpu_bytes, plan.staging_cpu_bytes, "staging");
		cr_expect_eq(report.coll_cpu_bytes, plan.coll_cpu_bytes, "coll");
		cr_expect_eq(report.reserved_nvme_bytes, plan.reserved_nvme_bytes, "reserved");
		compare_logical(run);
		used = job_of(place)->account->account.used_bytes[TIER_CPU];
		cr_expect_eq(used, plan.cpu_bytes - plan.copy_cpu_bytes + copy_bytes(),
		             "'%s' %s: node %u holds %lu, not %lu", run->places, when, place, used,
		             plan.cpu_bytes - plan.copy_cpu_bytes + copy_bytes());
	}
}

static void check(const struct shards_run *run, uint64_t seed)
{
	struct zi_step_options options = model_options();

	shards_begin(run, seed);
	compare(run, "materialized");
	shards_write();
	compare(run, "committed");
	for (uint64_t step = 1; step <= 2; step++) {
		begin_step(&options);
		for (uint32_t unit = 0; unit < UNITS; unit++)
			for (uint32_t i = 0; i < ranks.world; i++)
				shards_use(i, unit, step, false);
		compare(run, "forward");
		for (uint32_t unit = UNITS; unit-- > 0;)
			for (uint32_t i = 0; i < ranks.world; i++)
				shards_use(i, unit, step, true);
		compare(run, "backward");
		plain_step(&plain, step, &options);
		cr_assert_eq(nodes_all(&ranks, zero_step, NULL), 0, "%s",
		             ranks.actors[0].text.chars);
		compare(run, "committed");
	}
	shards_end(true);
}

Test(shards_plan, each_node_holds_its_share_and_a_pool, .timeout = 120)
{
	static const char *const places[] = { "01", "0123", "001", "0012", "00112233", "011" };
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO3, ZI_STRATEGY_ZERO3,
		                               ZI_STRATEGY_ZERO3, ZI_STRATEGY_DDP };

	each_draw(seed, 24) {
		bool is_nvme = seed % 3 == 0;
		struct shards_run run = {
			.places = places[seed % ZI_COUNT_OF(places)],
			.config = model_config(seed % 2 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32,
			                       is_nvme ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU),
			.training = { .strategy = strategies[seed % ZI_COUNT_OF(strategies)] },
		};

		run.config.schedule = seed % 5 < 2 ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL;
		run.config.resident_bytes = is_nvme && seed % 2 ? 2 * MIB : 0;
		run.config.staging_bytes = is_nvme ? 20 * MIB : 0;
		if (is_nvme && run.training.strategy == ZI_STRATEGY_ZERO3 && seed % 4 > 1)
			run.config.offload_param = ZI_OFFLOAD_NVME;
		if (run.training.strategy == ZI_STRATEGY_ZERO3 && seed % 4 == 1)
			run.config.param_budget_bytes = 3 * MIB;
		check(&run, seed);
	}
}

/* zero1 and zero2 with parameters on NVMe: all of these on each store. */
Test(shards_plan, each_node_stores_all_parameters_and_its_share, .timeout = 120)
{
	static const char *const places[] = { "01", "0123", "0012", "011" };

	each_draw(seed, 12) {
		struct shards_run run = {
			.places = places[seed % ZI_COUNT_OF(places)],
			.config = model_config(seed % 2 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32,
			                       ZI_OFFLOAD_NVME),
			.training = { .strategy = seed / 2 % 2 ? ZI_STRATEGY_ZERO1
			                                       : ZI_STRATEGY_ZERO2 },
		};

		run.config.offload_param = ZI_OFFLOAD_NVME;
		run.config.schedule = seed % 5 < 2 ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL;
		run.config.commit_interval = seed % 4 ? 1 : 2;
		run.config.resident_bytes = seed % 3 ? 0 : 2 * MIB;
		run.config.staging_bytes = 20 * MIB;
		check(&run, seed);
	}
}

/* Wide sums lie in the accumulator, also on nodes that do not make them; tables of what is used are
 * charged. */
Test(shards_plan, wide_sums_are_held_where_they_are_needed, .timeout = 120)
{
	static const char *const places[] = { "0011", "0123", "001122" };

	each_draw(seed, 12) {
		struct shards_run run = {
			.places = places[seed % ZI_COUNT_OF(places)],
			.config = model_config(ZI_DTYPE_BF16,
			                       seed % 3 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME),
			.training = { .strategy = ZI_STRATEGY_ZERO1 + (uint32_t)seed % 3,
			              .shard_size = seed % 4 < 3 ? 2 : 0,
			              .reduce_dtype = ZI_DTYPE_F32 },
		};

		run.training.flags = seed % 2 ? ZI_TRAINING_FIND_UNUSED : 0;
		run.config.schedule = seed % 2 ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL;
		run.config.staging_bytes = seed % 3 ? 0 : 20 * MIB;
		shards_begin(&run, seed);
		compare(&run, "materialized");
		shards_write();
		compare(&run, "committed");
		shards_end(true);
	}
}

/* Without gradients and state, through the same moments. */
Test(shards_plan, forward_only_each_holds_parameters_alone, .timeout = 120)
{
	static const char *const places[] = { "01", "0123", "0012", "011" };
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO3, ZI_STRATEGY_DDP,
		                               ZI_STRATEGY_ZERO1, ZI_STRATEGY_ZERO2 };

	each_draw(seed, 16) {
		bool is_nvme = seed % 3 != 0;
		struct shards_run run = {
			.places = places[seed % ZI_COUNT_OF(places)],
			.config = model_config(seed % 2 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32,
			                       is_nvme ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU),
			.training = { .strategy = strategies[seed / 4 % 4],
			              .flags = ZI_TRAINING_FORWARD_ONLY },
		};

		run.config.staging_bytes = is_nvme ? 20 * MIB : 0;
		if (is_nvme && seed % 4 > 1 && seed < 8)
			run.config.offload_param = ZI_OFFLOAD_NVME;
		shards_begin(&run, seed);
		compare(&run, "materialized");
		shards_write();
		compare(&run, "committed");
		for (uint32_t unit = 0; unit < 2 * UNITS; unit++)
			for (uint32_t i = 0; i < ranks.world; i++)
				shards_use(i, unit % UNITS, 0, false);
		compare(&run, "used");
		shards_end(true);
	}
}

/* What one run draws: each strategy in each place, with budgets. */
static struct shards_run drawn_run(uint64_t seed, const char *places, uint32_t strategy)
{
	uint32_t tiers = (uint32_t)(seed % 4);
	struct shards_run run = {
		.places = places,
		.config = model_config(seed % 5 < 3 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32,
		                       tiers >= 2   ? ZI_OFFLOAD_NVME
		                       : tiers == 1 ? ZI_OFFLOAD_CPU
		                                    : ZI_OFFLOAD_NONE),
		.training = { .strategy = strategy },
	};

	run.config.schedule = seed % 3 ? ZI_SCHEDULE_LOCAL : ZI_SCHEDULE_SHARDED;
	run.config.staging_bytes = tiers >= 2 ? 20 * MIB : 0;
	run.config.resident_bytes = tiers == 2 && seed % 8 > 3 ? 2 * MIB : 0;
	if (tiers == 3 && (strategy == ZI_STRATEGY_ZERO3 || strategy == ZI_STRATEGY_DDP))
		run.config.offload_param = ZI_OFFLOAD_NVME;
	return run;
}

/* Replicas wherever nodes cut them: a node holds what any of its ranks owns, once. */
Test(shards_plan, replicas_are_held_once_a_node, .timeout = 300)
{
	static const struct {
		const char *places;
		uint32_t shard_size;
	} replicas[] = { { "0011", 2 }, { "0101", 2 }, { "0012", 2 },     { "0111", 2 },
		         { "0123", 2 }, { "1022", 2 }, { "00112233", 4 }, { "000111", 3 } };
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO3, ZI_STRATEGY_ZERO1,
		                               ZI_STRATEGY_ZERO2 };

	for (uint64_t seed = 0; seed < 24; seed++) {
		struct shards_run run =
			drawn_run(seed, replicas[seed % 8].places, strategies[seed % 3]);

		run.training.shard_size = replicas[seed % 8].shard_size;
		check(&run, seed + 1);
	}
}

/* Stages, parts of tensors, and ranks that train nothing: a node's part goes by its sets. */
Test(shards_plan, sets_are_held_where_their_ranks_are, .timeout = 300)
{
	static const struct model_set sets[][UNITS] = {
		{ { "left", 0x5 }, { "right", 0xa }, { "all", 0xf } },
		{ { "first", 0x3 }, { "first", 0x3 }, { "second", 0xc } },
		{ { "alone", 0x8 }, { "most", 0x6 }, { "alone", 0x8 } },
	};
	static const char *const places[] = { "0011", "0101", "0123", "0001", "0111" };
	static const uint32_t strategies[] = { ZI_STRATEGY_ZERO3, ZI_STRATEGY_DDP,
		                               ZI_STRATEGY_ZERO1, ZI_STRATEGY_ZERO2 };

	for (uint64_t seed = 0; seed < 30; seed++) {
		struct shards_run run = drawn_run(seed, places[seed % 5], strategies[seed / 4 % 4]);

		run.sets = sets[seed % 3];
		check(&run, seed + 1);
	}
}

/* Of sums that have no room each node stores those that it owns, and has slots for them, and for
 * those that come from other nodes. */
Test(shards_plan, sums_on_the_store_are_what_a_node_owns, .timeout = 300)
{
	static const struct {
		const char *places;
		uint32_t shard_size;
	} replicas[] = { { "01", 0 },       { "0011", 0 }, { "00001111", 0 }, { "000111", 2 },
		         { "00112233", 2 }, { "0011", 2 }, { "01230123", 2 }, { "0001", 0 } };
	uint64_t stored = 0;

	model_elements[0] = 300000;
	model_elements[1] = 280000;
	model_elements[2] = 270000;
	model_is_flat = true;
	for (uint64_t seed = 0; seed < 24; seed++) {
		struct shards_run run = {
			.places = replicas[seed % 8].places,
			.config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME),
			.training = { .strategy =
			                      seed / 8 % 2 ? ZI_STRATEGY_ZERO3 : ZI_STRATEGY_ZERO2,
			              .shard_size = replicas[seed % 8].shard_size,
			              .grad_budget_bytes = 640 << 10 },
		};

		/* Sums of a node of four ranks have room for a part of theirs. */
		run.training.grad_budget_bytes += seed / 8 == 1 ? 757056 : 0;
		run.config.schedule = seed % 3 ? ZI_SCHEDULE_LOCAL : ZI_SCHEDULE_SHARDED;
		run.config.staging_bytes = 20 * MIB;
		run.config.resident_bytes = seed % 5 == 1 ? 2 * MIB : 0;
		if (run.training.strategy == ZI_STRATEGY_ZERO3 && seed % 2)
			run.config.offload_param = ZI_OFFLOAD_NVME;
		check(&run, seed + 1);
		stored += last_stored;
	}
	cr_expect_gt(stored, 0);
}

/* Of a large model a node of two takes half, and three of the longest unit. */
Test(shards_plan, what_two_nodes_hold_is_less_than_one)
{
	uint64_t padded[64];
	struct zi_plan_model model = { .unit_count = 64, .unit_padded = padded };
	struct zi_plan_options options = { .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
		                           .training = { .strategy = ZI_STRATEGY_ZERO3 },
		                           .local_ranks = 2,
		                           .world_size = 2 };
	uint64_t unit = 12 * ZI_SUBGROUP_ELEMENTS;
	struct zi_plan one, two;

	for (uint32_t i = 0; i < 64; i++) {
		padded[i] = unit;
		model.element_count = model.padded_count += unit;
	}
	cr_assert_eq(zi_plan_make(&model, &options, &one, NULL), 0);
	options.local_ranks = 1;
	options.node_count = 2;
	cr_assert_eq(zi_plan_make(&model, &options, &two, NULL), 0);
	cr_expect_eq(one.param_cpu_bytes, 64 * unit * 2);
	cr_expect_eq(two.param_cpu_bytes, 64 * unit + 3 * unit * 2);
	cr_expect_eq(two.state_cpu_bytes, one.state_cpu_bytes / 2);
	cr_expect_lt(two.cpu_bytes, one.cpu_bytes * 6 / 10);
}
