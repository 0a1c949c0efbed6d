/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: zctl launch behaves to the shell or script that starts it as a single program would: what
 * was ignored stays ignored, children that were there before stay, Ctrl-Z stops all of it. Method:
 * the real zctl, prepared between fork() and exec as shells do it; processes are waited for.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "tests/harness/patience.h"
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

/* ---- Ctrl-Z ---- */

/* Until the kernel has stopped it, or false after 20 s. */
static bool await_stop(pid_t pid)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(20 * ZI_NS_PER_S));
	char path[64], line[512];

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	while (zi_clock_now_ns() < deadline_ns) {
		cr_assert_eq(zi_read_text(path, line, sizeof(line)), 0);
		if (strstr(line, ") T "))
			return true;
		(void)sched_yield();
	}
	return false;
}

/* zctl with a rank and what that started, all stopped by Ctrl-Z. */
static void begin_and_stop(void)
{
	int status;

	BEGIN("sh", "-c",
	      "trap 'echo goes on; exit 0' CONT; sleep 1000 & echo self $$, child $!.; "
	      "while :; do wait; done");
	AWAIT(0, ".\n", 1);
	cr_assert_eq(kill(-launched.pid, SIGTSTP), 0);
	cr_assert_eq(waitpid(launched.pid, &status, WUNTRACED), launched.pid);
	cr_assert(WIFSTOPPED(status), "ended with %x", status);
	cr_expect(await_stop((pid_t)launch_number(out, "self ")), "the rank runs");
	cr_expect(await_stop((pid_t)launch_number(out, "child ")), "its child runs");
}

Test(launch_shell, ranks_stop_with_ctrl_z_and_go_on)
{
	begin_and_stop();
	cr_assert_eq(kill(launched.pid, SIGCONT), 0);
	launch_end(0);
	expect_words(out, "goes on\n");
	launched_free(&launched);
}

/* As a shell's "kill %1" does. */
Test(launch_shell, a_stopped_run_is_ended_by_a_signal_and_goes_on_for_that)
{
	begin_and_stop();
	cr_assert_eq(kill(launched.pid, SIGTERM), 0);
	cr_assert_eq(kill(launched.pid, SIGCONT), 0);
	cr_expect_neq(launched_end(&launched), -ETIMEDOUT);
	launched_free(&launched);
}

static void ignore_stops(void)
{
	(void)signal(SIGTSTP, SIG_IGN);
}

Test(launch_shell, ctrl_z_that_was_ignored_stops_nobody)
{
	launched.prepare = ignore_stops;
	BEGIN("sh", "-c", "echo ready; " WAIT);
	AWAIT(0, "ready", 1);
	cr_assert_eq(kill(launched.pid, SIGTSTP), 0);
	cr_assert_eq(kill(launched.pid, SIGTERM), 0);
	launch_end(128 + SIGTERM);
	launched_free(&launched);
}
