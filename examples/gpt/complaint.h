/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks say when they fail. Ranks often fail for one reason: each leaves its sentence on the
 * board, and their parent prints equal sentences once. A rank without a parent prints its own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "examples/gpt/args.h"
#include "examples/gpt/board.h"

void gpt_complain(const struct gpt_args *args, struct gpt_board *board,
                  const struct gpt_problem *problem);
void gpt_complaints_clear(struct gpt_board *board);
void gpt_complaints_tell(const struct gpt_board *board, uint32_t world_count,
                         const bool *is_readable, bool *has_told, FILE *file);
