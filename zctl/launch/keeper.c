/* SPDX-License-Identifier: Apache-2.0 */
/* Keeper and supervisor (keeper.h). The kernel kills the ranks with their supervisor; what they had
 * started comes to the keeper then. The supervisor watches the keeper by its pidfd. */
#include "zctl/launch/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "zctl/launch/report.h"
#include "zctl/launch/signals.h"
#include "zctl/launch/strays.h"
#include "zctl/launch/supervise.h"
#include "zctl/zctl.h"

/* 0, 1 and 2 are there, if only as /dev/null: no pipe of ours may get one of these numbers. */
static void fill_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	(void)zi_close(fd);
}

/* In a group of its own, a terminal's Ctrl-C reaches it once, through the keeper. */
static _Noreturn void become_supervisor(const struct launch_plan *plan, pid_t keeper,
                                        const sigset_t *before)
{
	int code;

	(void)setpgid(0, 0); /* Or signals come twice. */
	code = launch_supervise(plan, keeper, before);
	if (getppid() != keeper) {
		struct launch_logs logs = plan->logs;

		launch_logs_close(&logs); /* The keeper would have done it. */
	}
	_exit(code);
}

/* As any program on Ctrl-Z: not where nobody would let it go on (process 1, an orphaned group). */
static void stop(void)
{
	sigset_t stops;

	(void)sigemptyset(&stops);
	(void)sigaddset(&stops, SIGTSTP);
	(void)raise(SIGTSTP);
	(void)sigprocmask(SIG_UNBLOCK, &stops, NULL); /* Here. */
	(void)sigprocmask(SIG_BLOCK, &stops, NULL);
}

/* Until the supervisor has ended. Return: its status. */
static int await(const struct launch_options *options, pid_t supervisor, const sigset_t *signals)
{
	int status = 0;

	for (;;) {
		int number = sigwaitinfo(signals, NULL);

		if (number > 0 && number != SIGCHLD) {
			(void)kill(supervisor, number); /* It is not reaped: its id is its own. */
			if (number == SIGTSTP && launch_signal_is_pause(options, number)) {
				stop();
				(void)kill(supervisor, SIGCONT);
			}
			continue;
		}
		if (waitpid(supervisor, &status, WNOHANG) == supervisor)
			return status;
	}
}

static void tell_stray(void *arg, pid_t pid, const char *name, int error)
{
	struct zi_text text;

	(void)arg;
	launch_report_stray(pid, name, error, &text);
	zctl_complain("%s", text.chars);
}

/* What the supervisor would have done. */
static void stand_in(pid_t supervisor, int number, const struct launch_spared *spared)
{
	const struct launch_strays strays = {
		.spared = *spared,
		.wait_ns = LAUNCH_STRAYS_WAIT_NS,
		.is_quiet = true,
		.told = tell_stray,
	};

	zctl_complain("the supervisor of the ranks (pid %d) was killed by signal %d (%s); "
	              "the ranks are killed",
	              supervisor, number, strsignal(number));
	launch_strays_end(&strays);
}

/* See keeper.h. */
int launch_keep(const struct launch_plan *plan)
{
	struct launch_spared spared;
	sigset_t signals, blocked, before;
	pid_t keeper = getpid(), supervisor;
	int status;

	fill_streams();
	/* "monitor & exec zctl launch ...": not ours to end. */
	if (launch_spared_find(&spared)) {
		zctl_complain("no memory to remember this process's children");
		return 1;
	}
	launch_signals_taken(plan->options, &signals);
	(void)sigaddset(&signals, SIGCHLD);
	blocked = signals;
	(void)sigaddset(&blocked, SIGTTOU); /* "stty tostop" would stop the supervisor. */
	(void)signal(SIGCHLD, SIG_DFL);     /* Ignored, ends could not be waited for. */
	(void)sigprocmask(SIG_BLOCK, &blocked, &before);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	supervisor = fork();
	if (supervisor < 0) {
		zctl_complain("starting a process failed: %s", strerror(errno));
		free(spared.pids);
		return 1;
	}
	if (!supervisor)
		become_supervisor(plan, keeper, &before);
	status = await(plan->options, supervisor, &signals);
	if (WIFSIGNALED(status))
		stand_in(supervisor, WTERMSIG(status), &spared);
	free(spared.pids);
	return launch_report_code(status);
}
