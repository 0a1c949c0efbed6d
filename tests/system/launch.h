/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of zctl launch share: a run that is started, followed and ended. */
#pragma once

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/harness.h"
#include "tests/harness/launched.h"

static struct launched launched;
/* Both streams of the newest run that has ended. */
#define out launched.words[0]
#define err launched.words[1]

static inline void launch_begin(const char *const *words)
{
	launched_start(&launched, words, -1);
}
/* Starts zctl launch with these words. */
#define BEGIN(...) launch_begin((const char *const[]){ __VA_ARGS__, NULL })

/* Its end, with @code. */
static inline void launch_end(int code)
{
	int got = launched_end(&launched);

	cr_assert_eq(got, code, "ended with %d, not %d: %s%s", got, code, out, err);
}

/* All of it. */
#define RUN(code, ...)              \
	do {                        \
		BEGIN(__VA_ARGS__); \
		launch_end(code);   \
	} while (0)

/* Until @part has come @count times on stream 0 or 1. */
#define AWAIT(stream, part, count)                                                          \
	cr_assert(launched_await(&launched, (stream), (part), (count)), "no '%s' in: %s%s", \
	          (part), out, err)

#define expect_words(words, part) \
	cr_expect(strstr((words), (part)), "'%s' is not in: %s", (part), (words))
#define expect_no_words(words, part) \
	cr_expect(!strstr((words), (part)), "'%s' is in: %s", (part), (words))

/* What follows @part in @words, as a number. */
static inline long launch_number(const char *words, const char *part)
{
	const char *at = strstr(words, part);

	cr_assert_not_null(at, "no '%s' in: %s", part, words);
	return strtol(at + strlen(part), NULL, 10);
}
