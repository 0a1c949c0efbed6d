/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop over a backend. */
#pragma once

#include "examples/gpt/args.h"
#include "examples/gpt/backend.h"
#include "examples/gpt/board.h"
#include "examples/gpt/data.h"

/* Who the ranks of this process are to each other. */
struct gpt_run {
	const struct gpt_args *args;
	const struct gpt_model *model;
	const struct gpt_corpus *corpus;
	struct gpt_board *board;
	_Bool is_board_shared; /* by all ranks of the job */
};

int gpt_train(const struct gpt_run *run, struct gpt_backend *backend, struct gpt_problem *problem);
/* @step: the committed one. How @path is written: outfile.h. */
int gpt_dump(const struct gpt_model *model, struct gpt_backend *backend, uint64_t step,
             enum zinf_dtype dtype, const char *path, struct gpt_problem *problem);
/* Of a backend that has ->state: the bytes of an export's files, without their heads. */
int gpt_dump_state(const struct gpt_model *model, const struct gpt_backend *backend,
                   const char *path, struct gpt_problem *problem);
