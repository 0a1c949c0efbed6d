/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where ranks show each other their losses, for the progress line alone: a page that the parent
 * maps shared before it forks or, under a launcher, one of each rank's own that a collective fills.
 * Each number of a shared one has one writer, its rank; a reader looks only after a commit or a
 * barrier that the writer took part in after writing. A rank runs at most one step ahead of
 * another's last commit, so a few rows are enough.
 *
 * Their parent also finds there what they said when they failed, and how far they came.
 */
#pragma once

#include <stdint.h>

#include "examples/gpt/problem.h"
#include "zinf/zinf.h"

#define GPT_BOARD_ROWS 4u

struct gpt_board {
	volatile double losses[GPT_BOARD_ROWS][ZINF_WORLD_MAX]; /* row: step mod 4 */
	volatile double eval_losses[ZINF_WORLD_MAX];
	volatile uint64_t committed_count; /* writer: rank 0. Committed steps, with step 0 */
	struct gpt_problem complaints[ZINF_WORLD_MAX]; /* complaint.h; "": none */
};

/* In the order of ranks. */
static inline double gpt_board_mean(const volatile double *values, uint32_t count)
{
	double sum = 0;

	for (uint32_t rank = 0; rank < count; rank++)
		sum += values[rank];
	return sum / (double)count;
}
