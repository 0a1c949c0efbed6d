/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong, as one sentence for a person, beside the errno that a function returns. */
#pragma once

#include <stdint.h>

#define GPT_PROBLEM_BYTES 512u

struct gpt_problem {
	char chars[GPT_PROBLEM_BYTES];
};

int gpt_problem_set(struct gpt_problem *problem, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
