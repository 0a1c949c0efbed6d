/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what docs/COLLECTIVES.md quotes of error texts is what zinf says. Method: quotes and the
 * string literals of the sources are brought into one form, words and signs with a "%" for what
 * differs from case to case. A quote is cut into pieces, each as long as can be, that must each
 * stand within one literal: sentences are put together from several. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <string.h>

#include "common/base/types.h"
#include "tests/unit/docs/page.h"

#define TOKEN_BYTES 64

/* " rank % ( pid % ) died ": a space before and behind each token. */
struct form {
	char *chars;
	size_t bytes, capacity;
};

static void put_token(struct form *form, const char *token, size_t bytes)
{
	if (form->bytes + bytes + 3 > form->capacity) {
		form->capacity = 2 * (form->capacity + bytes + 3);
		form->chars = realloc(form->chars, form->capacity);
		cr_assert_not_null(form->chars);
	}
	if (!form->bytes)
		form->chars[form->bytes++] = ' ';
	/* How many variables stand side by side does not matter. */
	if (*token == '%' && form->bytes >= 2 && form->chars[form->bytes - 2] == '%')
		return;
	memcpy(form->chars + form->bytes, token, bytes);
	form->bytes += bytes;
	form->chars[form->bytes++] = ' ';
	form->chars[form->bytes] = '\0';
}

/* Whether a word is a figure, an address or the name of a dtype or reduction. */
static bool is_value(const char *word, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (isdigit((unsigned char)word[i]))
			return true;
	for (enum zi_dtype i = 1; i < _ZI_DTYPE_COUNT; i++)
		if (strlen(zi_dtype_name(i)) == bytes && !memcmp(zi_dtype_name(i), word, bytes))
			return true;
	for (enum zi_reduce_op i = 1; i < _ZI_REDUCE_COUNT; i++)
		if (strlen(zi_reduce_op_name(i)) == bytes &&
		    !memcmp(zi_reduce_op_name(i), word, bytes))
			return true;
	return false;
}

static size_t word_bytes(const char *text)
{
	size_t bytes = 0;

	while (isalnum((unsigned char)text[bytes]) || text[bytes] == '_' ||
	       (text[bytes] == '.' && bytes && isalnum((unsigned char)text[bytes + 1])))
		bytes++;
	return bytes;
}

/* Bytes of printf's conversion at @text, a '%'. */
static size_t conversion_bytes(const char *text)
{
	size_t bytes = 1 + strspn(text + 1, "-+ #0123456789.*hlzj");

	return text[bytes] ? bytes + 1 : bytes;
}

/* @is_format: conversions are variables; in a quote it is "…". */
static void put_text(struct form *form, const char *text, bool is_format)
{
	while (*text) {
		size_t bytes = word_bytes(text);

		if (bytes) {
			bool is_variable = is_value(text, bytes);

			put_token(form, is_variable ? "%" : text, is_variable ? 1 : bytes);
		} else if (is_format && *text == '%') {
			bytes = conversion_bytes(text);
			put_token(form, "%", 1);
		} else if (strncmp(text, "…", strlen("…")) == 0) {
			bytes = strlen("…");
			put_token(form, "%", 1);
		} else {
			bytes = 1;
			if (!isspace((unsigned char)*text))
				put_token(form, text, 1);
		}
		text += bytes;
	}
}

/* Copies the literal whose first quote is at @text, with those that follow it ("%" PRIu64 too), to
 * @ret_joined. Return: what is behind it. */
static const char *join_literals(const char *text, char *ret_joined)
{
	do {
		for (text++; *text && *text != '"'; text++) {
			if (*text == '\\' && *++text != '"' && *text != '\\')
				*ret_joined++ = ' ';
			else
				*ret_joined++ = *text;
		}
		text += *text == '"';
		text += strspn(text, " \t\n\\");
		if (strncmp(text, "PRI", 3) == 0) {
			*ret_joined++ = 'u';
			text += word_bytes(text);
			text += strspn(text, " \t\n\\");
		}
	} while (*text == '"');
	*ret_joined = '\0';
	return text;
}

/* All literals of a source, a line's end behind each. */
static void put_source(struct form *form, const char *text)
{
	char *joined = malloc(strlen(text) + 1);

	cr_assert_not_null(joined);
	while (*text) {
		if (strncmp(text, "/*", 2) == 0) {
			text = strstr(text, "*/");
			cr_assert_not_null(text);
			text += 2;
		} else if (strncmp(text, "//", 2) == 0) {
			text += strcspn(text, "\n");
		} else if (*text == '\'') {
			text += text[1] == '\\' ? 4 : 3;
		} else if (*text == '"') {
			text = join_literals(text, joined);
			put_text(form, joined, true);
			put_token(form, "\n", 1);
		} else {
			text++;
		}
	}
	free(joined);
}

/* Whether tokens say enough to be looked for: two words, or one beside a variable. */
static bool is_telling(const char *tokens)
{
	uint32_t words = 0;

	for (const char *at = tokens; *at; at++)
		words += *at == ' ' && isalpha((unsigned char)at[1]);
	return words >= 2 || (words && strchr(tokens, '%'));
}

/* Whether they stand within a literal, or are all of one. */
static bool stand(const struct form *literals, const char *tokens)
{
	char whole[256];

	(void)snprintf(whole, sizeof(whole), " \n%s\n ", tokens); /* Cut: it is not found. */
	return strstr(literals->chars, is_telling(tokens) ? tokens : whole);
}

/* Whether @literals say @quote. Else @ret_rest has what of it nobody says, as tokens. */
static bool is_said(const struct form *literals, const char *quote, char *ret_rest)
{
	struct form form = { 0 };
	size_t at = 0, end;
	bool is_whole;

	put_text(&form, quote, false);
	while (at + 1 < form.bytes) {
		for (end = form.bytes; end > at + 1; end--) {
			char kept = form.chars[end];
			bool is_found;

			if (form.chars[end - 1] != ' ')
				continue;
			form.chars[end] = '\0';
			is_found = stand(literals, form.chars + at);
			form.chars[end] = kept;
			if (is_found)
				break;
		}
		if (end == at + 1) { /* A sign between two texts, or what is filled in. */
			if (isalpha((unsigned char)form.chars[at + 1]))
				break;
			end = at + 1 + strcspn(form.chars + at + 1, " ") + 1;
		}
		at = end - 1; /* The space belongs to both. */
	}
	is_whole = at + 1 >= form.bytes;
	(void)snprintf(ret_rest, 256, "%s", form.chars + at);
	free(form.chars);
	return is_whole;
}

/* The literals of all that can be in an error of a rank. */
static struct form read_sources(void)
{
	FILE *list = popen("find daemon libclient common -name '*.[ch]' -o -name '*.cc'", "r");
	struct form literals = { 0 };
	char path[256];

	cr_assert_not_null(list);
	while (fgets(path, sizeof(path), list)) {
		char *text;

		path[strcspn(path, "\n")] = '\0';
		text = page_read(path);
		put_source(&literals, text);
		free(text);
	}
	cr_assert_eq(pclose(list), 0);
	cr_assert_gt(literals.bytes, 100000u, "run from the root of the tree");
	return literals;
}

/* Whether it is words of a text, as the columns behind the first have some: not a command. */
static bool is_sentence(const char *quote)
{
	uint32_t spaces = 0;

	for (; *quote; quote++) {
		if (*quote != ' ' && !islower((unsigned char)*quote))
			return false;
		spaces += *quote == ' ';
	}
	return spaces >= 3;
}

/* Looks for the quotes of one row. Return: how many there were. */
static uint32_t check_row(const struct form *literals, char *row)
{
	const char *first_end = strstr(row, " | ");
	uint32_t count = 0;
	char rest[256];

	for (char *quote = strchr(row, '`'), *end; quote; quote = strchr(end + 1, '`')) {
		end = strchr(++quote, '`');
		cr_assert_not_null(end, "an odd backtick: %s", row);
		*end = '\0';
		if (*quote == '-' || (quote > first_end && !is_sentence(quote)))
			continue; /* An errno, a command. */
		count++;
		cr_expect(is_said(literals, quote, rest),
		          "COLLECTIVES.md quotes '%s': no text of the sources has '%s'", quote,
		          rest);
	}
	return count;
}

Test(quotes, every_error_text_of_the_page_is_said_by_the_code)
{
	struct form literals = read_sources();
	char *page = page_read("docs/COLLECTIVES.md"), *row, *save;
	uint32_t row_count = 0, quote_count = 0;

	row = strstr(page, "\n| the error |");
	cr_assert_not_null(row);
	for (row = strtok_r(row, "\n", &save); row; row = strtok_r(NULL, "\n", &save)) {
		if (strncmp(row, "| `", 3) != 0)
			continue;
		row_count++;
		quote_count += check_row(&literals, row);
	}
	cr_expect_geq(row_count, 30u);
	cr_expect_gt(quote_count, row_count);
	free(page);
	free(literals.chars);
}

Test(quotes, what_nobody_says_is_found_out)
{
	static const char *const not_said[] = {
		"rank 1 (pid 4711) did not arrive within 600 s: …",
		"call 5: member 1 shouts …, member 0 …",
		"there was no avg of i32",
		"zinf_coll_open() comes second",
		"the size overflows 64 bits of sizes",
		"the size overflows 64 bits sideways",
	};
	struct form literals = read_sources();
	char rest[256];

	for (size_t i = 0; i < sizeof(not_said) / sizeof(not_said[0]); i++)
		cr_expect_not(is_said(&literals, not_said[i], rest), "%s", not_said[i]);
	free(literals.chars);
}

Test(quotes, literals_are_read_as_a_compiler_reads_them)
{
	struct form form = { 0 };

	put_source(&form, "/* \"no\" */ f('\"', \"rank %-3u \"\n\t\"died\\n\"); // \"no\"\n"
	                  "g(\"of %\" PRIu64 \" elements, %.4g s\", '\\'', \"a \\\"b\\\"\");");
	cr_expect_str_eq(form.chars, " rank % died \n of % elements , % s \n a \" b \" \n ");
	free(form.chars);
}
