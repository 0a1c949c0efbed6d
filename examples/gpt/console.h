/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard output that may be closed or full. Text that a user asked for (--generate, --eval,
 * --help) is worth nothing when it is lost: the program ends. Training is worth more than its
 * progress lines: it goes on.
 */
#pragma once

#include "examples/gpt/problem.h"

/* The reader of standard output has gone: an end without a message. */
#define GPT_CONSOLE_E_CLOSED 1

void gpt_console_open(void);
int gpt_console_flush(struct gpt_problem *problem);
int gpt_console_end(struct gpt_problem *problem);
