/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the program zinf-gpu share: it runs on the fake driver (tests/gpu/fake_gpu.h). */
#pragma once

#include "tests/gpu/fake_gpu.h"
#include "tests/unit/worker/gpu_fixture.h"

static char gpu_real_program[512], gpu_real_driver[512];

/* @words: $ZINF_FAKE_GPU of the programs that are started from now on. */
static inline void gpu_real_set(const char *words)
{
	const char *build = getenv("ZINF_BUILD");

	(void)snprintf(gpu_real_program, sizeof(gpu_real_program), "%s/bin/zinf-gpu",
	               build ? build : "build/release");
	(void)fake_gpu_path(gpu_real_driver, sizeof(gpu_real_driver), "libcuda.so.1");
	cr_assert_eq(setenv(FAKE_GPU_ENV, words, 1), 0);
}

/* @test->options: what differs from the usual. */
static inline void gpu_real_init(struct gpu_test *test, const char *words)
{
	gpu_real_set(words);
	test->options.program = gpu_real_program;
	if (!test->options.driver)
		test->options.driver = gpu_real_driver;
	gpu_test_init(test);
}

/* Descriptors of another process. */
static inline uint32_t gpu_real_fds(pid_t pid)
{
	char path[64];
	struct dirent *entry;
	uint32_t count = 0;
	DIR *directory;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	directory = opendir(path);
	cr_assert(directory, "%s", path);
	while ((entry = readdir(directory)))
		count += entry->d_name[0] != '.';
	(void)closedir(directory);
	return count;
}
