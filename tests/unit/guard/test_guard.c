/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever a test program leaves is removed however it ends, and one that passes and leaves
 * something fails. Method: programs that do so, each in a process of its own.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/guard/guard.h"

/* What a program does before it ends, and how it does. */
struct trial {
	bool makes_files, makes_process;
	bool asserts; /* ends by SIGABRT */
	bool waits;   /* for a signal, after it told on `pipe_fds` that it is there */
	int code;
};

static char parent[64];
static int pipe_fds[2];
static pid_t *orphan; /* in memory that all share */

static void set_up(void)
{
	cr_assert_not_null(mkdtemp(guard_path(parent, sizeof(parent), "guarded")));
	cr_assert_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
	orphan = mmap(NULL, sizeof(*orphan), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	cr_assert_neq(orphan, MAP_FAILED);
}

static void make_files(void)
{
	char path[256], file[300];
	int fd;

	if (!mkdtemp(guard_path(path, sizeof(path), "left")))
		_exit(99);
	(void)snprintf(file, sizeof(file), "%s/store", path);
	fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 || close(fd))
		_exit(99);
}

/* A grandchild whose parent ends at once. */
static void make_process(void)
{
	pid_t child = fork();

	if (!child) {
		child = fork();
		if (!child)
			for (;;)
				(void)pause();
		*orphan = child;
		_exit(0);
	}
	if (waitpid(child, NULL, 0) != child)
		_exit(99);
}

static void program(const struct trial *trial)
{
	if (trial->makes_files)
		make_files();
	if (trial->makes_process)
		make_process();
	if (trial->asserts)
		abort();
	if (trial->waits) {
		if (write(pipe_fds[1], "", 1) != 1)
			_exit(99);
		for (;;)
			(void)pause();
	}
	_exit(trial->code);
}

static pid_t begin(const struct trial *trial)
{
	pid_t pid = fork();
	struct guard guard;

	cr_assert_geq(pid, 0);
	if (pid)
		return pid;
	if (!freopen("/dev/null", "w", stderr))
		_exit(98);
	pid = guard_fork(&guard, parent);
	if (!pid)
		program(trial);
	guard.grace_ms = 0;
	_exit(pid < 0 ? 97 : guard_watch(&guard));
}

static int end(pid_t pid)
{
	int status = 0;

	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void nothing_is_left(void)
{
	cr_assert_eq(rmdir(parent), 0, "files");
	cr_assert(!*orphan || (kill(*orphan, 0) && errno == ESRCH), "process %d", *orphan);
}

Test(guard, program_that_leaves_nothing_ends_with_its_own_code, .init = set_up)
{
	cr_assert_eq(end(begin(&(struct trial){ .code = 0 })), 0);
	cr_assert_eq(end(begin(&(struct trial){ .code = 7 })), 7);
	nothing_is_left();
}

Test(guard, files_of_a_program_that_passes_are_removed_and_fail_it, .init = set_up)
{
	cr_assert_eq(end(begin(&(struct trial){ .makes_files = true })), 1);
	nothing_is_left();
}

Test(guard, process_of_a_program_that_passes_is_ended_and_fails_it, .init = set_up)
{
	cr_assert_eq(end(begin(&(struct trial){ .makes_process = true })), 1);
	cr_assert_gt(*orphan, 0);
	nothing_is_left();
}

Test(guard, failed_assertion_leaves_nothing, .init = set_up)
{
	cr_assert_eq(end(begin(&(struct trial){
			     .makes_files = true, .makes_process = true, .asserts = true })),
	             128 + SIGABRT);
	nothing_is_left();
}

Test(guard, program_that_is_asked_to_end_leaves_nothing, .init = set_up)
{
	pid_t pid =
		begin(&(struct trial){ .makes_files = true, .makes_process = true, .waits = true });
	char byte;

	cr_assert_eq(read(pipe_fds[0], &byte, 1), 1);
	cr_assert_eq(kill(pid, SIGTERM), 0);
	cr_assert_eq(end(pid), 128 + SIGTERM);
	nothing_is_left();
}

/* As every test program: this one too. */
Test(guard, this_program_is_guarded)
{
	cr_assert_not_null(getenv("ZINF_TEST_GUARD"));
	cr_assert_not_null(strstr(getenv("TMPDIR"), "/zinf-test."));
}
