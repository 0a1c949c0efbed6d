/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: sizes and names in text mean one thing or are refused. Method: tables of text and value, on
 * both sides of each limit. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text.h"

Test(text, bytes_are_formatted_with_binary_units_to_a_tenth)
{
	const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{ 0, "0 B" },
		{ 640, "640 B" },
		{ 1023, "1023 B" },
		{ 1024, "1 KiB" },
		{ 1536, "1.5 KiB" },
		{ 65536, "64 KiB" },
		{ 3ull << 29, "1.5 GiB" },
		{ (1ull << 20) - 1, "1 MiB" }, /* not 1024 KiB */
		{ 1ull << 40, "1 TiB" },
		{ UINT64_MAX, "16 EiB" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_str_eq(zi_format_bytes(cases[i].bytes).chars, cases[i].text);
}

Test(text, bytes_are_parsed_with_binary_units)
{
	const struct {
		const char *text;
		uint64_t bytes;
	} cases[] = {
		{ "0", 0 },
		{ "4096", 4096 },
		{ "4096B", 4096 },
		{ "64K", 65536 },
		{ "64k", 65536 },
		{ "64KiB", 65536 },
		{ "1.5G", 3ull << 29 },
		{ "2 GiB", 2ull << 30 },
		{ "0.5 M", 1 << 19 },
		{ "1T", 1ull << 40 },
		{ "3P", 3ull << 50 },
		{ "7.999999999E", (7ull << 60) + 1152921503453925471ull },
		{ "0.3K", 307 }, /* rounded down */
		{ "9223372036854775807", INT64_MAX },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t bytes = 1;

		cr_expect_eq(zi_parse_bytes(cases[i].text, &bytes), 0, "%s", cases[i].text);
		cr_expect_eq(bytes, cases[i].bytes, "%s: %llu", cases[i].text,
		             (unsigned long long)bytes);
	}
}

Test(text, what_is_no_size_is_einval_and_leaves_the_result)
{
	const char *const cases[] = {
		"",
		"K",
		"-1",
		"+1",
		" 1",
		"1 ",
		"1  K",
		"1KB",
		"1 GB",
		"1Kib",
		"1KiBx",
		"1X",
		"0x10",
		"1.",
		".5K",
		"1.5",
		"1.5B",
		"1..5K",
		"1e3",
		"1,5G",
		"BiB",
		"1BiB",
		"infinity",
		"0.1234567890K",
		"99999999999999999999x",
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t bytes = 77;

		cr_expect_eq(zi_parse_bytes(cases[i], &bytes), -EINVAL, "'%s'", cases[i]);
		cr_expect_eq(bytes, 77, "'%s': untouched on failure", cases[i]);
	}
}

Test(text, what_is_too_large_is_erange_and_leaves_the_result)
{
	const char *const cases[] = {
		"9223372036854775808",    "8E", "16E", "8192P", "99999999999999999999",
		"99999999999999999999.5K"
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t bytes = 77;

		cr_expect_eq(zi_parse_bytes(cases[i], &bytes), -ERANGE, "'%s'", cases[i]);
		cr_expect_eq(bytes, 77, "'%s': untouched on failure", cases[i]);
	}
}

Test(text, error_sentence_is_kept_and_cut_to_its_field)
{
	struct zi_text text;
	char longer[2 * ZI_TEXT_BYTES];

	cr_assert_eq(zi_text_error(&text, -EINVAL, "%d bytes wanted", 5), -EINVAL);
	cr_assert_str_eq(text.chars, "5 bytes wanted");
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	zi_text_set(&text, "%s", longer);
	cr_assert_eq(strlen(text.chars), ZI_TEXT_BYTES - 1);
}

/* Nobody takes half a word or half a figure for all of it. */
Test(text, a_sentence_that_is_cut_says_so_behind_a_whole_word)
{
	struct zi_text text, before;

	zi_text_set(&text, "%0200d of %s has 123456 of 7890123 bytes", 1, "a tier");
	cr_expect_str_eq(text.chars + 200, " of a tier has 123456 of 7890123 bytes");
	zi_text_append(&text, ": raise the quota of it");
	cr_expect_str_eq(text.chars + 200, " of a tier has 123456 of 7890123 bytes: raise the …");
	before = text;
	zi_text_append(&text, ".");
	cr_expect_str_eq(text.chars, before.chars, "what is cut stays so");
	zi_text_set(&text, "%0252dé", 1);
	cr_expect_eq(strlen(text.chars), 254);
	zi_text_set(&text, "%0251dé …", 1);
	cr_expect_eq(strlen(text.chars), 254, "not half a character");
}

Test(text, error_sentence_may_be_unwanted)
{
	zi_text_set(NULL, "nobody %s", "listens");
	cr_assert_eq(zi_text_error(NULL, -EIO, "nobody listens"), -EIO);
}

Test(text, name_is_copied_only_when_it_fits)
{
	char target[5] = "old";

	cr_assert_eq(zi_copy_name(target, sizeof(target), "12345"), -ENAMETOOLONG);
	cr_assert_str_eq(target, "old");
	cr_assert_eq(zi_copy_name(target, sizeof(target), "1234"), 0);
	cr_assert_str_eq(target, "1234");
}

Test(text, numbers_that_differ_are_seen_to_differ)
{
	static const struct {
		double one, other;
		const char *words[2];
	} cases[] = {
		{ 1e-3, 2e-3, { "0.001", "0.002" } },
		{ 0.1, 0.1 + 1e-9, { "0.1", "0.100000001" } },
		{ 0.01f, 0.02f, { "0.00999999978", "0.0199999996" } },
		{ 1, 1 + 1e-12, { "1", "1.0000000000010001" } },
		{ 0.0, -0.0, { "0", "-0" } },
		{ -1.7976931348623157e308, 0, { "-1.79769313e+308", "0" } },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct zi_reals_text text = zi_format_reals(cases[i].one, cases[i].other);

		cr_expect_str_eq(text.one, cases[i].words[0]);
		cr_expect_str_eq(text.other, cases[i].words[1]);
	}
}

Test(text, names_have_a_plain_alphabet)
{
	const char *const good[] = { "a", "job-1", "gpt:2_x", "A.b+c", "_x", ":y", "0123456" };
	const char *const bad[] = { "", ".x", "-x", "a b", "a/b", "a\n", "\xc3\xa9", "a\x7f" };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		cr_expect_eq(zi_check_name(good[i], 8), 0, "'%s'", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect_eq(zi_check_name(bad[i], 8), -EINVAL, "'%s'", bad[i]);
	cr_assert_eq(zi_check_name("12345678", 8), -ENAMETOOLONG);
}

Test(text, unterminated_name_is_not_read_past_its_field)
{
	char *field = malloc(4); /* The sanitizer sees a read beyond. */

	memset(field, 'x', 4);
	cr_assert_eq(zi_check_name(field, 4), -ENAMETOOLONG);
	free(field);
}
