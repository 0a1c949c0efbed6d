/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the parent of --ranks N knows how its ranks ended, ends the others when one fails, and
 * starts all again where that can help. Method: ranks that do nothing but end in a way of their
 * own.
 */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/gpt/launch.h"

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
	return (struct gpt_args){ .rank = -1,
		                  .world_count = world_count,
		                  .restart_max = restart_max };
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
