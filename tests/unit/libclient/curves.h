/* SPDX-License-Identifier: Apache-2.0 */
/* Asks lr_curves.py, beside this file, for the curves of many cases at once; and the numbers that
 * the cases are drawn from. CURVES_COMMAND in the environment is taken instead, as
 * "python3 tests/unit/libclient/lr_curves.py --originals". */
#pragma once

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CURVES_PYTHON "/usr/bin/python3"

struct curves {
	FILE *cases; /* what is asked: one per line */
	FILE *answers;
	char *line;
	size_t line_bytes;
};

static inline void curves_begin(struct curves *curves)
{
	int fd;

	if (access(CURVES_PYTHON, X_OK) != 0)
		cr_skip_test(CURVES_PYTHON " is not there");
	fd = memfd_create("cases", 0); /* The command reads it by its number. */
	cr_assert_geq(fd, 0);
	*curves = (struct curves){ .cases = fdopen(fd, "w+") };
	cr_assert_not_null(curves->cases);
}

/* All cases are written. */
static inline void curves_ask(struct curves *curves)
{
	const char *command = getenv("CURVES_COMMAND");
	char line[512];

	cr_assert_eq(fflush(curves->cases), 0);
	snprintf(line, sizeof(line), "%s < /proc/self/fd/%d",
	         command ? command : CURVES_PYTHON " tests/unit/libclient/lr_curves.py",
	         fileno(curves->cases));
	curves->answers = popen(line, "r");
	cr_assert_not_null(curves->answers);
}

/* The next case's line, with one value after another by strtod(). */
static inline char *curves_next(struct curves *curves)
{
	cr_assert_gt(getline(&curves->line, &curves->line_bytes, curves->answers), 0,
	             "lr_curves.py ended early");
	return curves->line;
}

static inline void curves_end(struct curves *curves)
{
	cr_assert_lt(getline(&curves->line, &curves->line_bytes, curves->answers), 0,
	             "lr_curves.py says more than it was asked");
	cr_assert_eq(pclose(curves->answers), 0);
	cr_assert_eq(fclose(curves->cases), 0);
	free(curves->line);
}

/* Whether it is the next value of the line, bit for bit (a NaN never is). */
static inline bool curves_takes(char **line, double value)
{
	char *end = *line;
	double expected = strtod(*line, &end);

	if (end == *line)
		return false;
	*line = end;
	return memcmp(&expected, &value, sizeof(value)) == 0;
}

/* xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators". */
static inline uint64_t draw_u64(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 2685821657736338717u;
}

/* 0 to @max. */
static inline uint64_t draw(uint64_t *state, uint64_t max)
{
	return (draw_u64(state) >> 16) % (max + 1);
}

/* In [0, 1). */
static inline double draw_part(uint64_t *state)
{
	return (double)(draw_u64(state) >> 11) * 0x1p-53;
}
