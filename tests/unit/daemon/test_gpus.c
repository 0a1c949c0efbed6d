/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: zinfd has a zinf-gpu for each GPU where the configuration wants GPUs and there is a driver;
 * else it starts nothing; and a driver that does not work costs lines in the log only. Method: the
 * daemon's part on a loop, with zinf-gpu on the fake driver.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/loop.h"
#include "daemon/config.h"
#include "daemon/device/gpu.h"
#include "daemon/gpus.h"
#include "daemon/tier/account.h"
#include "daemon/tier/arena.h"
#include "daemon/tier/tier.h"
#include "daemon/topo/topo.h"
#include "daemon/worker/gpu_worker.h"
#include "tests/gpu/fake_gpu.h"

static struct config config;
static struct zi_loop *loop;
static struct tier_arenas *arenas;
static struct gpus *gpus;
static struct zi_timer look;
static uint32_t wanted_count;
static enum gpu_worker_state wanted_state;
static const struct topo *machine;
static uint64_t retry_ns;

static void start_program(enum config_gpu enable, const char *program)
{
	config.gpu_enable = enable;
	cr_assert_eq(zi_loop_new(&loop), 0);
	cr_assert_eq(tier_arenas_new(loop, &arenas), 0);
	cr_assert_eq(gpus_new(&(struct gpus_options){ .loop = loop,
	                                              .config = &config,
	                                              .arenas = arenas,
	                                              .topo = machine,
	                                              .retry_ns = retry_ns,
	                                              .program = program },
	                      &gpus),
	             0);
}

static void start(enum config_gpu enable, const char *words)
{
	const char *build = getenv("ZINF_BUILD");
	char program[512];

	(void)snprintf(program, sizeof(program), "%s/bin/zinf-gpu",
	               build ? build : "build/release");
	cr_assert_eq(setenv(FAKE_GPU_ENV, words, 1), 0);
	start_program(enable, program);
}

static void stop(void)
{
	gpus = gpus_free(gpus);
	arenas = tier_arenas_free(arenas);
	loop = zi_loop_free(loop);
}

#define expect_explanation(says)                                                              \
	cr_expect(strstr(tier_arenas_explanation(arenas), says), "'%s' is not in '%s'", says, \
	          tier_arenas_explanation(arenas))

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

Test(gpus, each_gpu_is_a_tier_once_all_are_open)
{
	struct tier *tier;

	use_fake();
	config.gpu_reserve_bytes = 256 << 20;
	start(CONFIG_GPU_AUTO, "gpus=2,bytes=1G");
	cr_expect_not(tier_arenas_is_ready(arenas));
	cr_expect_eq(tier_arenas_count(arenas), 0);
	await(2, GPU_WORKER_UP);
	cr_expect(tier_arenas_is_ready(arenas));
	cr_assert_eq(tier_arenas_count(arenas), 2);
	tier = tier_arenas_find(arenas, FAKE_GPU_UUID_1);
	cr_assert(tier);
	cr_expect_eq(tier->capacity_bytes, 768 << 20);
	cr_expect(tier->gpu->is_up);
	cr_expect_gt(tier->gpu->facts.granularity_bytes, 0);
	cr_expect_str_empty(tier_arenas_explanation(arenas));
	stop();
}

Test(gpus, one_that_cannot_pass_memory_on_is_no_tier)
{
	use_fake();
	start(CONFIG_GPU_YES, "gpus=1,no=fds");
	await(1, GPU_WORKER_DOWN);
	cr_expect(tier_arenas_is_ready(arenas));
	cr_expect_eq(tier_arenas_count(arenas), 0);
	expect_explanation("cannot export memory");
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
	cr_expect_eq(tier_arenas_count(arenas), 2);
	stop();
}

Test(gpus, a_driver_without_gpus_leaves_one_worker_that_is_down)
{
	use_fake();
	start(CONFIG_GPU_YES, "gpus=0");
	await(1, GPU_WORKER_DOWN);
	cr_expect(tier_arenas_is_ready(arenas));
	cr_expect_neq(tier_arenas_explanation(arenas)[0], '\0');
	stop();
}

Test(gpus, nothing_is_started_where_gpus_are_not_wanted)
{
	use_fake();
	start(CONFIG_GPU_NO, "");
	cr_expect_eq(gpus_count(gpus), 0);
	cr_expect(tier_arenas_is_ready(arenas));
	expect_explanation("gpu.enable is no");
	stop();
}

Test(gpus, nothing_is_started_where_the_driver_is_missing)
{
	config_init(&config);
	(void)snprintf(config.gpu_driver, sizeof(config.gpu_driver), "/nowhere/libcuda.so.1");
	start(CONFIG_GPU_AUTO, "");
	cr_expect_eq(gpus_count(gpus), 0);
	expect_explanation("there is no /nowhere/libcuda.so.1 (gpu.driver)");
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
	start_program(CONFIG_GPU_YES, "/nowhere/zinf-gpu");
	cr_expect(tier_arenas_is_ready(arenas));
	expect_explanation("zinf-gpu");
	cr_expect_eq(gpus_count(gpus), 1);
	cr_expect_eq(gpu_worker_state(gpus_worker(gpus, 0)), GPU_WORKER_DOWN);
	stop();
}

/* ---- GPUs that do not open ---- */

static const enum gpu_worker_state *wanted_states; /* (wanted_count,) */

static void look_states_due(struct zi_timer *timer)
{
	bool are_there = gpus_count(gpus) == wanted_count;

	for (uint32_t i = 0; are_there && i < wanted_count; i++)
		are_there = gpu_worker_state(gpus_worker(gpus, i)) == wanted_states[i];
	if (are_there)
		zi_loop_stop(loop);
	else
		zi_loop_arm(loop, timer, zi_clock_deadline_ns(ZI_NS_PER_MS), look_states_due);
}

static void await_states(const enum gpu_worker_state *states, uint32_t count)
{
	wanted_states = states;
	wanted_count = count;
	look_states_due(&look);
	cr_assert_eq(zi_loop_run(loop), 0);
}

Test(gpus, a_broken_first_gpu_hides_no_other)
{
	static const enum gpu_worker_state states[] = { GPU_WORKER_DOWN, GPU_WORKER_UP,
		                                        GPU_WORKER_UP };

	use_fake();
	start(CONFIG_GPU_AUTO, "gpus=3,broken=0:46");
	await_states(states, 3);
	cr_expect(tier_arenas_is_ready(arenas));
	cr_expect_eq(tier_arenas_count(arenas), 2);
	cr_expect(tier_arenas_find(arenas, FAKE_GPU_UUID_1));
	expect_explanation("zinf-gpu of GPU 0: describing GPU 0");
	expect_explanation("46");
	cr_expect_str_empty(tier_arenas_trouble(arenas, 1)->text.chars);
	stop();
}

/* It is started by its UUID then, and finds its GPU beside the broken one. */
Test(gpus, a_worker_beside_a_broken_gpu_is_started_again)
{
	static const enum gpu_worker_state states[] = { GPU_WORKER_DOWN, GPU_WORKER_UP };
	static const struct zi_text reason = { "the test ends it" };
	struct zi_text text;

	use_fake();
	start(CONFIG_GPU_AUTO, "gpus=2,broken=0:46");
	await_states(states, 2);
	gpu_worker_kill(gpus_worker(gpus, 1), &reason);
	cr_assert_eq(gpu_worker_start(gpus_worker(gpus, 1), &text), 0, "%s", text.chars);
	await_states(states, 2);
	cr_expect_eq(gpu_worker_life(gpus_worker(gpus, 1)), 2);
	cr_expect(tier_arenas_tier(arenas, 0)->gpu->is_up);
	stop();
}

Test(gpus, a_gpu_that_hangs_while_it_is_opened_holds_no_other_up)
{
	static const enum gpu_worker_state states[] = { GPU_WORKER_STARTING, GPU_WORKER_UP };

	use_fake();
	start(CONFIG_GPU_AUTO, "gpus=2,stuck=0");
	await_states(states, 2);
	cr_expect_not(tier_arenas_is_ready(arenas), "it may still come");
	cr_expect(tier_arenas_find(arenas, FAKE_GPU_UUID_1));
	stop();
}

Test(gpus, a_gpu_that_was_never_opened_is_tried_again)
{
	static const enum gpu_worker_state down[] = { GPU_WORKER_DOWN, GPU_WORKER_UP };
	static const enum gpu_worker_state up[] = { GPU_WORKER_UP, GPU_WORKER_UP };

	use_fake();
	retry_ns = 50 * ZI_NS_PER_MS;
	start(CONFIG_GPU_YES, "gpus=2,broken=0:46");
	await_states(down, 2);
	expect_explanation("describing GPU 0");
	cr_assert_eq(setenv(FAKE_GPU_ENV, "gpus=2", 1), 0);
	await_states(up, 2);
	cr_expect_str_empty(tier_arenas_explanation(arenas));
	cr_expect_eq(tier_arenas_count(arenas), 2);
	cr_expect(tier_arenas_find(arenas, FAKE_GPU_UUID_0));
	stop();
}

Test(gpus, where_no_driver_opens_there_are_as_many_as_the_machine_has)
{
	static const struct topo two = { .gpu_count = 2 };
	static const enum gpu_worker_state down[] = { GPU_WORKER_DOWN, GPU_WORKER_DOWN };

	use_fake();
	machine = &two;
	start(CONFIG_GPU_AUTO, "gpus=2,kill=cuInit:1");
	await_states(down, 2);
	cr_expect(tier_arenas_is_ready(arenas));
	cr_expect(strstr(tier_arenas_trouble(arenas, 1)->text.chars, "killed by signal 9"), "%s",
	          tier_arenas_trouble(arenas, 1)->text.chars);
	stop();
}

/* ---- arenas on a real zinf-gpu ---- */

static struct tier_account account;
static struct tier_arena *arena;
static int made_error;

static void made(void *arg, int error, const struct zi_text *text)
{
	(void)arg;
	made_error = error;
	if (error) {
		cr_expect(strstr(text->chars, "zinf-gpu"), "%s", text->chars);
		arena = NULL;
	}
	zi_loop_stop(loop);
}

/* Return: what it comes to. */
static int make_arena(uint32_t count, int pidfd)
{
	struct tier *tier = tier_arenas_tier(arenas, 0);
	struct zi_text text;
	int r = tier_arena_new(
		arenas,
		&(struct tier_arena_options){ .tier = tier,
	                                      .account = &account,
	                                      .chunk_bytes = tier->gpu->facts.granularity_bytes,
	                                      .chunk_count = count,
	                                      .pidfd = pidfd,
	                                      .made = made },
		&text, &arena);

	if (r)
		return r;
	made_error = 1;
	while (made_error > 0)
		cr_assert_eq(zi_loop_run(loop), 0);
	return made_error;
}

/* Until nothing is charged. */
static void returned_due(struct zi_timer *timer)
{
	if (!account.used_bytes[TIER_GPU])
		zi_loop_stop(loop);
	else
		zi_loop_arm(loop, timer, zi_clock_deadline_ns(ZI_NS_PER_MS), returned_due);
}

Test(gpus, arenas_are_made_and_released_by_the_worker)
{
	int pidfd = -1, fd;

	use_fake();
	tier_account_init(&account, "uid 1000", NULL);
	cr_assert_eq(zi_pidfd_open(getpid(), &pidfd), 0);
	config.gpu_reserve_bytes = 0;
	start(CONFIG_GPU_YES, "gpus=1,bytes=1G");
	await(1, GPU_WORKER_UP);
	cr_assert_eq(make_arena(12, pidfd), 0);
	cr_expect_gt(gpu_worker_held_bytes(gpus_worker(gpus, 0)), 0);
	cr_assert_eq(tier_arena_next(arena, 1, &fd), 1);
	cr_expect_geq(fd, 0);
	arena = tier_arena_leave(arena);
	returned_due(&look);
	cr_assert_eq(zi_loop_run(loop), 0);
	cr_expect_eq(gpu_worker_held_bytes(gpus_worker(gpus, 0)), 0);
	cr_expect_eq(account.used_fds, 0);
	stop();
	pidfd = zi_close(pidfd);
}

Test(gpus, a_worker_that_dies_is_down_and_comes_with_the_next_arena)
{
	static const struct zi_text reason = { "the test ends zinf-gpu" };
	struct dev_gpu *gpu;
	int pidfd = -1;

	use_fake();
	tier_account_init(&account, "uid 1000", NULL);
	cr_assert_eq(zi_pidfd_open(getpid(), &pidfd), 0);
	config.gpu_reserve_bytes = 0;
	start(CONFIG_GPU_YES, "gpus=1,bytes=1G,kill=cuMemCreate:3");
	await(1, GPU_WORKER_UP);
	gpu = tier_arenas_tier(arenas, 0)->gpu;
	cr_expect_eq(make_arena(4, pidfd), -EIO);
	cr_expect_eq(account.used_bytes[TIER_GPU], 0);
	cr_assert_eq(make_arena(2, pidfd), 0, "it was started again");
	cr_expect(gpu->is_up);
	gpu_worker_kill(gpus_worker(gpus, 0), &reason);
	cr_expect_not(gpu->is_up);
	cr_expect_str_eq(gpu->down.chars, reason.chars);
	cr_expect_eq(account.used_bytes[TIER_GPU], 2 * gpu->facts.granularity_bytes);
	arena = tier_arena_leave(arena);
	returned_due(&look); /* Nothing was passed on: when the process has gone. */
	cr_assert_eq(zi_loop_run(loop), 0);
	stop();
	pidfd = zi_close(pidfd);
}
