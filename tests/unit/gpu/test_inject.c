/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a test asks the fake to do wrong happens at the call that it named, and at no other.
 * Method: each kind, at functions, copies and kernels, in children where a process ends or hangs.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/gpu/device.h"
#include "tests/gpu/pipeline.h"
#include "tests/unit/gpu/fixture.h"

static struct zi_gpu_driver driver;

static int reserve(void)
{
	uint64_t address;

	return driver.cuda.cuMemAddressReserve(&address, 2u << 20, 0, 0, 0);
}

Test(gpu_inject, a_function_fails_at_the_call_that_was_named)
{
	cr_assert_eq(open_gpu(&driver,
	                      "fail=cuMemAddressReserve:3:2,fail=cuMemAddressReserve:5:304", NULL),
	             0);
	cr_assert_eq(reserve(), 0);
	cr_assert_eq(reserve(), 0);
	cr_assert_eq(reserve(), 2);
	cr_assert_eq(reserve(), 0);
	cr_assert_eq(reserve(), 304);
	cr_assert_eq(reserve(), 0);
	cr_assert_eq(call_count(&driver, "cuMemAddressReserve"), 6);
	cr_assert_eq(call_count(&driver, "cuMemMap"), 0);
}

Test(gpu_inject, a_function_fails_at_each_call)
{
	cr_assert_eq(open_gpu(&driver, "fail=cuMemAddressReserve:0:2", NULL), 0);
	for (uint32_t i = 0; i < 4; i++)
		cr_assert_eq(reserve(), 2);
}

Test(gpu_inject, a_context_breaks_at_a_function)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "sticky=cuMemAddressReserve:2:719");

	cr_assert_eq(reserve(), 0);
	cr_assert_eq(cuda->cuCtxSynchronize(), 0);
	cr_assert_eq(reserve(), ZI_CUDA_LAUNCH_FAILED);
	cr_assert_eq(reserve(), 0, "it needs no context");
	cr_assert_eq(cuda->cuCtxSynchronize(), ZI_CUDA_LAUNCH_FAILED);
	cr_assert(zi_gpu_is_sticky(ZI_CUDA_LAUNCH_FAILED));
}

Test(gpu_inject, a_function_is_delayed)
{
	uint64_t start_ns;

	cr_assert_eq(open_gpu(&driver, "delay=cuMemAddressReserve:1:30", NULL), 0);
	start_ns = zi_clock_now_ns();
	cr_assert_eq(reserve(), 0);
	cr_assert_geq(zi_clock_now_ns() - start_ns, 30 * ZI_NS_PER_MS);
}

Test(gpu_inject, a_gpu_that_vanishes_answers_nothing_more)
{
	struct zi_gpu_device device;
	struct zi_text text = { "" };
	uint32_t count;

	cr_assert_eq(open_gpu(&driver, "vanish=cuMemAddressReserve:2", NULL), 0);
	cr_assert_eq(reserve(), 0);
	cr_assert_eq(reserve(), ZI_CUDA_UNKNOWN);
	cr_assert_eq(reserve(), ZI_CUDA_UNKNOWN);
	cr_assert_eq(zi_gpu_device_count(&driver, &count, NULL), -EIO);
	cr_assert_eq(zi_gpu_device_describe(&driver, 0, &device, &text), -EIO);
	cr_assert_str_eq(text.chars,
	                 "describing GPU 0: CUDA_ERROR_UNKNOWN (999): FAKE: unknown error");
}

/* Runs the pipeline. Return: the code of its first error; 0: it was right; -1: it was wrong. */
static int run_pipeline(const char *options)
{
	struct pipeline pipeline = { .left_out = PIPELINE_NO_WAIT };

	if (open_gpu(&driver, options, NULL))
		return -1;
	pipeline.cuda = &driver.cuda;
	if (!pipeline_start(&pipeline) && pipeline_run(&pipeline) > 0)
		return -1;
	return pipeline_stop(&pipeline);
}

/* The n-th operation breaks the context in each order, and nobody waits forever. */
static void expect_pipeline(const char *rule, int wanted)
{
	static const char *const orders[] = { "eager", "late", "shuffled:5" };

	for (uint32_t i = 0; i < 3; i++) {
		pid_t child = fork();
		char options[96];
		int status;

		if (!child) {
			(void)snprintf(options, sizeof(options), "order=%s,%s", orders[i], rule);
			/* Codes may have more than eight bits. */
			_exit(run_pipeline(options) != wanted);
		}
		status = wait_child(child);
		cr_assert(WIFEXITED(status), "%s, %s", orders[i], rule);
		cr_assert_eq(WEXITSTATUS(status), 0, "%s, %s", orders[i], rule);
	}
}

Test(gpu_inject, an_operation_that_fails_breaks_the_context)
{
	expect_pipeline("fail=copy:1:700", ZI_CUDA_ILLEGAL_ADDRESS);
	expect_pipeline("fail=copy:9:719", ZI_CUDA_LAUNCH_FAILED);
	expect_pipeline("sticky=kernel:4:702", ZI_CUDA_LAUNCH_TIMEOUT);
	expect_pipeline("fail=kernel:99:700", 0);
}

Test(gpu_inject, an_operation_that_is_delayed_is_right)
{
	expect_pipeline("delay=copy:3:5,delay=kernel:2:5", 0);
}

Test(gpu_inject, a_gpu_that_vanishes_ends_its_streams)
{
	expect_pipeline("vanish=copy:5", ZI_CUDA_UNKNOWN);
	expect_pipeline("vanish=kernel:2", ZI_CUDA_UNKNOWN);
	expect_pipeline("vanish=cuEventRecord:7", ZI_CUDA_UNKNOWN);
}

static void expect_killed(const char *options)
{
	pid_t child = fork();
	int status;

	if (!child)
		_exit(run_pipeline(options) + 100);
	status = wait_child(child);
	cr_assert(WIFSIGNALED(status), "%s", options);
	cr_assert_eq(WTERMSIG(status), SIGKILL);
}

Test(gpu_inject, a_process_is_killed_at_a_call_a_copy_or_a_kernel)
{
	expect_killed("kill=cuMemMap:2");
	expect_killed("kill=copy:3");
	expect_killed("order=late,kill=copy:3");
	expect_killed("order=shuffled:4,kill=kernel:1");
	expect_killed("kill=cuMemRelease:1");
}

/* Whether the kernel says that the process sleeps in futex(2). */
static bool is_asleep(pid_t process)
{
	char path[64], words[64] = "";
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/syscall", process); /* Fits. */
	file = fopen(path, "re");
	cr_assert_not_null(file);
	(void)fgets(words, sizeof(words), file); /* "running": not asleep */
	(void)fclose(file);
	return strtol(words, NULL, 10) == SYS_futex;
}

/* A child that is about to hang says so; then it sleeps until it is killed. */
static void expect_hang(const char *options, int (*hang)(void))
{
	int ready[2], status;
	char byte = 0;
	pid_t child;

	cr_assert_eq(pipe(ready), 0);
	child = fork();
	if (!child) {
		(void)start_gpu(&driver, options);
		if (write(ready[1], &byte, 1) == 1)
			_exit(hang() ? 1 : 2);
		_exit(3);
	}
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	while (!is_asleep(child)) {
		cr_assert_eq(waitpid(child, &status, WNOHANG), 0, "it goes on");
		(void)sched_yield();
	}
	cr_assert_eq(kill(child, SIGKILL), 0);
	cr_assert(WIFSIGNALED(wait_child(child)));
	(void)close(ready[0]);
	(void)close(ready[1]);
}

static int wait_for_copy(void)
{
	const struct zi_cuda *cuda = &driver.cuda;
	uint64_t handle, address = map_chunks(cuda, 1, &handle);

	if (cuda->cuMemsetD8Async(address, 1, 4096, NULL))
		return 1;
	/* Asking does not hang. */
	for (uint32_t i = 0; i < 50; i++)
		if (cuda->cuStreamQuery(NULL) != ZI_CUDA_NOT_READY)
			return 1;
	return cuda->cuStreamSynchronize(NULL);
}

Test(gpu_inject, a_call_hangs, .timeout = 20)
{
	expect_hang("hang=cuMemAddressReserve:1", reserve);
}

Test(gpu_inject, an_operation_hangs_and_so_does_who_waits_for_it, .timeout = 20)
{
	expect_hang("order=eager,hang=copy:1", wait_for_copy);
	expect_hang("order=late,hang=copy:1", wait_for_copy);
	expect_hang("order=shuffled:3,hang=copy:1", wait_for_copy);
}

Test(gpu_inject, a_wrong_word_ends_the_process)
{
	static const char *const words[] = {
		"gpu=2",     "order=early", "mode=shared", "no=memory",        "bytes=many",
		"fail=copy", "fail=copy:1", "kill=copy:x", "break=copy:1:700", "sticky=:1:700",
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		pid_t child = fork();
		int status;

		if (!child) {
			int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

			(void)dup2(null, STDERR_FILENO);
			_exit(open_gpu(&driver, words[i], NULL) != 0);
		}
		status = wait_child(child);
		cr_assert(WIFSIGNALED(status), "%s", words[i]);
		cr_assert_eq(WTERMSIG(status), SIGABRT);
	}
}
