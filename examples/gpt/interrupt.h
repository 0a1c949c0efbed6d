/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal that ends the run (Ctrl-C). Nothing has to be saved: the job stands at its last
 * committed step. A line names that step.
 */
#pragma once

#include <stdio.h>

#include "examples/gpt/args.h"
#include "examples/gpt/board.h"

void gpt_interrupt_tell(const struct gpt_args *args, const struct gpt_board *board, FILE *file);
void gpt_interrupt_end(int number) __attribute__((noreturn));
int gpt_interrupt_watch(const struct gpt_args *args, const struct gpt_board *board);
