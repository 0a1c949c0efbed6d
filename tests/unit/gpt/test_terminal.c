/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever bytes a model writes, a terminal is given characters of UTF-8 and nothing that it
 * would obey. Method: texts with their likenesses; every pair of bytes before
 * some thirds, against the rules of UTF-8 said another way.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/terminal.h"

static char shown[256];

static void show(const char *bytes, size_t count)
{
	FILE *file = fmemopen(shown, sizeof(shown), "w");
	struct gpt_terminal terminal = { .file = file };

	cr_assert_not_null(file);
	memset(shown, 0, sizeof(shown));
	for (size_t i = 0; i < count; i++)
		gpt_terminal_put(&terminal, (uint8_t)bytes[i]);
	gpt_terminal_end(&terminal);
	cr_assert_eq(fclose(file), 0);
}

Test(terminal, characters_pass_and_what_controls_it_does_not)
{
	const struct {
		const char *bytes, *shown;
	} cases[] = {
		{ "plain\ttext\n", "plain\ttext\n" },
		{ "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
		  "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80" },
		{ "\x1b[2J\x07\x7f\r", "?[2J???" },
		{ "\x9b"
		  "2J\x90\x85",
		  "?2J??" }, /* C1 of an 8-bit terminal */
		{ "\xc2\x9b"
		  "2J",
		  "??2J" },                 /* and as characters */
		{ "\xc2\xa0", "\xc2\xa0" }, /* the first one behind them */
		{ "\xe2\x82", "??" },       /* the text ends */
		{ "\xe2\x82"
		  "a",
		  "??a" }, /* or another character begins */
		{ "\xe2\xe2\x82\xac", "?\xe2\x82\xac" },
		{ "\xc0\x9b\xe0\x82\x9b", "?????" }, /* longer forms of the same */
		{ "\xed\xa0\x80", "???" },           /* half a surrogate */
		{ "\xf4\x90\x80\x80\xff", "?????" }, /* past the last */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		show(cases[i].bytes, strlen(cases[i].bytes));
		cr_expect_str_eq(shown, cases[i].shown, "case %zu: '%s'", i, shown);
	}
}

/* A code point, or -1: from the whole of what was shown. */
static long decode(const uint8_t *bytes, size_t count)
{
	static const long least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	long point = count == 1 ? bytes[0] : bytes[0] & (0x7f >> count);

	for (size_t i = 1; i < count; i++)
		point = point << 6 | (bytes[i] & 0x3f);
	return point < least[count] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)
	               ? -1
	               : point;
}

static void check_shown(uint32_t triple)
{
	const uint8_t *at = (const uint8_t *)shown;

	cr_assert_neq(*at, 0, "%06x", triple);
	while (*at) {
		size_t count = *at < 0x80 ? 1 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : 4;
		long point = decode(at, count);

		cr_assert(point >= 0xa0 || (point >= 0x20 && point < 0x7f) || point == 9 ||
		                  point == 10,
		          "%06x", triple);
		at += count;
	}
}

Test(terminal, no_three_bytes_make_a_control_character)
{
	static const uint8_t thirds[] = { 0, 'a', 0x1b, 0x80, 0x9b, 0xa0, 0xbf, 0xc2, 0xe2, 0xff };

	for (uint32_t pair = 0; pair < 1u << 16; pair++)
		for (size_t i = 0; i < sizeof(thirds); i++) {
			const char bytes[] = { (char)(pair >> 8), (char)pair, (char)thirds[i] };

			show(bytes, sizeof(bytes));
			check_shown(pair << 8 | thirds[i]);
		}
}
