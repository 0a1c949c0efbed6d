/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what others wrote reaches terminals and JSON as text, and a text that is cut ends with a
 * whole character. Method: tables; every cut of a text; random bytes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text.h"
#include "common/base/utf8.h"
#include "tests/kernels/data.h"

Test(utf8, what_cannot_be_printed_is_replaced)
{
	static const struct {
		const char *from, *to;
	} cases[] = {
		{ "", "" },
		{ "plain, × and µ, 漢 and 🙂", "plain, × and µ, 漢 and 🙂" },
		{ "\x1b[2J\n\x7f\t", "?[2J???" },
		{ "\xc2\x9b"
		  "31m \xc2\x80\xc2\x9f",
		  "?31m ??" }, /* C1 as UTF-8 */
		{ "\x9b"
		  "31m",
		  "?31m" },                                    /* C1 as Latin-1 */
		{ "\xc2\xa0", "\xc2\xa0" },                    /* the first behind them */
		{ "a\xc3", "a?" },                             /* cut */
		{ "\xe2\x82 b\xf0\x9f\x99", "?? b???" },       /* cut */
		{ "\xc0\x80\xc1\xbf\xe0\x80\x80", "???????" }, /* longer than need be */
		{ "\xed\xa0\x80", "???" },                     /* a half of UTF-16 */
		{ "\xf4\x90\x80\x80\xf5\x80", "??????" },      /* beyond the last one */
		{ "\xef\xbf\xbd\xf4\x8f\xbf\xbf", "\xef\xbf\xbd\xf4\x8f\xbf\xbf" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char chars[64];

		(void)snprintf(chars, sizeof(chars), "%s", cases[i].from); /* Fits. */
		zi_utf8_clean(chars);
		cr_expect_str_eq(chars, cases[i].to, "case %zu: %s", i, chars);
	}
}

Test(utf8, cleaning_leaves_nothing_to_clean)
{
	uint64_t state = 4713;

	for (uint32_t round = 0; round < 2000; round++) {
		char chars[64] = { 0 }, again[64];

		for (uint32_t i = 0; i < sizeof(chars) - 1; i++)
			chars[i] = (char)(data_random(&state) >> 16);
		zi_utf8_clean(chars);
		memcpy(again, chars, sizeof(again));
		zi_utf8_clean(again);
		cr_assert_str_eq(again, chars);
		for (const char *at = chars; *at; at++)
			cr_assert((unsigned char)*at >= ' ' && *at != 0x7f);
	}
}

Test(utf8, a_text_is_cut_before_a_character_that_does_not_fit)
{
	static const char whole[] = "aµ漢🙂b";
	static const size_t fits[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11 };

	cr_assert_eq(sizeof(fits) / sizeof(fits[0]), sizeof(whole));
	for (size_t bytes = 0; bytes < sizeof(whole); bytes++)
		cr_expect_eq(zi_utf8_whole(whole, bytes), fits[bytes], "%zu of them", bytes);
	/* What is none is not made shorter for ever. */
	cr_expect_eq(zi_utf8_whole("\x80\x80\x80\x80\x80", 5), 5);
	cr_expect_eq(zi_utf8_whole("\x80", 1), 1);
}

/* "×" has two bytes: of one of each pair of lengths before it the text's end is within it. */
Test(utf8, sentences_are_cut_so)
{
	static const char dots[] = "....................";

	for (int dot_count = 0; dot_count < 4; dot_count++) {
		struct zi_text text, appended = { "" };
		char cleaned[ZI_TEXT_BYTES];

		zi_text_set(&text, "%.*s", dot_count, dots);
		for (uint32_t i = 0; i < 200; i++)
			zi_text_append(&text, "×");
		cr_expect_geq(strlen(text.chars), ZI_TEXT_BYTES - 2);
		memcpy(cleaned, text.chars, sizeof(cleaned));
		zi_utf8_clean(cleaned);
		cr_expect_str_eq(cleaned, text.chars);
		cr_expect_eq(
			zi_text_error(&appended, -1, "%s%s", &"..."[dot_count % 2], text.chars),
			-1);
		memcpy(cleaned, appended.chars, sizeof(cleaned));
		zi_utf8_clean(cleaned);
		cr_expect_str_eq(cleaned, appended.chars);
		zi_text_set(&appended, "%s%s", &"..."[dot_count % 2], text.chars);
		memcpy(cleaned, appended.chars, sizeof(cleaned));
		zi_utf8_clean(cleaned);
		cr_expect_str_eq(cleaned, appended.chars);
	}
}
