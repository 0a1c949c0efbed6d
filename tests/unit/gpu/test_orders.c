/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a pipeline whose streams wait as they must is right in every order, and one of which a wait
 * was left out is found. Method: tests/gpu/pipeline.h in children, eager, late, and shuffled from
 * many seeds; each of its four waits is left out.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/gpu/pipeline.h"
#include "tests/unit/gpu/fixture.h"

#define SEEDS 12u

enum { RIGHT, WRONG, FAILED };

/* One run in a process of its own. Return: RIGHT, WRONG or FAILED. */
static int run(const char *order, enum pipeline_wait left_out, bool polls)
{
	pid_t child = fork();
	int status;

	if (!child) {
		struct zi_gpu_driver driver = { 0 };
		struct pipeline pipeline = { .left_out = left_out, .polls = polls };
		int64_t wrong_count = -1;

		if (open_gpu(&driver, order, NULL))
			_exit(FAILED);
		pipeline.cuda = &driver.cuda;
		if (!pipeline_start(&pipeline))
			wrong_count = pipeline_run(&pipeline);
		if (pipeline_stop(&pipeline))
			wrong_count = -1;
		zi_gpu_driver_close(&driver);
		_exit(wrong_count < 0 ? FAILED : wrong_count ? WRONG : RIGHT);
	}
	status = wait_child(child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : FAILED;
}

static int run_seed(uint32_t seed, enum pipeline_wait left_out, bool polls)
{
	char order[32];

	(void)snprintf(order, sizeof(order), "order=shuffled:%u", seed); /* Fits. */
	return run(order, left_out, polls);
}

Test(gpu_orders, eager_and_late_give_the_right_bits)
{
	for (int polls = 0; polls < 2; polls++) {
		cr_assert_eq(run("order=eager", PIPELINE_NO_WAIT, polls), RIGHT);
		cr_assert_eq(run("order=late", PIPELINE_NO_WAIT, polls), RIGHT);
	}
}

Test(gpu_orders, each_shuffle_gives_the_right_bits)
{
	for (uint32_t seed = 1; seed <= SEEDS; seed++)
		cr_assert_eq(run_seed(seed, PIPELINE_NO_WAIT, seed % 2), RIGHT, "seed %u", seed);
}

Test(gpu_orders, a_shuffle_is_the_same_each_time)
{
	uint32_t wrong_count = 0;

	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		int outcome = run_seed(seed, PIPELINE_USED, false);

		cr_assert_eq(run_seed(seed, PIPELINE_USED, false), outcome, "seed %u", seed);
		wrong_count += outcome == WRONG;
	}
	cr_assert_gt(wrong_count, 0);
}

/* At least one seed of the few that a test has time for. */
static void expect_found(enum pipeline_wait left_out)
{
	uint32_t found_count = 0;

	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		int outcome = run_seed(seed, left_out, false);

		cr_assert_neq(outcome, FAILED, "seed %u", seed);
		found_count += outcome == WRONG;
	}
	cr_assert_geq(found_count, SEEDS / 3, "%u of %u", found_count, SEEDS);
}

Test(gpu_orders, a_copy_that_does_not_wait_for_the_last_use_is_found)
{
	expect_found(PIPELINE_USED);
}

Test(gpu_orders, a_kernel_that_does_not_wait_for_its_unit_is_found)
{
	expect_found(PIPELINE_HERE);
	cr_assert_eq(run("order=late", PIPELINE_HERE, false), WRONG);
}

Test(gpu_orders, a_kernel_that_does_not_wait_for_its_result_to_be_copied_is_found)
{
	expect_found(PIPELINE_FREE);
}

Test(gpu_orders, a_copy_that_does_not_wait_for_its_kernel_is_found)
{
	expect_found(PIPELINE_RESULT);
	cr_assert_eq(run("order=late", PIPELINE_RESULT, false), WRONG);
}
