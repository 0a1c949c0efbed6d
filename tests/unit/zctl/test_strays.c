/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what ranks left behind is ended as far as it can be, within a bound, and whoever is left
 * is named; children that are spared are not touched. Method: children of a process of the test's
 * own, which tells through a pipe what it was told; held ones are traced by the test, so that
 * nobody else can reap them.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zctl/launch/strays.h"

#define NOBODY 65534

TestSuite(strays, .timeout = 60);

/* What was told of, through the pipe. */
struct told {
	pid_t pid;
	int error;
	char name[32];
};

static void tell(void *arg, pid_t pid, const char *name, int error)
{
	const int *fd = arg;
	struct told told = { .pid = pid, .error = error };

	(void)strncpy(told.name, name, sizeof(told.name) - 1);
	(void)!write(*fd, &told, sizeof(told));
}

static pid_t start_sleeper(void)
{
	pid_t pid = fork();

	if (!pid)
		for (;;)
			(void)pause();
	cr_assert_gt(pid, 0);
	return pid;
}

Test(strays, all_but_the_spared_are_killed_and_told)
{
	int pipe_fds[2];
	pid_t spared_pid = start_sleeper(), stray;
	struct launch_strays strays = { .wait_ns = 20 * ZI_NS_PER_S,
		                        .told = tell,
		                        .arg = &pipe_fds[1] };
	struct told told;

	cr_assert_eq(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
	cr_assert_eq(launch_spared_find(&strays.spared), 0);
	cr_assert_eq(strays.spared.count, 1);
	cr_expect_eq(strays.spared.pids[0], spared_pid);
	stray = start_sleeper();
	launch_strays_end(&strays);
	cr_expect_eq(kill(stray, 0), -1, "it is neither ended nor reaped");
	cr_expect_eq(waitpid(spared_pid, NULL, WNOHANG), 0, "it has ended");
	cr_assert_eq(read(pipe_fds[0], &told, sizeof(told)), (ssize_t)sizeof(told));
	cr_expect(told.pid == stray && !told.error);
	cr_expect_eq(read(pipe_fds[0], &told, sizeof(told)), -1, "told of %d, too", told.pid);
	/* Quiet: of what is killed nothing is told. */
	strays.is_quiet = true;
	(void)start_sleeper();
	launch_strays_end(&strays);
	cr_expect_eq(read(pipe_fds[0], &told, sizeof(told)), -1, "told of %d", told.pid);
	cr_assert_eq(kill(spared_pid, SIGKILL), 0);
	cr_assert_eq(waitpid(spared_pid, NULL, 0), spared_pid);
	free(strays.spared.pids);
}

/* A process with one stray, which it ends when the test writes to it. */
struct scene {
	pid_t ender, stray;
	int order_fd, told_fd;
};

static _Noreturn void become_ender(int order_fd, int told_fd, uid_t uid)
{
	const struct launch_strays strays = {
		.wait_ns = ZI_NS_PER_MS, .is_quiet = true, .told = tell, .arg = &told_fd
	};
	pid_t stray = start_sleeper();
	char order;

	(void)!write(told_fd, &stray, sizeof(stray));
	if (read(order_fd, &order, 1) != 1 || (uid && setuid(uid)))
		_exit(1);
	launch_strays_end(&strays);
	_exit(0);
}

static struct scene make_scene(uid_t uid)
{
	struct scene scene;
	int order[2], told[2];

	cr_assert_eq(pipe2(order, O_CLOEXEC), 0);
	cr_assert_eq(pipe2(told, O_CLOEXEC), 0);
	scene.ender = fork();
	cr_assert_geq(scene.ender, 0);
	if (!scene.ender)
		become_ender(order[0], told[1], uid);
	(void)close(order[0]);
	(void)close(told[1]);
	scene.order_fd = order[1];
	scene.told_fd = told[0];
	cr_assert_eq(read(scene.told_fd, &scene.stray, sizeof(scene.stray)),
	             (ssize_t)sizeof(scene.stray));
	return scene;
}

/* @error: with which the stray is left, and all is over nevertheless. */
static void expect_left(const struct scene *scene, int error)
{
	struct told told;
	int status;

	cr_assert_eq(write(scene->order_fd, "", 1), 1);
	cr_assert_eq(read(scene->told_fd, &told, sizeof(told)), (ssize_t)sizeof(told));
	cr_expect_eq(told.pid, scene->stray);
	cr_expect_eq(told.error, error);
	cr_expect_gt(strlen(told.name), 0);
	cr_assert_eq(waitpid(scene->ender, &status, 0), scene->ender);
	cr_expect_eq(status, 0);
	(void)close(scene->order_fd);
	(void)close(scene->told_fd);
}

Test(strays, one_that_does_not_end_is_waited_for_within_the_bound)
{
	struct scene scene = make_scene(0);

	cr_assert_eq(ptrace(PTRACE_SEIZE, scene.stray, NULL, NULL), 0, "%s", strerror(errno));
	expect_left(&scene, -ETIMEDOUT);
	cr_expect_eq(waitpid(scene.stray, NULL, 0), scene.stray);
}

Test(strays, another_users_is_left_at_once)
{
	struct scene scene;

	if (geteuid())
		cr_skip_test("only root can have a child of another user");
	scene = make_scene(NOBODY);
	expect_left(&scene, -EPERM);
	cr_expect_eq(kill(scene.stray, SIGKILL), 0);
}
