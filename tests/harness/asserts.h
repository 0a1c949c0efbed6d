/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Criterion's asserts with less code at each place. Criterion expands its whole report into every
 * assert, and a test file has hundreds of asserts. With this header an assert is a branch and a
 * call, and a test file compiles in up to half the time, most of all with sanitizers. The reports
 * and the counts are the same. Only passed asserts are no longer sent with --full-stats.
 *
 * tests/tests.mk includes this header before each test file. All of Criterion's asserts expand to
 * cr_assert_impl().
 */
#pragma once

#include <criterion/criterion.h>

/**
 * test_failed() - report an assert that does not hold to Criterion.
 * @file: source file of the assert.
 * @line: line of the assert.
 * @text: what the assert says, made by cr_translate_assert_msg(). This function frees it.
 * @format: one ignored character, then the test's own message. An empty message means that @text
 *          is reported.
 */
__attribute__((cold, format(printf, 4, 5))) void test_failed(const char *file, unsigned int line,
                                                             char *text, const char *format, ...);

#undef cr_assert_impl
/* Arguments as Criterion passes them. Fail() ends the test or lets it continue. */
#define cr_assert_impl(Fail, Condition, Ignored, Kind, Text, ...)                   \
	do {                                                                        \
		if (__builtin_expect(!(Condition), 0)) {                            \
			test_failed(__FILE__, __LINE__,                             \
			            cr_translate_assert_msg(Kind, TEST_SAID(Text)), \
			            "x" __VA_ARGS__);                               \
			Fail();                                                     \
		} else {                                                            \
			cri_asserts_passed_incr();                                  \
		}                                                                   \
	} while (0)
/* The texts of an assert, the first one perhaps missing. */
#define TEST_SAID(Text) "" CR_TRANSLATE_DEF_MSG__(Text)
