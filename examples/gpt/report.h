/* SPDX-License-Identifier: Apache-2.0 */
/* What is printed of a run: lines for people by rank 0, or a line of JSON per step and rank. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "examples/gpt/args.h"
#include "examples/gpt/board.h"
#include "examples/gpt/progress.h"
#include "zinf/zinf.h"

/* One committed step, as a process saw it. */
struct gpt_record {
	uint64_t step;
	double lr;
	double loss_scale;
	uint64_t token_count; /* of the step, all ranks */
	uint32_t live_count;  /* ranks that had data: the first ones, */
	uint32_t loss_count;  /* and those of them whose losses are on the board */
	uint64_t wall_ns;     /* since the former step's commit was seen */
	uint64_t compute_ns;  /* forward and backward, without waiting */
	uint64_t wait_ns;     /* for units and gradient buffers */
	uint64_t loop_ns;     /* in the training loop, all that passed */
	struct zinf_step_stats stats;
};

struct gpt_report {
	const struct gpt_args *args;
	const struct gpt_model *model;
	const struct gpt_board *board;
	uint32_t rank_first;
	uint32_t lane_count;
	uint32_t world_count;
	int watch_fd;                 /* --watch; -1: none */
	struct gpt_progress progress; /* sums of the steps since the line before */
};

void gpt_report_start(const struct gpt_report *report, const struct gpt_model *model,
                      uint64_t byte_count, uint32_t file_count);
void gpt_report_resumed(const struct gpt_report *report, uint64_t step, uint64_t token_count);
void gpt_report_lost(const struct gpt_report *report, int64_t lost_step, uint64_t step);
void gpt_report_nothing_to_do(const struct gpt_report *report, uint64_t step);
void gpt_report_note(const struct gpt_report *report, const char *note);
void gpt_report_step(struct gpt_report *report, const struct gpt_record *record);
void gpt_report_eval(const struct gpt_report *report, uint64_t step);
void gpt_report_memory(const struct gpt_report *report, uint64_t own_bytes, uint64_t tensor_bytes);
