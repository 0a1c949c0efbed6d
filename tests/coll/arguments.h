/* SPDX-License-Identifier: Apache-2.0 */
/* What programs that run drawn cases are told: --seed N, --rounds N, or --round N for that one case
 * alone; and --simple. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct arguments {
	uint64_t seed;         /* 1 */
	uint64_t first, count; /* which cases: 0, and as many as the program says */
	bool is_simple;
};

/* @count: where none is asked for; @knows_simple: whether the program does. Return: false, and
 * getopt's word on stderr, where it is another argument. */
bool arguments_take(int argc, char **argv, uint64_t count, bool knows_simple,
                    struct arguments *ret_arguments);
