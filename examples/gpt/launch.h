/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the ranks of one machine, without any launcher. */
#pragma once

#include "examples/gpt/args.h"
#include "examples/gpt/board.h"

/* Codes that a rank ends with, for its launcher. */
enum {
	GPT_EXIT_DONE = 0,
	GPT_EXIT_ERROR = 1,    /* starting again would not help */
	GPT_EXIT_USAGE = 2,    /* the command line */
	GPT_EXIT_AGAIN = 75,   /* the group broke or the daemon left (sysexits: EX_TEMPFAIL) */
	GPT_EXIT_CLOSED = 141, /* nobody reads the text: as if SIGPIPE had ended the program */
};

/* What a rank does after it was forked. Return: its exit code. */
typedef int (*gpt_rank_fn)(const struct gpt_args *args, struct gpt_board *board, void *arg);

int gpt_launch(const struct gpt_args *args, gpt_rank_fn rank_main, void *arg);
