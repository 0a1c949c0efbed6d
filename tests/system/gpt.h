/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the example share: a daemon whose socket is in the environment, zinf-gpt and zctl
 * as commands in a folder beside it, and dumps of parameters that are to be equal. */
#pragma once

#include <criterion/criterion.h>
#include <unistd.h>

#include "tests/system/files.h"

static char gpt_newest[1024]; /* what ran last */

/* @nvme_size: NULL, no NVMe tier. */
static inline void gpt_start_with(const char *nvme_size)
{
	files_start_with(nvme_size);
	cr_assert_eq(setenv("ZINF_SOCKET", harness.socket_path, 1), 0);
}

static inline void gpt_start(void)
{
	gpt_start_with("64M");
}

/* What is skipped is not ended by .fini. */
static inline void gpt_skip(const char *why)
{
	files_stop();
	cr_skip_test("%s", why);
}

/* For tests that start no daemon. */
static inline void gpt_needs_program(void)
{
	char path[300];

	if (!access(harness_program("zinf-gpt", path, sizeof(path)), X_OK))
		return;
	folder_remove(&folder);
	cr_skip_test("zinf-gpt was not built");
}

/* Runs a program of this build in the folder; must end with @code. Its errors lie with its output,
 * in `words`. */
static inline void gpt_run(int code, const char *program, const char *arguments)
{
	char path[300];
	size_t bytes;
	FILE *pipe;
	int got;

	harness_program(program, path, sizeof(path));
	if (access(path, X_OK))
		gpt_skip("zinf-gpt was not built");
	(void)snprintf(gpt_newest, sizeof(gpt_newest),
	               "program=$(realpath %s); cd %s; $program %s 2>&1", path, folder.path,
	               arguments);
	pipe = popen(gpt_newest, "r");
	cr_assert_not_null(pipe);
	bytes = fread(words, 1, sizeof(words) - 1, pipe);
	words[bytes] = '\0';
	got = pclose(pipe);
	cr_assert(WIFEXITED(got) && WEXITSTATUS(got) == code, "%s %s ended with %d: %s", program,
	          arguments, got, words);
}

static inline void gpt_expect_equal_dumps(const char *name, const char *other)
{
	char command[700];

	(void)snprintf(command, sizeof(command), "cd %s && cmp %s %s", folder.path, name, other);
	cr_assert_eq(system(command), 0, "%s is not %s after: %s", name, other, gpt_newest);
}
