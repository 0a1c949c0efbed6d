/* SPDX-License-Identifier: Apache-2.0 */
/* A command line of zinf-gpt, for tests of what it means. */
#pragma once

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "examples/gpt/args.h"

enum { WORDS_MAX = 16 };

/* @line: words with single blanks, without the program's name. */
static inline int parse(const char *line, struct gpt_args *args, struct gpt_problem *problem)
{
	static char copy[512];
	const char *argv[WORDS_MAX] = { "zinf-gpt" };
	char *rest = NULL;
	int argc = 1;

	(void)snprintf(copy, sizeof(copy), "%s", line);
	for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		argv[argc++] = word;
	return gpt_args_parse(args, argc, argv, problem);
}
