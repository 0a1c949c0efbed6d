/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress line. Its times are means over the steps since the line before, and add up: a step
 * is the computing of this rank and its waiting, for units, gradients and the end of the step
 * before.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A terminal has at least the first; no line is longer than the second. */
#define GPT_PROGRESS_COLUMNS_MIN 80u
#define GPT_PROGRESS_COLUMNS_MAX 100u

/* What is shown. Of rank 0, but for loss and tokens: of all ranks. */
struct gpt_progress {
	uint64_t step, step_count; /* steps of the job, of which the last one */
	double loss, norm, lr;
	uint64_t window_count; /* steps since the line before, at least 1. Of all of them: */
	uint64_t loop_ns;      /* time that passed */
	uint64_t compute_ns;   /* of that, forward and backward */
	uint64_t token_count;
};

unsigned gpt_progress_columns(int fd);
void gpt_progress_line(const struct gpt_progress *progress, unsigned column_count, char *text,
                       size_t capacity);
