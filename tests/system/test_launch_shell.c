/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: zctl launch behaves to the shell or script that starts it as a single program would: what
 * was ignored stays ignored, children that were there before stay, Ctrl-Z stops all of it. Method:
 * the real zctl, prepared between fork() and exec as shells do it; processes are waited for.
 */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/system/launch.h"

/* Ends by a signal alone. */
#define WAIT "exec sleep 1000"

TestSuite(launch_shell, .timeout = 180);

/* ---- ignored signals ---- */

static void ignore_hangups(void)
{
	(void)signal(SIGHUP, SIG_IGN);
}

/* Signals of one process are taken by their numbers: SIGHUP would be before SIGTERM. */
Test(launch_shell, a_signal_that_was_ignored_stays_ignored)
{
	launched.prepare = ignore_hangups;
	BEGIN("sh", "-c", "echo ready; " WAIT);
	AWAIT(0, "ready", 1);
	cr_assert_eq(kill(launched.pid, SIGHUP), 0);
	cr_assert_eq(kill(launched.pid, SIGTERM), 0);
	launch_end(128 + SIGTERM);
	expect_no_words(err, "SIGHUP");
	launched_free(&launched);
}

Test(launch_shell, an_ignored_signal_that_was_named_is_taken)
{
	launched.prepare = ignore_hangups;
	BEGIN("--signals-to-handle", "SIGHUP", "--grace", "0", "sh", "-c", "echo ready; " WAIT);
	AWAIT(0, "ready", 1);
	cr_assert_eq(kill(launched.pid, SIGHUP), 0);
	launch_end(128 + SIGHUP);
	expect_words(err, "SIGHUP is passed on to the ranks");
	launched_free(&launched);
}

/* ---- children of before ---- */

static int companion_pipe[2];

static void start_companion(void)
{
	pid_t companion = fork();

	if (!companion) {
		(void)close_range(0, UINT_MAX, 0); /* Ends of zctl's words are waited for. */
		for (;;)
			(void)pause();
	}
	(void)!write(companion_pipe[1], &companion, sizeof(companion));
}

/* As of a script that says "monitor & exec zctl launch". */
Test(launch_shell, children_that_were_there_before_stay)
{
	static const char *const scripts[] = { "exit 0", "kill -9 $PPID; " WAIT };

	cr_assert_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	cr_assert_eq(pipe2(companion_pipe, O_CLOEXEC), 0);
	launched.prepare = start_companion;
	for (int i = 0; i < 2; i++) {
		pid_t companion;

		BEGIN("sh", "-c", scripts[i]);
		cr_assert_eq(read(companion_pipe[0], &companion, sizeof(companion)),
		             (ssize_t)sizeof(companion));
		cr_expect_eq(launched_end(&launched), i ? 128 + SIGKILL : 0);
		cr_expect_eq(waitpid(companion, NULL, WNOHANG), 0, "it has ended");
		cr_assert_eq(kill(companion, SIGKILL), 0);
		cr_assert_eq(waitpid(companion, NULL, 0), companion);
		launched_free(&launched);
	}
}
