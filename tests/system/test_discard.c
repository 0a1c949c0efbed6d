/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: through a real zinfd, steps whose options come when they end, between steps that are
 * discarded wherever each rank was, end with the bits of plain training, and the norm is told
 * before; a job that discards steps resumes as another; a rank that is killed within a discarded
 * step ends the group, and the job goes on at its last step.
 * Method: the made-up trainer (harness/trainer.h), each rank a process, against its reference.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "tests/harness/ranks.h"
#include "tests/system/system.h"

TestSuite(discard, .timeout = 200);

struct discard_case {
	const char *strategy;
	uint32_t world;
	enum zinf_dtype dtype;
	enum zinf_grad_reduction reduction;
	uint32_t accumulate;
	enum zinf_offload state, param;
	uint32_t commit_interval;
	double max_norm;
	bool is_deferred, is_eager, is_sparse;
};

#define PER_STEP  ZINF_REDUCE_PER_STEP
#define PER_MICRO ZINF_REDUCE_PER_MICRO_BATCH
#define NONE      ZINF_OFFLOAD_NONE
#define CPU       ZINF_OFFLOAD_CPU
#define NVME      ZINF_OFFLOAD_NVME

static const struct discard_case cases[] = {
	{ "ddp", 1, ZINF_F32, PER_STEP, 1, NONE, NONE, 0, 0, true, false, false },
	{ "ddp", 2, ZINF_BF16, PER_STEP, 2, CPU, NONE, 0, 1.0, true, false, false },
	{ "ddp", 2, ZINF_BF16, PER_STEP, 1, NVME, NONE, 0, 1.0, false, true, false },
	{ "zero1", 3, ZINF_F32, PER_MICRO, 2, NVME, NONE, 3, 0, true, true, false },
	{ "zero2", 2, ZINF_BF16, PER_MICRO, 3, NVME, NONE, 0, 0.5, true, false, false },
	{ "zero3", 4, ZINF_BF16, PER_STEP, 1, NVME, NVME, 0, 1.0, true, true, false },
	{ "zero3", 2, ZINF_BF16, PER_STEP, 1, NVME, NVME, 2, 0, false, false, false },
	{ "zero2", 4, ZINF_BF16, PER_STEP, 1, NONE, NONE, 0, 0, true, false, false },
	{ "ddp", 3, ZINF_F32, PER_MICRO, 2, NVME, NONE, 0, 1.0, true, false, true },
};

/* Many units, so that four ranks have buckets. */
static const struct trainer_model layers = {
	.unit_count = 8,
	.unit_params = { 2, 1, 2, 1, 2, 1, 2, 1 },
	.elements = { 9000, 33, 12000, 9999, 1, 12288, 8000, 300, 12000, 9000, 1, 11000 },
};

static struct trainer_settings settings_of(const struct harness *harness,
                                           const struct discard_case *one)
{
	struct trainer_settings settings = ranks_settings(harness, "train", one->world);

	cr_assert_eq(zinf_strategy_by_name(one->strategy, &settings.options), 0);
	settings.options.param_dtype = settings.options.grad_dtype = one->dtype;
	settings.options.grad_reduction = one->reduction;
	settings.options.offload_optimizer = one->state;
	settings.options.offload_param = one->param;
	settings.options.commit_interval = one->commit_interval;
	settings.model = &layers;
	settings.accumulate = one->accumulate;
	settings.steps = 4;
	settings.step.max_norm = one->max_norm;
	settings.is_deferred = one->is_deferred;
	settings.is_eager = one->is_eager;
	settings.is_sparse = settings.options.finds_unused = one->is_sparse;
	settings.discard_count = 3;
	return settings;
}

static void train(const struct discard_case *one)
{
	struct harness harness;
	struct ranks ranks;

	system_start(&harness, &(struct harness_options){ .nvme_size = "64M" });
	struct trainer_settings settings = settings_of(&harness, one);

	cr_assert_eq(ranks_train(&ranks, &settings), 0, "%s", one->strategy);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(discard, one_rank_with_state_in_memory)
{
	train(&cases[0]);
}
Test(discard, ddp_with_accumulation)
{
	train(&cases[1]);
}
Test(discard, ddp_with_state_on_nvme)
{
	train(&cases[2]);
}
Test(discard, zero1_with_micro_batches_and_steps_between_commits)
{
	train(&cases[3]);
}
Test(discard, zero2_with_micro_batches)
{
	train(&cases[4]);
}
Test(discard, zero3_with_all_on_nvme)
{
	train(&cases[5]);
}
Test(discard, zero3_with_options_from_the_beginning)
{
	train(&cases[6]);
}
Test(discard, zero2_in_memory)
{
	train(&cases[7]);
}

Test(discard, parameters_without_a_gradient)
{
	train(&cases[8]);
}

struct killed {
	enum trainer_point point;
	int64_t step;
};

static const struct killed kills[] = {
	{ TRAINER_NORMED, 3 },
	{ TRAINER_WASTED, 2 },
	{ TRAINER_DISCARDED, 2 },
};

static void kill_rank(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	const struct killed *killed = arg;

	if (point == killed->point && trainer->rank == 1 && trainer->step == killed->step)
		(void)raise(SIGKILL);
}

static void kill_and_resume(struct harness *harness, struct killed killed)
{
	struct trainer_settings settings = settings_of(harness, &cases[2]);
	struct ranks ranks;

	settings.is_eager = false;
	settings.is_deferred = true;
	settings.options.incarnation = "first";
	settings.hook = kill_rank;
	settings.hook_arg = &killed;
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	cr_assert_eq(ranks_wait(&ranks, 1), 1000 + SIGKILL);
	cr_assert_eq(ranks_wait(&ranks, 0), 1);
	cr_assert_eq(ranks.reports[0]->result, -EPIPE, "%d: %s", ranks.reports[0]->result,
	             ranks.reports[0]->text);
	cr_assert_not_null(strstr(ranks.reports[0]->text, "rank 1"));
	ranks_free(&ranks);
	settings.hook = NULL;
	settings.options.incarnation = "second";
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[0]->first_steps[0], 2);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	cr_assert_eq(system_destroy_job(&settings), 0);
}

Test(discard, rank_that_is_killed_ends_the_group_and_the_job_resumes)
{
	struct harness harness;

	system_start(&harness, &(struct harness_options){ .nvme_size = "64M" });
	for (size_t i = 0; i < sizeof(kills) / sizeof(*kills); i++)
		kill_and_resume(&harness, kills[i]);
	cr_assert_eq(harness_stop(&harness), 0);
}
