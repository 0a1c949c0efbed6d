/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: docs/ANSWERS.md, with docs/CHECKPOINT.md for what an export writes, names every key of the
 * daemon's JSON answers. Method: each key that daemon/session/admin puts into an object is searched
 * in the pages as a whole word. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "tests/unit/docs/page.h"

/* Whether @page has @key between characters that are no part of a key. */
static bool names_key(const char *page, const char *key)
{
	size_t bytes = strlen(key);

	for (const char *at = page; (at = strstr(at, key)); at += bytes) {
		char before = at == page ? ' ' : at[-1], behind = at[bytes];

		if (!isalnum((unsigned char)before) && before != '_' &&
		    !isalnum((unsigned char)behind) && behind != '_')
			return true;
	}
	return false;
}

/* The key of an answer_…(object, "key", …) at @call; "" when it has none on its line. */
static void read_key(const char *call, char *ret_key, size_t key_bytes)
{
	const char *begin = call + strcspn(call, "\"\n;");
	size_t bytes;

	ret_key[0] = '\0';
	if (*begin != '"')
		return;
	bytes = strcspn(++begin, "\"");
	if (bytes < key_bytes && !memchr(begin, '%', bytes))
		(void)snprintf(ret_key, key_bytes, "%.*s", (int)bytes, begin); /* Fits. */
}

static uint32_t check_source(const char *path, const char *answers, const char *checkpoint)
{
	static const char *const calls[] = { "answer_number(", "answer_word(", "answer_put(" };
	char *source = page_read(path);
	uint32_t count = 0;
	char key[64];

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (const char *at = source; (at = strstr(at, calls[i])); at++) {
			read_key(at, key, sizeof(key));
			if (!key[0])
				continue;
			count++;
			cr_expect(names_key(answers, key) || names_key(checkpoint, key),
			          "%s answers '%s', which docs/ANSWERS.md does not name", path,
			          key);
		}
	free(source);
	return count;
}

Test(answers, every_key_is_on_the_page)
{
	char *answers = page_read("docs/ANSWERS.md"), *checkpoint = page_read("docs/CHECKPOINT.md");
	FILE *list = popen("find daemon/session/admin -name '*.c'", "r");
	uint32_t count = 0;
	char path[256];

	cr_assert_not_null(list);
	while (fgets(path, sizeof(path), list)) {
		path[strcspn(path, "\n")] = '\0';
		count += check_source(path, answers, checkpoint);
	}
	pclose(list);
	cr_expect_gt(count, 100u);
	cr_expect_not(names_key(answers, "no_such_key"));
	free(answers);
	free(checkpoint);
}
