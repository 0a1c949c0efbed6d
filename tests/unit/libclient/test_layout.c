/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: zinf_layout() lists every field of every public structure, in order, with the compiler's
 * offsets and sizes. Method: the headers are read as text, and what they declare is compared with
 * the table name by name; of some structures the figures are compared with the compiler's. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "tests/unit/docs/page.h"
#include "zinf/deepspeed.h"
#include "zinf/zinf.h"

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* Comments become blanks. */
static void blank_comments(char *text)
{
	for (char *at = text; (at = strstr(at, "/*"));) {
		char *end = strstr(at, "*/");

		cr_assert_not_null(end);
		memset(at, ' ', (size_t)(end + 2 - at));
	}
}

static const struct zinf_layout_field *entry(const char *structure, const char *field)
{
	uint32_t count;
	const struct zinf_layout_field *fields = zinf_layout(&count);

	for (uint32_t i = 0; i < count; i++)
		if (!strcmp(fields[i].structure, structure) && !strcmp(fields[i].field, field))
			return &fields[i];
	return NULL;
}

/* The declarators of @body, which ends at its brace: names in front of "," ";" or "[". Each is the
 * entry behind the one before. Return: how many. */
static uint32_t check_body(const char *structure, const char *body)
{
	const struct zinf_layout_field *expected = entry(structure, "");
	uint32_t count = 0;

	cr_assert_not_null(expected, "struct %s is not in the table", structure);
	for (const char *at = body; *at != '}'; at++) {
		const char *end = at, *begin;
		char name[64] = "";

		if (*at != ',' && *at != ';')
			continue;
		while (isspace((unsigned char)end[-1]))
			end--;
		if (end[-1] == ']')
			while (*end != '[')
				end--;
		for (begin = end; is_word(begin[-1]);)
			begin--;
		cr_assert_lt((size_t)(end - begin), sizeof(name));
		memcpy(name, begin, (size_t)(end - begin));
		expected++;
		cr_assert_str_eq(expected->structure, structure, "%s.%s is missing", structure,
		                 name);
		cr_assert_str_eq(expected->field, name, "in %s", structure);
		count++;
	}
	return count;
}

/* Return: entries that the structures of @path have. */
static uint32_t check_header(const char *path)
{
	char *text = page_read(path);
	uint32_t count = 0;

	blank_comments(text);
	for (const char *at = text; (at = strstr(at, "\nstruct zinf_"));) {
		const char *end = at + strlen("\nstruct ");
		char name[64] = "";

		at = end;
		while (is_word(*end))
			end++;
		if (strncmp(end, " {\n", 3) != 0)
			continue; /* a declaration, or a function's type */
		memcpy(name, at, (size_t)(end - at));
		count += 1 + check_body(name, end);
	}
	free(text);
	return count;
}

Test(layout, table_is_what_the_headers_declare)
{
	uint32_t count, seen = 0;
	glob_t headers;

	cr_assert_eq(glob("include/zinf/*.h", 0, NULL, &headers), 0);
	for (size_t i = 0; i < headers.gl_pathc; i++)
		seen += check_header(headers.gl_pathv[i]);
	globfree(&headers);
	(void)zinf_layout(&count);
	cr_expect_eq(seen, count, "%u of %u entries are in the headers", seen, count);
	cr_expect_gt(count, 150u);
	cr_expect_eq(zinf_layout(NULL), zinf_layout(&count));
}

#define expect_field(name, field)                                               \
	do {                                                                    \
		const struct zinf_layout_field *at = entry(#name, #field);      \
		const struct name *none = NULL;                                 \
                                                                                \
		cr_assert_not_null(at);                                         \
		cr_expect_eq(at->offset_bytes, offsetof(struct name, field));   \
		cr_expect_eq(at->bytes, sizeof(none->field), #name "." #field); \
	} while (0)

Test(layout, figures_are_the_compilers)
{
	expect_field(zinf_options, bytes);
	expect_field(zinf_options, incarnation);
	expect_field(zinf_options, reserved);
	expect_field(zinf_options, scaler);
	expect_field(zinf_step_options, update_early);
	expect_field(zinf_step_options, groups);
	expect_field(zinf_coll_p2p, dtype);
	expect_field(zinf_deepspeed_config, step);
	cr_expect_eq(entry("zinf_options", "")->bytes, sizeof(struct zinf_options));
	cr_expect_eq(entry("zinf_options", "")->offset_bytes, 0u);
	cr_expect_eq(entry("zinf_step_stats", "")->bytes, sizeof(struct zinf_step_stats));
}

/* Fields of a structure do not overlap, and end within it. */
Test(layout, fields_lie_one_behind_the_other)
{
	uint32_t count, end = 0, bytes = 0;
	const struct zinf_layout_field *fields = zinf_layout(&count);

	for (uint32_t i = 0; i < count; i++) {
		if (!fields[i].field[0]) {
			end = 0;
			bytes = fields[i].bytes;
			continue;
		}
		cr_expect_geq(fields[i].offset_bytes, end, "%s", fields[i].field);
		end = fields[i].offset_bytes + fields[i].bytes;
		cr_expect_leq(end, bytes, "%s", fields[i].field);
	}
}
