/* SPDX-License-Identifier: Apache-2.0 */
/* One sentence about what is wrong. */
#include "examples/gpt/problem.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

/* @error: a negative errno. Return: @error, so that the caller can say it and return in one
 * line. */
int gpt_problem_set(struct gpt_problem *problem, int error, const char *format, ...)
{
	va_list args;

	assert(error < 0);
	va_start(args, format);
	(void)vsnprintf(problem->chars, sizeof(problem->chars), format, args); /* Cut when long. */
	va_end(args);
	return error;
}
