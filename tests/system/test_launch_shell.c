/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: zctl launch behaves to the shell or script that starts it as a single program would: what
 * was ignored stays ignored, children that were there before stay, Ctrl-Z stops all of it. Method:
 * the real zctl, prepared between fork() and exec as shells do it; processes are waited for.
 */
#include <errno.h>
#include <sched.h>
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
