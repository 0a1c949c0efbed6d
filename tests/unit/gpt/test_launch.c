/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the parent of --ranks N knows how its ranks ended, ends the others when one fails, and
 * starts all again where that can help. Method: ranks that do nothing but end in a way of their
 * own.
 */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/gpt/complaint.h"
#include "examples/gpt/launch.h"
#include "tests/harness/seccomp.h"

/* What the ranks leave for the test: the board is shared, and its numbers are theirs to use
 * here. */
struct plan {
	int32_t culprit;         /* -1: none */
	int code;                /* it ends with this; negative: with that signal */
	uint32_t life_count;     /* in how many lives it does so */
	bool are_others_waiting; /* for a signal */
};

static struct gpt_args arguments(uint32_t world_count, uint32_t restart_max)
{
	return (struct gpt_args){
		.rank = -1, .grace_s = 30, .world_count = world_count, .restart_max = restart_max
	};
}

static int play(const struct gpt_args *args, struct gpt_board *board, void *arg)
{
	const struct plan *plan = arg;

	board->losses[0][args->rank] = args->restart_index + 1;
	if (args->rank == plan->culprit && args->restart_index < plan->life_count) {
		if (plan->code < 0)
			(void)raise(-plan->code);
		return plan->code;
	}
	if (plan->culprit >= 0 && plan->are_others_waiting &&
	    args->restart_index < plan->life_count)
		for (;;)
			(void)pause();
	return GPT_EXIT_DONE;
}

static int check_names(const struct gpt_args *args, struct gpt_board *board, void *arg)
{
	char want[8];

	(void)board;
	(void)arg;
	(void)snprintf(want, sizeof(want), "%d", args->rank);
	if (strcmp(getenv("RANK"), want) != 0 || strcmp(getenv("WORLD_SIZE"), "3") != 0 ||
	    strcmp(getenv("LOCAL_RANK"), want) != 0)
		return 1;
	return args->incarnation && strstr(args->incarnation, ".0") ? GPT_EXIT_DONE : 1;
}

/* Of descriptors that wait for processes or signals there is none. */
static int check_descriptors(const struct gpt_args *args, struct gpt_board *board, void *arg)
{
	int code = GPT_EXIT_DONE;

	(void)args;
	(void)board;
	(void)arg;
	for (int fd = 0; fd < 256; fd++) {
		char path[32], link[64] = "";

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, link, sizeof(link) - 1) > 0 &&
		    (strstr(link, "pidfd") || strstr(link, "signalfd")))
			code = 3;
	}
	return code;
}

Test(launch, ranks_have_no_descriptor_of_their_parent)
{
	struct gpt_args args = arguments(3, 0);

	cr_expect_eq(gpt_launch(&args, check_descriptors, NULL), GPT_EXIT_DONE);
}

/* As in some sandboxes, and before Linux 5.3. */
Test(launch, ranks_start_and_end_without_pidfds)
{
	static const uint32_t errors[] = { ENOSYS, EPERM };
	struct gpt_args args = arguments(2, 0);
	struct plan plan = { .culprit = -1 };

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		refuse_call(SYS_pidfd_open, errors[i]);
		cr_expect_eq(gpt_launch(&args, play, &plan), GPT_EXIT_DONE);
	}
}

Test(launch, ranks_find_a_launchers_variables_and_an_incarnation)
{
	struct gpt_args args = arguments(3, 0);

	cr_expect_eq(gpt_launch(&args, check_names, NULL), GPT_EXIT_DONE);
}

Test(launch, a_rank_that_fails_is_named_and_the_others_are_ended, .init = cr_redirect_stderr,
     .timeout = 20)
{
	struct gpt_args args = arguments(3, 5);
	struct plan plan = {
		.culprit = 1, .code = GPT_EXIT_ERROR, .life_count = 100, .are_others_waiting = true
	};

	/* An error would only come again: five restarts are allowed and none is made. */
	cr_expect_eq(gpt_launch(&args, play, &plan), GPT_EXIT_ERROR);
	cr_expect_stderr_eq_str("zinf-gpt: rank 1 ended with code 1; ending the others\n");
}

Test(launch, a_killed_rank_starts_all_of_them_again, .init = cr_redirect_stderr, .timeout = 20)
{
	struct gpt_args args = arguments(3, 2);
	struct plan plan = {
		.culprit = 2, .code = -SIGKILL, .life_count = 2, .are_others_waiting = true
	};

	cr_expect_eq(gpt_launch(&args, play, &plan), GPT_EXIT_DONE);
}

Test(launch, restarts_come_to_an_end, .init = cr_redirect_stderr, .timeout = 20)
{
	struct gpt_args args = arguments(2, 1);
	struct plan plan = {
		.culprit = 0, .code = GPT_EXIT_AGAIN, .life_count = 100, .are_others_waiting = true
	};

	cr_expect_eq(gpt_launch(&args, play, &plan), GPT_EXIT_AGAIN);
}

/* Rank 0 has only suffered, and is the first to know; rank 1 comes later, but for a process that
 * has ended already. */
static int suffer(const struct gpt_args *args, struct gpt_board *board, void *arg)
{
	struct pollfd nothing = { .fd = -1 };

	(void)board;
	(void)arg;
	if (args->rank == 0)
		return GPT_EXIT_AGAIN;
	(void)poll(&nothing, 1, 100); /* For the end that must not come. */
	return GPT_EXIT_ERROR;
}

Test(launch, of_threads_the_one_whose_fault_it_is_ends_the_process, .init = cr_redirect_stderr,
     .timeout = 20)
{
	struct gpt_args args = arguments(3, 5);

	args.strategy = "dp";
	args.timeout_s = 600;
	cr_expect_eq(gpt_launch(&args, suffer, NULL), GPT_EXIT_ERROR);
	cr_expect_stderr_eq_str("zinf-gpt: the process of all ended with code 1\n");
}

static int suffer_all(const struct gpt_args *args, struct gpt_board *board, void *arg)
{
	(void)args;
	(void)board;
	(void)arg;
	return GPT_EXIT_AGAIN;
}

Test(launch, threads_that_all_suffered_are_worth_a_restart, .init = cr_redirect_stderr,
     .timeout = 20)
{
	struct gpt_args args = arguments(3, 0);

	args.strategy = "dp";
	args.timeout_s = 600;
	cr_expect_eq(gpt_launch(&args, suffer_all, NULL), GPT_EXIT_AGAIN);
}

Test(launch, all_end_well)
{
	struct gpt_args args = arguments(4, 0);
	struct plan plan = { .culprit = -1 };

	cr_expect_eq(gpt_launch(&args, play, &plan), GPT_EXIT_DONE);
}

/* ---- the end of the others ---- */

/* Of the process: 'T' stopped. '?' when it is gone. */
static char state_of(int pid)
{
	char path[64], state = '?';
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return '?';
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = '?';
	(void)fclose(file);
	return state;
}

/* Rank 0 is stopped, then rank 1 fails. */
static int stop_one(const struct gpt_args *args, struct gpt_board *board, void *arg)
{
	(void)arg;
	if (args->rank == 0) {
		board->losses[0][0] = getpid();
		(void)raise(SIGSTOP);
		for (;;)
			(void)pause();
	}
	while (!board->losses[0][0] || state_of((int)board->losses[0][0]) != 'T')
		(void)sched_yield();
	return GPT_EXIT_AGAIN;
}

Test(launch, a_stopped_rank_is_ended_too, .init = cr_redirect_stderr, .timeout = 60)
{
	struct gpt_args args = arguments(2, 0);

	cr_expect_eq(gpt_launch(&args, stop_one, NULL), GPT_EXIT_AGAIN,
	             "a wrapper starts it again");
	cr_expect_stderr_eq_str("zinf-gpt: rank 1 ended with code 75; ending the others\n");
}

/* Rank 0 takes no SIGTERM. */
static int refuse_to_end(const struct gpt_args *args, struct gpt_board *board, void *arg)
{
	(void)arg;
	if (args->rank == 0) {
		(void)signal(SIGTERM, SIG_IGN);
		board->losses[0][0] = 1;
		for (;;)
			(void)pause();
	}
	while (!board->losses[0][0])
		(void)sched_yield();
	return GPT_EXIT_ERROR;
}

Test(launch, a_rank_that_does_not_end_is_killed_after_the_grace, .init = cr_redirect_stderr,
     .timeout = 60)
{
	struct gpt_args args = arguments(2, 0);

	args.grace_s = 0.01;
	cr_expect_eq(gpt_launch(&args, refuse_to_end, NULL), GPT_EXIT_ERROR);
}

/* A rank of a run that Ctrl-C is to end: the test waits for a byte in the pipe. */
static int wait_for_end(const struct gpt_args *args, struct gpt_board *board, void *arg)
{
	const int *pipe_fds = arg;

	if (args->rank == 0) {
		board->committed_count = 8;
		(void)!write(pipe_fds[1], "", 1);
	}
	for (;;)
		(void)pause();
	return GPT_EXIT_DONE;
}

/* The launch in a process of its own, which @number ends. Its words come back. */
static void interrupt(const struct gpt_args *args, int number, char *words, size_t capacity)
{
	int ready[2], errors[2], status = 0;
	size_t bytes = 0;
	ssize_t got;
	char byte;
	pid_t pid;

	cr_assert_eq(pipe(ready), 0);
	cr_assert_eq(pipe(errors), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		(void)dup2(errors[1], STDERR_FILENO);
		(void)close(errors[1]);
		_exit(gpt_launch(args, wait_for_end, ready));
	}
	(void)close(errors[1]);
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	cr_assert_eq(kill(pid, number), 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == number, "status %d", status);
	while ((got = read(errors[0], words + bytes, capacity - 1 - bytes)) > 0)
		bytes += (size_t)got;
	words[bytes] = '\0';
}

Test(launch, ctrl_c_says_where_the_job_stands, .timeout = 60)
{
	static const int numbers[] = { SIGINT, SIGTERM };
	struct gpt_args args = arguments(2, 3);
	char words[1024];

	for (unsigned i = 0; i < 2; i++) {
		interrupt(&args, numbers[i], words, sizeof(words));
		cr_expect_str_eq(words, "zinf-gpt: stopped at step 7, which is committed; the same "
		                        "command goes on from there\n");
	}
	args.resumes_step = true;
	interrupt(&args, SIGINT, words, sizeof(words));
	cr_expect(strstr(words, "--resume latest goes on from there"), "%s", words);
	/* Nothing was trained. */
	args.generate_count = 1;
	interrupt(&args, SIGINT, words, sizeof(words));
	cr_expect_str_eq(words, "");
}

static void *pause_thread(void *arg)
{
	for (;;)
		(void)pause();
	return arg;
}

/* Such as OpenBLAS's: it does not block the signals that the parent waits for. */
Test(launch, a_thread_of_a_library_hides_no_end, .init = cr_redirect_stderr, .timeout = 60)
{
	struct gpt_args args = arguments(3, 0);
	struct plan plan = { .culprit = -1 };
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, pause_thread, NULL), 0);
	for (unsigned i = 0; i < 20; i++)
		cr_expect_eq(gpt_launch(&args, play, &plan), GPT_EXIT_DONE);
	plan = (struct plan){ .culprit = 1, .code = GPT_EXIT_ERROR, .life_count = 1 };
	cr_expect_eq(gpt_launch(&args, play, &plan), GPT_EXIT_ERROR);
	(void)pthread_cancel(thread);
	(void)pthread_join(thread, NULL);
}

/* ---- what they say ---- */

static int fail_alike(const struct gpt_args *args, struct gpt_board *board, void *arg)
{
	const struct gpt_problem problem = { "the daemon is not there" };

	(void)arg;
	gpt_complain(args, board, &problem);
	return GPT_EXIT_ERROR;
}

Test(launch, one_reason_of_several_ranks_is_printed_once, .init = cr_redirect_stderr, .timeout = 60)
{
	struct gpt_args args = arguments(4, 0);
	char words[2048] = "";
	const char *first;

	cr_expect_eq(gpt_launch(&args, fail_alike, NULL), GPT_EXIT_ERROR);
	(void)fflush(stderr);
	cr_assert_gt(fread(words, 1, sizeof(words) - 1, cr_get_redirected_stderr()), 0);
	first = strstr(words, ": the daemon is not there\n");
	cr_assert_not_null(first, "%s", words);
	cr_expect_null(strstr(first + 1, ": the daemon"), "%s", words);
}

Test(launch, ranks_are_named_with_their_sentence)
{
	static struct gpt_board board;
	const bool first[5] = { true, true, false, true, false };
	const bool all[5] = { true, true, true, true, true };
	bool has_told[5] = { false };
	char text[512] = "";
	FILE *file = fmemopen(text, sizeof(text), "w");

	cr_assert_not_null(file);
	for (int32_t rank = 0; rank < 4; rank++) {
		const struct gpt_args args = { .rank = rank };
		const struct gpt_problem problem = { "one reason" };

		gpt_complain(&args, &board, &problem);
	}
	gpt_complaints_tell(&board, 5, first, has_told, file);
	(void)snprintf(board.complaints[4].chars, sizeof(board.complaints[4].chars), "another");
	gpt_complaints_tell(&board, 5, all, has_told, file);
	gpt_complaints_tell(&board, 5, all, has_told, file);
	(void)fclose(file);
	cr_expect_str_eq(text, "zinf-gpt: ranks 0-1, 3: one reason\nzinf-gpt: rank 4: another\n");
}
