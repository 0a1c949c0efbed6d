/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: docs/API.md names every public function, and nothing that is none. Method: names that the
 * headers declare with ZINF_API, and those in front of a "(" that the page has in backticks, are
 * compared both ways. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/docs/page.h"

#define NAMES_MAX  256
#define NAME_BYTES 64

struct names {
	char chars[NAMES_MAX][NAME_BYTES];
	size_t count;
};

static bool has(const struct names *names, const char *name)
{
	for (size_t i = 0; i < names->count; i++)
		if (strcmp(names->chars[i], name) == 0)
			return true;
	return false;
}

/* The first name in front of a "(" behind each @mark of the file. */
static void read_names(struct names *names, const char *path, const char *mark)
{
	char *page = page_read(path);

	for (const char *at = page; (at = strstr(at, mark)); at++) {
		const char *end = at + strcspn(at, "(;");
		const char *begin = end;
		char name[NAME_BYTES] = "";

		while (begin > at && strchr("abcdefghijklmnopqrstuvwxyz_", begin[-1]))
			begin--;
		if (*end != '(' || strncmp(begin, "zinf_", 5) != 0)
			continue; /* A macro's definition. */
		cr_assert_lt((size_t)(end - begin), sizeof(name));
		memcpy(name, begin, (size_t)(end - begin));
		if (has(names, name))
			continue;
		cr_assert_lt(names->count, NAMES_MAX);
		memcpy(names->chars[names->count++], name, sizeof(name));
	}
	free(page);
}

static void read_headers(struct names *names)
{
	read_names(names, "include/zinf/zinf.h", "\nZINF_API ");
	read_names(names, "include/zinf/coll.h", "\nZINF_API ");
	read_names(names, "include/zinf/deepspeed.h", "\nZINF_API ");
	read_names(names, "include/zinf/deferred.h", "\nZINF_API ");
	read_names(names, "include/zinf/layout.h", "\nZINF_API ");
	read_names(names, "include/zinf/gpu.h", "\nZINF_API ");
	read_names(names, "include/zinf/wait.h", "\nZINF_API ");
	read_names(names, "include/zinf/lr.h", "\nZINF_API ");
	read_names(names, "include/zinf/replica.h", "\nZINF_API ");
	read_names(names, "include/zinf/rows.h", "\nZINF_API ");
	read_names(names, "include/zinf/scaler.h", "\nZINF_API ");
	read_names(names, "include/zinf/snapshot.h", "\nZINF_API ");
	read_names(names, "include/zinf/state.h", "\nZINF_API ");
	read_names(names, "include/zinf/grad.h", "\nZINF_API ");
	read_names(names, "include/zinf/tensor.h", "\nZINF_API ");
}

Test(api, every_public_function_is_on_the_page)
{
	static struct names declared, told;

	read_headers(&declared);
	read_names(&told, "docs/API.md", "`zinf_");
	cr_assert_gt(declared.count, 60);
	for (size_t i = 0; i < declared.count; i++)
		cr_expect(has(&told, declared.chars[i]), "API.md does not name %s()",
		          declared.chars[i]);
}

Test(api, the_page_names_nothing_else)
{
	static struct names declared, told;

	read_headers(&declared);
	read_names(&told, "docs/API.md", "`zinf_");
	cr_assert_gt(told.count, 60);
	for (size_t i = 0; i < told.count; i++)
		cr_expect(has(&declared, told.chars[i]), "API.md names %s(), which no header has",
		          told.chars[i]);
}
