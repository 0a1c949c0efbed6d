/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what common/wire/plan.h says that a job will hold is what it holds, and what a step writes
 * and at most reads, or a pass over all units where nothing is trained; where it says that a
 * setting cannot be, the daemon refuses it too. Method: models and settings drawn from a seed, each
 * both planned and made, and two steps of it.
 */
#include "common/wire/plan.h"
#include "daemon/zero/job/memory.h"
#include "tests/unit/zero/world.h"

#define CASES    200u
#define UNIT_MAX 64u /* of the node */

static_assert(ZI_PLAN_SLOTS_MIN == ZERO_STAGING_SLOTS_MIN, "the same pipeline");
static_assert(ZI_PLAN_SLOTS_MAX == ZERO_STAGING_SLOTS_MAX, "the same pipeline");

struct drawn {
	uint32_t unit_count, world;
	uint64_t elements[UNIT_MAX], padded[UNIT_MAX];
	uint64_t members[UNIT_MAX]; /* ranks that train it */
	uint32_t unit_sets[UNIT_MAX];
	struct zi_plan_model model;
	struct zi_plan_options options;
};

static uint64_t random_state;
static struct zero_job_report report;
static uint32_t bucket_count;  /* jobs whose gradients were in buckets */
static uint32_t forward_count; /* that train nothing */

static uint32_t draw(uint32_t below)
{
	random_state += 0x9e3779b97f4a7c15ull;
	return (uint32_t)(test_noise(random_state) % below);
}

/* A few elements, about a tile, about a subgroup, or more; of many units a few. */
static uint64_t draw_elements(bool is_many)
{
	static const uint32_t most[] = { 4096, 40000, 270000, 600000 };

	return 1 + draw(most[is_many ? 0 : draw(4)]);
}

/* Blocks of one length, and a small unit before and behind them, as models have them. */
static void draw_blocks(struct drawn *drawn)
{
	uint64_t elements = 40000 + draw(270000);

	drawn->unit_count = 6 + draw(3);
	for (uint32_t i = 0; i < drawn->unit_count; i++)
		drawn->elements[i] = i && i < drawn->unit_count - 1 ? elements : 1 + draw(4096);
}

static struct zi_job_config draw_config(void)
{
	struct zi_job_config drawn = model_config(1 + draw(_ZI_DTYPE_FLOAT_COUNT - 1),
	                                          draw(3) ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU);

	if (!draw(3))
		drawn.grad_dtype = ZI_DTYPE_F32;
	drawn.optimizer = 1 + draw(_ZI_OPTIMIZER_COUNT - 1);
	drawn.schedule = 1 + draw(2);
	if (drawn.offload_optimizer != ZI_OFFLOAD_NVME)
		return drawn;
	drawn.commit_interval = draw(3);
	drawn.resident_bytes = draw(2) * draw(8 << 20);
	drawn.staging_bytes = draw(2) * (1 + draw(24 << 20));
	if (!draw(2))
		return drawn;
	drawn.offload_param = ZI_OFFLOAD_NVME;
	drawn.param_budget_bytes = draw(2) * (1 + draw(4 << 20));
	return drawn;
}

/* Any strategy; of those that divide gradients perhaps a budget, of about a unit or more. */
static struct zi_job_training draw_training(const struct drawn *drawn)
{
	struct zi_job_training training = { .strategy = draw(_ZI_STRATEGY_COUNT),
		                            .reduce_dtype = draw(3) ? 0 : ZI_DTYPE_F32 };
	uint64_t largest = 0;

	for (uint32_t i = 0; i < drawn->unit_count; i++)
		largest = ZI_MAX(largest, drawn->padded[i]);
	/* On NVMe it may leave sums no room in memory, and in f32 they never go to the store. */
	if (training.strategy >= ZI_STRATEGY_ZERO2 && draw(2) &&
	    (drawn->options.config.grad_dtype != ZI_DTYPE_F32 ||
	     drawn->options.config.offload_optimizer != ZI_OFFLOAD_NVME))
		training.grad_budget_bytes = 1 + largest + draw((uint32_t)(8 * largest));
	if (!draw(5))
		training.flags = ZI_TRAINING_FORWARD_ONLY;
	if (!draw(4))
		training.flags |= ZI_TRAINING_FIND_UNUSED;
	return training;
}

static void draw_case(struct drawn *drawn)
{
	*drawn = (struct drawn){ .unit_count = 1 + draw(draw(4) ? 5 : UNIT_MAX),
		                 .world = 1 + draw(3) };
	bool has_sets = draw(2);

	for (uint32_t i = 0; i < drawn->unit_count; i++)
		drawn->elements[i] = draw_elements(drawn->unit_count > 5);
	if (!draw(4))
		draw_blocks(drawn);
	for (uint32_t i = 0; i < drawn->unit_count; i++) {
		drawn->padded[i] = zi_geometry_padded(drawn->elements[i]);
		drawn->model.element_count += drawn->elements[i];
		drawn->model.padded_count += drawn->padded[i];
		drawn->members[i] =
			has_sets ? 1 + draw((1u << drawn->world) - 1) : job_mask_of(drawn->world);
		drawn->unit_sets[i] = i;
	}
	drawn->model.set_count = has_sets ? drawn->unit_count : 0;
	drawn->model.set_members = drawn->members;
	drawn->model.unit_sets = drawn->unit_sets;
	drawn->model.unit_count = drawn->model.param_count = drawn->unit_count;
	drawn->model.unit_padded = drawn->padded;
	drawn->options = (struct zi_plan_options){
		.config = draw_config(),
		.local_ranks = drawn->world,
		.world_size = drawn->world,
		.default_staging_bytes = node.staging_bytes,
		.wants_huge = draw(2),
	};
	drawn->options.training = draw_training(drawn);
	node.cpu.wants_huge = drawn->options.wants_huge;
}

static void take_report(void *arg, const struct zero_job_report *given)
{
	(void)arg;
	report = *given;
}

/* The result of materialize. */
static int make(const struct drawn *drawn)
{
	model_attach(&node, actors, drawn->world,
	             &(struct attach_options){ .config = drawn->options.config,
	                                       .training = drawn->options.training });
	for (uint32_t rank = 0; rank < drawn->world; rank++)
		for (uint32_t unit = 0; unit < drawn->unit_count; unit++) {
			char name[16];

			const struct model_set set = { name, drawn->members[unit] };

			(void)snprintf(name, sizeof(name), "s.%u", unit);
			if (drawn->model.set_count)
				cr_assert_eq(layout_set(&actors[rank], &set), 0);
			(void)snprintf(name, sizeof(name), "u.%u", unit);
			layout_unit(&actors[rank], name);
			(void)snprintf(name, sizeof(name), "p.%u", unit);
			layout_param(&actors[rank], name, drawn->elements[unit], 0);
		}
	return all_call(actors, drawn->world, zero_materialize, NULL);
}

/* Gradients are what lies in the buffers: zeros. */
static void make_step(const struct drawn *drawn)
{
	struct zi_step_options options = model_options();

	cr_assert_eq(all_call(actors, drawn->world, zero_step_begin,
	                      &(struct zero_op){ .options = options }),
	             0, "%s", actors[0].text.chars);
	for (uint32_t unit = 0; unit < drawn->unit_count; unit++)
		for (uint32_t rank = 0; rank < drawn->world; rank++) {
			if (!(drawn->members[unit] >> rank & 1))
				continue;
			cr_assert_eq(actor_unit(&actors[rank], zero_grad_acquire, unit), 0);
			cr_assert_eq(actor_unit(&actors[rank], zero_reduce, unit), 0);
		}
	cr_assert_eq(all_call(actors, drawn->world, zero_step,
	                      &(struct zero_op){ .blob = "", .blob_bytes = 0 }),
	             0, "%s", actors[0].text.chars);
}

/* @former_bytes: charged before the job was: what processes of former ones still hold. */
static void compare_memory(const struct zi_plan *plan, uint64_t former_bytes)
{
	cr_assert(zero_report(node.zero, "train", take_report, NULL));
	cr_expect_eq(report.param_cpu_bytes, plan->param_cpu_bytes, "param");
	cr_expect_eq(report.grad_cpu_bytes, plan->grad_cpu_bytes, "grad");
	cr_expect_eq(actors[0].rank->job->grad_pool != NULL, plan->bucket_cpu_bytes > 0);
	bucket_count += plan->bucket_cpu_bytes > 0;
	cr_expect_eq(report.accum_cpu_bytes, plan->accum_cpu_bytes, "accum");
	cr_expect_eq(report.state_cpu_bytes, plan->state_cpu_bytes, "state");
	cr_expect_eq(report.staging_cpu_bytes, plan->staging_cpu_bytes, "staging");
	cr_expect_eq(report.reserved_nvme_bytes, plan->reserved_nvme_bytes, "reserved");
	/* No rank has a copy of a unit yet. */
	cr_expect_eq(node.cpu.used_bytes - former_bytes, plan->cpu_bytes - plan->copy_cpu_bytes,
	             "charged");
}

static void commit(const struct drawn *drawn)
{
	cr_assert_eq(all_call(actors, drawn->world, zero_commit,
	                      &(struct zero_op){ .blob = "", .blob_bytes = 0 }),
	             0, "%s", actors[0].text.chars);
}

/* All ranks use all units, once. */
static void compare_pass(const struct drawn *drawn, const struct zi_plan *plan)
{
	commit(drawn);
	for (uint32_t unit = 0; unit < drawn->unit_count; unit++) {
		const struct zero_op op = { .unit = unit };

		cr_assert_eq(all_call(actors, drawn->world, zero_unshard, &op), 0, "%s",
		             actors[0].text.chars);
		cr_assert_eq(all_call(actors, drawn->world, zero_reshard, &op), 0);
	}
	cr_assert(zero_report(node.zero, "train", take_report, NULL));
	cr_expect_leq(report.pool.read_bytes, plan->read_bytes_per_step);
	cr_expect_eq(report.has_pool, plan->read_bytes_per_step > 0);
	cr_expect_eq(plan->write_bytes_per_step, 0);
	cr_expect_eq(report.param_nvme_bytes, plan->param_nvme_bytes, "param on NVMe");
	cr_expect_eq(report.state_nvme_bytes + plan->state_nvme_bytes, 0, "state on NVMe");
	forward_count++;
}

static void compare_steps(const struct drawn *drawn, const struct zi_plan *plan)
{
	const struct zi_step_stats *stats = &actors[0].calls[0].op.stats;

	commit(drawn);
	for (uint32_t step = 0; step < 2; step++) {
		make_step(drawn);
		cr_expect_leq(stats->read_bytes, plan->read_bytes_per_step);
		if (drawn->options.config.commit_interval <= 1)
			cr_expect_eq(stats->write_bytes, plan->write_bytes_per_step);
	}
	if (drawn->options.config.commit_interval > 1)
		commit(drawn);
	cr_assert(zero_report(node.zero, "train", take_report, NULL));
	cr_expect_eq(report.param_nvme_bytes, plan->param_nvme_bytes, "param on NVMe");
	cr_expect_eq(report.state_nvme_bytes, plan->state_nvme_bytes, "state on NVMe");
}

/* Return: it could be. */
static bool check_case(const struct drawn *drawn)
{
	struct zi_plan plan;
	struct zi_text text = { "" };
	uint64_t former_bytes = node.cpu.used_bytes;
	int planned = zi_plan_make(&drawn->model, &drawn->options, &plan, &text);
	int made = make(drawn);

	cr_assert_eq(made != 0, planned != 0, "planned \"%s\", made \"%s\"", text.chars,
	             actors[0].text.chars);
	if (!made) {
		compare_memory(&plan, former_bytes);
		if (drawn->options.training.flags & ZI_TRAINING_FORWARD_ONLY)
			compare_pass(drawn, &plan);
		else
			compare_steps(drawn, &plan);
		for (uint32_t i = 1; i < drawn->world; i++)
			actor_leave(&actors[i], true);
		cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0, "%s",
		             actors[0].text.chars);
		actors[0].rank = NULL;
	} else {
		actors_leave(actors, drawn->world, true);
	}
	node_settle(&node);
	return !made;
}

Test(zero_plan, what_is_planned_is_what_a_job_holds, .timeout = 300)
{
	uint32_t made_count = 0;

	node_init(&node);
	node.store_bytes = 256 * MIB;
	node.cpu_bytes = 1024 * MIB;
	node_start(&node);
	for (uint32_t i = 0; i < CASES; i++) {
		struct drawn drawn;

		random_state = i;
		draw_case(&drawn);
		made_count += check_case(&drawn);
	}
	cr_assert_gt(made_count, CASES / 2, "%u could be", made_count);
	cr_assert_lt(made_count, CASES, "and all of them");
	cr_assert_gt(bucket_count, CASES / 20, "%u had buckets", bucket_count);
	cr_assert_gt(forward_count, CASES / 10, "%u trained nothing", forward_count);
	node_deinit(&node);
}
