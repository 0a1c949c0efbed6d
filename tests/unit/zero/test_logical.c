/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what an administrator sees of a job says what each rank stands for by its strategy, to the
 * byte, for worlds of 1 to 4, also at rest and after a restart, while what is held does not depend
 * on the strategy; and what a rank holds alone. Method: shares of the model dealt out by hand.
 */
#include "tests/unit/zero/world.h"

/* Of subgroups of 4096, 262144, 262144, 8192 and 20480 elements: who has least is next. */
static const uint64_t owned[4][4] = {
	{ 557056 },
	{ 286720, 270336 },
	{ 32768, 262144, 262144 },
	{ 24576, 262144, 262144, 8192 },
};

#define ALL     557056ull
#define LONGEST 532480ull

static struct zero_job_report report;
static struct zi_job_config config;

static void take_report(void *arg, const struct zero_job_report *given)
{
	(void)arg;
	report = *given;
}

static void look(void)
{
	cr_assert(zero_report(node.zero, "train", take_report, NULL));
}

static void make(uint32_t world, const struct zi_job_training *training)
{
	model_begin(&node, actors, world,
	            &(struct attach_options){ .config = config, .training = *training });
}

/* One that leaves as it came: its job goes on at the next turn. */
static void leave(uint32_t world)
{
	actors_leave(actors, world, true);
	node_settle(&node);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* bf16: 2 bytes of parameters and gradients, 10 of state. */
static void expect_table(uint32_t strategy, uint32_t world)
{
	const char *name = zi_strategy_name(strategy);

	look();
	cr_assert_eq(report.logical_count, world, "%u of %u", report.logical_count, world);
	for (uint32_t i = 0; i < world; i++) {
		const struct zi_plane_bytes *bytes = &report.logical[i];
		uint64_t mine = owned[world - 1][i], rest = ALL - mine;
		bool is_zero1 = strategy >= ZI_STRATEGY_ZERO1;
		bool is_zero2 = strategy >= ZI_STRATEGY_ZERO2;
		bool is_zero3 = strategy >= ZI_STRATEGY_ZERO3;

		cr_expect_eq(bytes->param, 2 * (is_zero3 ? mine : ALL), "%s, rank %u of %u", name,
		             i, world);
		cr_expect_eq(bytes->param_live, is_zero3 ? 2 * least(3 * LONGEST, rest) : 0,
		             "%s, rank %u of %u", name, i, world);
		cr_expect_eq(bytes->grad, 2 * (is_zero2 ? mine : ALL), "%s, rank %u of %u", name, i,
		             world);
		cr_expect_eq(bytes->grad_buckets, is_zero2 ? 2 * least(2 * LONGEST, rest) : 0,
		             "%s, rank %u of %u", name, i, world);
		cr_expect_eq(bytes->state, 10 * (is_zero1 ? mine : ALL), "%s, rank %u of %u", name,
		             i, world);
		cr_expect_eq(bytes->accum, 0);
	}
}

static void setup(void)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	node_start(&node);
}

static void teardown(void)
{
	node_deinit(&node);
}

TestSuite(zero_logical, .init = setup, .fini = teardown);

Test(zero_logical, each_rank_is_its_row_of_the_table_and_held_is_the_same)
{
	for (uint32_t world = 1; world <= 4; world++) {
		uint64_t param_bytes = 0, stored_bytes = 0;

		for (uint32_t s = ZI_STRATEGY_DDP; s <= ZI_STRATEGY_ZERO3; s++) {
			make(world, &(struct zi_job_training){ .strategy = s });
			expect_table(s, world);
			if (s > ZI_STRATEGY_DDP) {
				cr_expect_eq(report.param_cpu_bytes, param_bytes);
				cr_expect_eq(report.reserved_nvme_bytes, stored_bytes);
			}
			param_bytes = report.param_cpu_bytes;
			stored_bytes = report.reserved_nvme_bytes;
			leave(world);
		}
	}
}

/* Two replicas of two ranks: each of them has the shares of a world of two. */
Test(zero_logical, a_shard_size_repeats_the_shares_of_one_replica)
{
	make(4, &(struct zi_job_training){ .strategy = ZI_STRATEGY_ZERO3, .shard_size = 2 });
	look();
	cr_assert_eq(report.logical_count, 4);
	for (uint32_t i = 0; i < 4; i++)
		cr_expect_eq(report.logical[i].state, 10 * owned[1][i % 2], "rank %u", i);
	leave(4);
}

Test(zero_logical, a_job_at_rest_shows_the_world_that_trained_last)
{
	const struct zi_job_training training = { .strategy = ZI_STRATEGY_ZERO2 };

	make(3, &training);
	leave(3);
	expect_table(ZI_STRATEGY_ZERO2, 3);
	node_stop(&node);
	node_start(&node);
	expect_table(ZI_STRATEGY_ZERO2, 3);
	make(2, &(struct zi_job_training){ .strategy = ZI_STRATEGY_ZERO3 });
	expect_table(ZI_STRATEGY_ZERO3, 2);
	leave(2);
}

/* It never was that job: what trained last is what it stands for. */
Test(zero_logical, a_start_that_was_refused_changes_nothing_of_a_stored_job)
{
	const struct zi_job_training training = { .strategy = ZI_STRATEGY_ZERO3 };
	uint64_t capacity_bytes = node.cpu.capacity_bytes;
	struct zi_job_config heavy = config;
	struct zero_job *job;
	uint32_t weight;

	make(2, &(struct zi_job_training){ .strategy = ZI_STRATEGY_ZERO1 });
	leave(2);
	job = node_job(&node, "train");
	cr_assert_not_null(job->flow);
	weight = nvme_flow_weight(job->flow);
	heavy.io_weight = ZI_IO_WEIGHT_MAX;
	node.cpu.capacity_bytes = node.cpu.used_bytes + MIB;
	model_attach(&node, actors, 4,
	             &(struct attach_options){ .config = heavy, .training = training });
	cr_assert_eq(model_materialize(actors, 4), -ENOSPC, "%s", actors[0].text.chars);
	expect_table(ZI_STRATEGY_ZERO1, 2);
	cr_expect_eq(nvme_flow_weight(job->flow), weight);
	cr_expect_eq(report.training.strategy, ZI_STRATEGY_ZERO1);
	node.cpu.capacity_bytes = capacity_bytes;
	cr_assert_eq(all_call(actors, 4, zero_materialize, NULL), 0, "%s", actors[0].text.chars);
	expect_table(ZI_STRATEGY_ZERO3, 4);
	leave(4);
	expect_table(ZI_STRATEGY_ZERO3, 4);
}

Test(zero_logical, a_job_without_a_model_stands_for_nothing)
{
	model_attach(&node, actors, 2, &(struct attach_options){ .config = config });
	look();
	cr_expect_eq(report.logical_count, 0);
	cr_expect_eq(report.ranks[0].grad_bytes, 0);
	leave(2);
}

Test(zero_logical, sums_of_the_sharded_schedule_are_a_plane_of_their_own)
{
	config.schedule = ZI_SCHEDULE_SHARDED;
	make(2, &(struct zi_job_training){ .strategy = ZI_STRATEGY_ZERO2 });
	look();
	cr_expect_eq(report.logical[0].accum, 4 * owned[1][0]);
	cr_expect_eq(report.logical[1].accum, 4 * owned[1][1]);
	leave(2);
	make(2, &(struct zi_job_training){ .strategy = ZI_STRATEGY_ZERO1 });
	look();
	cr_expect_eq(report.logical[1].accum, 4 * ALL);
	leave(2);
}

Test(zero_logical, what_a_rank_holds_alone_is_told_beside_it)
{
	make(2, &(struct zi_job_training){ 0 });
	look();
	cr_expect_eq(report.ranks[0].grad_bytes + report.ranks[1].grad_bytes,
	             report.grad_cpu_bytes);
	cr_expect_eq(report.ranks[1].tensor_bytes, 0);
	cr_assert_eq(
		actor_call(&actors[1], zero_tensor_open, &(struct zero_op){ .bytes = 1 << 20 }), 0,
		"%s", actors[1].text.chars);
	cr_assert_eq(actor_unit(&actors[1], zero_param_write_begin, 1), 0, "%s",
	             actors[1].text.chars);
	look();
	cr_expect_eq(report.ranks[1].tensor_bytes, 1 << 20);
	cr_expect_geq(report.ranks[1].copy_bytes, 2 * LONGEST);
	cr_expect_eq(report.ranks[0].tensor_bytes, 0);
	leave(2);
}
