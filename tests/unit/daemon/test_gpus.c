/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: zinfd has a zinf-gpu for each GPU where the configuration wants GPUs and there is a driver;
 * else it starts nothing; and a driver that does not work costs lines in the log only. Method: the
 * daemon's part on a loop, with zinf-gpu on the fake driver.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/loop.h"
#include "daemon/config.h"
#include "daemon/gpus.h"
#include "daemon/worker/gpu_worker.h"
#include "tests/gpu/fake_gpu.h"

static struct config config;
static struct zi_loop *loop;
static struct gpus *gpus;
static struct zi_timer look;
static uint32_t wanted_count;
static enum gpu_worker_state wanted_state;

static void start(enum config_gpu enable, const char *words)
{
	const char *build = getenv("ZINF_BUILD");
	char program[512];

	(void)snprintf(program, sizeof(program), "%s/bin/zinf-gpu",
	               build ? build : "build/release");
	cr_assert_eq(setenv(FAKE_GPU_ENV, words, 1), 0);
	config.gpu_enable = enable;
	cr_assert_eq(zi_loop_new(&loop), 0);
	cr_assert_eq(gpus_new(loop, &config, program, &gpus), 0);
}

static void stop(void)
{
	gpus = gpus_free(gpus);
	loop = zi_loop_free(loop);
}

/* Until there are so many workers in that state. */
static void look_due(struct zi_timer *timer)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < gpus_count(gpus); i++)
		count += gpu_worker_state(gpus_worker(gpus, i)) == wanted_state;
	if (count == wanted_count && gpus_count(gpus) == wanted_count)
		zi_loop_stop(loop);
	else
		zi_loop_arm(loop, timer, zi_clock_deadline_ns(ZI_NS_PER_MS), look_due);
}

static void await(uint32_t count, enum gpu_worker_state state)
{
	wanted_count = count;
	wanted_state = state;
	look_due(&look);
	cr_assert_eq(zi_loop_run(loop), 0);
}

static void use_fake(void)
{
	config_init(&config);
	(void)fake_gpu_path(config.gpu_driver, sizeof(config.gpu_driver), "libcuda.so.1");
}

Test(gpus, each_gpu_has_a_worker)
{
	use_fake();
	start(CONFIG_GPU_AUTO, "gpus=3");
	await(3, GPU_WORKER_UP);
	for (uint32_t i = 0; i < 3; i++) {
		const struct gpu_facts *facts = gpu_worker_facts(gpus_worker(gpus, i));

		cr_assert(facts);
		cr_expect_eq(facts->index, i);
	}
	cr_expect_str_eq(gpu_worker_facts(gpus_worker(gpus, 1))->uuid, FAKE_GPU_UUID_1);
	stop();
}

Test(gpus, a_worker_that_is_started_again_starts_no_others)
{
	static const struct zi_text reason = { "the test ends it" };
	struct zi_text text;

	use_fake();
	start(CONFIG_GPU_YES, "gpus=2");
	await(2, GPU_WORKER_UP);
	gpu_worker_kill(gpus_worker(gpus, 0), &reason);
	cr_assert_eq(gpu_worker_start(gpus_worker(gpus, 0), &text), 0, "%s", text.chars);
	await(2, GPU_WORKER_UP);
	cr_expect_eq(gpu_worker_life(gpus_worker(gpus, 0)), 2);
	stop();
}

Test(gpus, a_driver_without_gpus_leaves_one_worker_that_is_down)
{
	use_fake();
	start(CONFIG_GPU_YES, "gpus=0");
	await(1, GPU_WORKER_DOWN);
	stop();
}

Test(gpus, nothing_is_started_where_gpus_are_not_wanted)
{
	use_fake();
	start(CONFIG_GPU_NO, "");
	cr_expect_eq(gpus_count(gpus), 0);
	stop();
}

Test(gpus, nothing_is_started_where_the_driver_is_missing)
{
	config_init(&config);
	(void)snprintf(config.gpu_driver, sizeof(config.gpu_driver), "/nowhere/libcuda.so.1");
	start(CONFIG_GPU_AUTO, "");
	cr_expect_eq(gpus_count(gpus), 0);
	stop();
}

Test(gpus, a_demanded_driver_that_is_missing_ends_the_worker_only)
{
	config_init(&config);
	(void)snprintf(config.gpu_driver, sizeof(config.gpu_driver), "/nowhere/libcuda.so.1");
	start(CONFIG_GPU_YES, "");
	await(1, GPU_WORKER_DOWN);
	stop();
}

Test(gpus, a_program_that_is_missing_leaves_the_worker_down)
{
	use_fake();
	cr_assert_eq(zi_loop_new(&loop), 0);
	config.gpu_enable = CONFIG_GPU_YES;
	cr_assert_eq(gpus_new(loop, &config, "/nowhere/zinf-gpu", &gpus), 0);
	cr_expect_eq(gpus_count(gpus), 1);
	cr_expect_eq(gpu_worker_state(gpus_worker(gpus, 0)), GPU_WORKER_DOWN);
	stop();
}
