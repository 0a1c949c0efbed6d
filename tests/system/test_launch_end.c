/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: however ranks, zctl launch itself or those who read its words end, the right rank is named,
 * the exit code says how, and nobody is left behind. Method: the real zctl with ranks that are
 * one-liners of sh, which wait for each other through FIFOs; processes are waited for, never slept
 * for. What is left behind would also be told by the guard of this program.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "tests/guard/guard.h"
#include "tests/system/launch.h"

/* Ends by a signal alone. */
#define WAIT "exec sleep 1000"

TestSuite(launch_end, .timeout = 180);

/* ---- failures ---- */

Test(launch_end, the_first_rank_that_fails_is_named_and_the_others_are_ended)
{
	RUN(3, "--nproc-per-node", "3", "sh", "-c", "[ $RANK = 1 ] && exit 3; " WAIT);
	expect_words(err, "zctl: rank 1 (pid ");
	expect_words(err, ") ended with code 3 after ");
	expect_words(err, " s; ending the others\n");
	expect_words(err, "zctl: failed first: rank 1 (pid ");
	expect_no_words(err, "rank 0 ");
	launched_free(&launched);
}

Test(launch_end, a_rank_that_is_killed_is_named_with_its_signal)
{
	RUN(128 + SIGKILL, "--nproc-per-node", "2", "sh", "-c",
	    "[ $RANK = 0 ] && kill -9 $$; " WAIT);
	expect_words(err, "was killed by signal 9 (Killed) after ");
	expect_words(err, "zctl: failed first: rank 0 (pid ");
	launched_free(&launched);
}

Test(launch_end, a_program_that_fails_alone_is_told_once)
{
	RUN(1, "false");
	cr_expect_eq(launched_count(err, "ended with code 1"), 1, "%s", err);
	expect_no_words(err, "others");
	launched_free(&launched);
}

/* The supervisor sees several ends at once when it was stopped meanwhile. */
Test(launch_end, of_ranks_that_failed_together_the_one_that_caused_it_is_named)
{
	pid_t supervisor, pids[2];

	BEGIN("--nproc-per-node", "2", "sh", "-c",
	      "trap 'exit 75' USR1; echo $RANK of $PPID is $$.; "
	      "while :; do sleep 1000 & wait; done");
	AWAIT(0, ".\n", 2);
	supervisor = (pid_t)launch_number(out, " of ");
	pids[0] = (pid_t)launch_number(strstr(out, "[rank 0]: 0"), " is ");
	pids[1] = (pid_t)launch_number(strstr(out, "[rank 1]: 1"), " is ");
	cr_assert_eq(kill(supervisor, SIGSTOP), 0);
	for (int i = 0; i < 2; i++) {
		_cleanup_(zi_closep) int fd = -1;
		struct pollfd ended = { .events = POLLIN };

		cr_assert_eq(zi_pidfd_open(pids[i], &fd), 0);
		/* Rank 0 ends as one that was left alone, before rank 1 is killed. */
		cr_assert_eq(kill(pids[i], i ? SIGKILL : SIGUSR1), 0);
		ended.fd = fd;
		cr_assert_eq(poll(&ended, 1, 20000), 1);
	}
	cr_assert_eq(kill(supervisor, SIGCONT), 0);
	launch_end(128 + SIGKILL);
	expect_words(err, "zctl: rank 1 (pid ");
	launched_free(&launched);
}

Test(launch_end, what_the_program_wrote_as_its_error_is_told)
{
	RUN(1, "--nproc-per-node", "2", "sh", "-c",
	    "[ $RANK = 0 ] || " WAIT "; cd /; "
	    "echo '{\"message\": {\"message\": \"no such data set\", \"extraInfo\": {}}}' "
	    ">$TORCHELASTIC_ERROR_FILE; exit 1");
	expect_words(err, "zctl: rank 0 says: no such data set\n");
	launched_free(&launched);
}

Test(launch_end, ranks_that_were_started_end_when_another_cannot_be)
{
	const struct rlimit few = { .rlim_cur = 40, .rlim_max = 40 };

	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	RUN(1, "--nproc-per-node", "64", "--max-restarts", "3", "sh", "-c", WAIT);
	expect_words(err, "Too many open files");
	expect_no_words(err, "again");
	launched_free(&launched);
}

#if defined(__x86_64__) || defined(__aarch64__)
/* Of all processes this one alone can be watched: the supervisor watches it first, then ranks. */
static void let_nobody_else_be_watched(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { .len = ZI_COUNT_OF(filter), .filter = filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(97);
}

Test(launch_end, a_rank_whose_end_nobody_would_hear_of_is_not_started)
{
	launched.prepare = let_nobody_else_be_watched;
	RUN(1, "--nproc-per-node", "2", "--max-restarts", "3", "sh", "-c", WAIT);
	expect_words(err, "zctl: watching rank 0 failed: Cannot allocate memory\n");
	launched_free(&launched);
}
#endif

/* ---- restarts ---- */

Test(launch_end, all_ranks_are_started_again_until_they_succeed)
{
	static const char *const script =
		"echo try $TORCHELASTIC_RESTART_COUNT of $ZINF_INCARNATION; "
		"[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; [ $RANK = 1 ] && exit 9; " WAIT;

	cr_assert_eq(unsetenv("OMP_NUM_THREADS"), 0);
	RUN(0, "--nproc-per-node", "2", "--max-restarts", "3", "sh", "-c", script);
	cr_expect_eq(launched_count(err, "OMP_NUM_THREADS=1 for each rank"), 1, "%s", err);
	for (int rank = 0; rank < 2; rank++)
		for (int attempt = 0; attempt < 3; attempt++) {
			char line[64];

			(void)snprintf(line, sizeof(line), "[rank %d]: try %d of zctl-", rank,
			               attempt);
			cr_expect_leq(launched_count(out, line), 1, "%s", out);
			/* One may be ended before it has said anything. */
			cr_expect(attempt < 2 || launched_count(out, line) == 1, "%s: %s", line,
			          out);
		}
	expect_words(out, ".2\n");
	expect_words(err, "zctl: starting all 2 ranks again (1 of 3)\n");
	expect_words(err, "zctl: starting all 2 ranks again (2 of 3)\n");
	expect_no_words(err, "(3 of 3)");
	expect_no_words(err, "failed first");
	launched_free(&launched);
}

Test(launch_end, restarts_come_to_an_end)
{
	RUN(9, "--max-restarts", "2", "sh", "-c", "exit 9");
	cr_expect_eq(launched_count(err, "again ("), 2, "%s", err);
	cr_expect_eq(launched_count(err, "ended with code 9"), 3, "%s", err);
	launched_free(&launched);
}

/* ---- signals ---- */

Test(launch_end, a_signal_is_passed_on_and_all_may_end_well)
{
	BEGIN("--nproc-per-node", "2", "--max-restarts", "3", "sh", "-c",
	      "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 1000 & wait; done");
	AWAIT(0, "ready\n", 2);
	cr_assert_eq(kill(launched.pid, SIGTERM), 0);
	launch_end(0);
	cr_expect_eq(launched_count(out, "]: saved\n"), 2, "%s", out);
	expect_words(err, "zctl: SIGTERM is passed on to the ranks");
	expect_no_words(err, "again");
	launched_free(&launched);
}

Test(launch_end, a_signal_that_ends_the_ranks_is_the_exit_code)
{
	static const int numbers[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		BEGIN("--max-restarts", "3", "sh", "-c", "ulimit -c 0; echo ready; " WAIT);
		AWAIT(0, "ready", 1);
		cr_assert_eq(kill(launched.pid, numbers[i]), 0);
		launch_end(128 + numbers[i]);
		expect_no_words(err, "again");
		launched_free(&launched);
	}
}

Test(launch_end, other_signals_reach_the_ranks_and_end_nothing)
{
	BEGIN("--standalone", "--signals-to-handle", "TERM,SIGUSR2", "sh", "-c",
	      "trap 'kill -0 $! && echo seen; kill $!; wait; exit 0' USR1; sleep 1000 & "
	      "echo ready; wait");
	AWAIT(0, "ready", 1);
	cr_assert_eq(kill(launched.pid, SIGUSR1), 0);
	launch_end(0);
	expect_words(out, "seen\n"); /* and its child was not sent it */
	cr_expect_str_eq(err, "");
	launched_free(&launched);
	BEGIN("--standalone", "--signals-to-handle", "TERM,SIGUSR2", "sh", "-c",
	      "echo ready; " WAIT);
	AWAIT(0, "ready", 1);
	cr_assert_eq(kill(launched.pid, SIGUSR2), 0);
	launch_end(128 + SIGUSR2);
	launched_free(&launched);
}

#define STUBBORN "trap '' TERM INT; echo ready; while :; do sleep 1000 & wait; done"

Test(launch_end, a_rank_that_does_not_end_is_killed_after_the_grace)
{
	BEGIN("--grace", "0.2", "sh", "-c", STUBBORN);
	AWAIT(0, "ready", 1);
	cr_assert_eq(kill(launched.pid, SIGTERM), 0);
	launch_end(128 + SIGTERM);
	expect_words(err, "zctl: rank 0 (pid ");
	expect_words(err, "did not end within 0.2 s, and is killed\n");
	launched_free(&launched);
	/* Also when another one is the reason. */
	RUN(4, "--nproc-per-node", "2", "--grace", "0", "sh", "-c",
	    "[ $RANK = 1 ] && exit 4; " STUBBORN);
	launched_free(&launched);
}

Test(launch_end, a_second_interrupt_kills_at_once)
{
	BEGIN("sh", "-c", STUBBORN);
	AWAIT(0, "ready", 1);
	cr_assert_eq(kill(launched.pid, SIGINT), 0);
	AWAIT(1, "SIGINT is passed on", 1);
	cr_assert_eq(kill(launched.pid, SIGINT), 0);
	launch_end(128 + SIGINT);
	expect_words(err, "SIGINT once more: killing the ranks");
	launched_free(&launched);
}

/* As a terminal's Ctrl-C: to zctl's process group. */
Test(launch_end, an_interrupt_of_the_group_comes_once)
{
	BEGIN("sh", "-c", "trap 'exit 0' INT; echo ready; while :; do sleep 1000 & wait; done");
	AWAIT(0, "ready", 1);
	cr_assert_eq(kill(-launched.pid, SIGINT), 0);
	launch_end(0);
	cr_expect_eq(launched_count(err, "SIGINT is passed on"), 1, "%s", err);
	expect_no_words(err, "once more");
	launched_free(&launched);
}

Test(launch_end, a_stopped_rank_ends_too)
{
	BEGIN("sh", "-c", "(kill -STOP $$; echo stopped) & wait; " WAIT);
	AWAIT(0, "stopped", 1);
	cr_assert_eq(kill(launched.pid, SIGTERM), 0);
	launch_end(128 + SIGTERM);
	launched_free(&launched);
}

/* ---- nobody is left ---- */

/* A rank, its child, and one that left its process group and session: they say who they are. */
#define FAMILY                                                             \
	"sleep 1000 & echo child $!.; setsid sh -c 'echo other $$.; " WAIT \
	"' & echo self $PPID $$.; wait"

struct family {
	int fds[3];
};

static struct family await_family(void)
{
	struct family family;

	AWAIT(0, ".\n", 3);
	cr_assert_eq(zi_pidfd_open((pid_t)launch_number(out, "child "), &family.fds[0]), 0);
	cr_assert_eq(zi_pidfd_open((pid_t)launch_number(out, "other "), &family.fds[1]), 0);
	cr_assert_eq(zi_pidfd_open((pid_t)launch_number(strstr(out, "self "), " "), &family.fds[2]),
	             0);
	return family;
}

static void expect_gone(struct family *family)
{
	for (int i = 0; i < 3; i++) {
		struct pollfd ended = { .fd = family->fds[i], .events = POLLIN };

		cr_expect_eq(poll(&ended, 1, 20000), 1, "member %d is left", i);
		(void)close(family->fds[i]);
	}
}

Test(launch_end, what_ranks_left_behind_is_killed_and_told)
{
	RUN(0, "sh", "-c", "setsid sleep 1000 & exit 0");
	expect_words(err, "was left behind by a rank, and is killed\n");
	launched_free(&launched);
}

Test(launch_end, whoever_is_killed_nobody_is_left)
{
	/* What the test orphans must come to somebody who reaps. */
	cr_assert_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	for (int round = 0; round < 2; round++) {
		struct family family;
		pid_t victim;

		BEGIN("sh", "-c", FAMILY);
		family = await_family();
		/* zctl itself, or the process beside it. */
		victim = round ? (pid_t)launch_number(out, "self ") : launched.pid;
		cr_assert_neq(round == 0, victim != launched.pid);
		cr_assert_eq(kill(victim, SIGKILL), 0);
		if (round) {
			launch_end(128 + SIGKILL);
			expect_words(err, "zctl: the supervisor of the ranks (pid ");
		} else {
			cr_expect_eq(launched_end(&launched), 1000 + SIGKILL);
		}
		expect_gone(&family);
		launched_free(&launched);
		/* The supervisor, too, when it was ours to reap. */
		while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
			;
		cr_expect_eq(errno, ECHILD);
	}
}

Test(launch_end, ranks_die_with_both_who_watch_them)
{
	_cleanup_(zi_closep) int fd = -1;
	struct pollfd ended = { .events = POLLIN };
	pid_t supervisor;

	cr_assert_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	/* Nobody would be left to remove the directory of error files. */
	cr_assert_eq(setenv("TMPDIR", "/proc/nowhere", 1), 0);
	BEGIN("sh", "-c", "echo self $PPID $$.; " WAIT);
	AWAIT(0, ".\n", 1);
	supervisor = (pid_t)launch_number(out, "self ");
	cr_assert_eq(zi_pidfd_open((pid_t)launch_number(strstr(out, "self ") + 5, " "), &fd), 0);
	/* Neither may see the other's end. */
	cr_assert_eq(kill(launched.pid, SIGSTOP), 0);
	cr_assert_eq(kill(supervisor, SIGKILL), 0);
	cr_assert_eq(kill(launched.pid, SIGKILL), 0);
	ended.fd = fd;
	cr_expect_eq(poll(&ended, 1, 20000), 1, "the rank is left");
	cr_expect_eq(launched_end(&launched), 1000 + SIGKILL);
	launched_free(&launched);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
}

Test(launch_end, a_rank_that_failed_leaves_nobody_to_the_next_start)
{
	RUN(0, "--max-restarts", "1", "sh", "-c",
	    "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; "
	    "setsid sleep 1000 & echo left $!.; exit 1");
	cr_expect_eq(kill((pid_t)launch_number(out, "left "), 0), -1);
	launched_free(&launched);
}
