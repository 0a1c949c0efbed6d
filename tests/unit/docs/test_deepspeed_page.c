/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: docs/DEEPSPEED.md is the table of keys, to the byte. Method: the page is printed here from
 * the table; where it differs, what it should be is left in the build's folder. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/deepspeed/private.h"
#include "tests/unit/docs/page.h"

static const char intro[] =
	"# DeepSpeed's configuration, read as it is\n"
	"\n"
	"For people who have a DeepSpeed file: what each key does in zinf. `zinf-gpt\n"
	"--deepspeed-config FILE` uses such a file; `zinf_deepspeed_open()` and\n"
	"`zinf_deepspeed_read()` ([`zinf/deepspeed.h`](../include/zinf/deepspeed.h)) read it\n"
	"for your own trainer. A script of DeepSpeed trains by `import zinf as deepspeed`\n"
	"([PYTORCH](PYTORCH.md)), whose `zinf.initialize()` also acts on\n"
	"`dataloader_drop_last` and `managed_gradient_accumulation`.\n"
	"\n"
	"A key does what it does in DeepSpeed. Or it is *noted*: it does nothing here, or\n"
	"something more exact, and a note says why. Or it is *refused*: it asks for another\n"
	"training (another model, other data, an optimizer that does not exist here). Also\n"
	"refused, by name: unknown keys, wrong types, values out of range, a key given twice.\n"
	"The loss scale of fp16 goes into `zinf_options.scaler`: the daemon moves it and\n"
	"commits it.\n"
	"\n"
	"Defaults are those of DeepSpeed 0.19. Older versions had another `gradient_clipping`\n"
	"(0, now 1.0): a note names the value where the key is absent.\n"
	"\n"
	"The value `\"auto\"` has three meanings. Where the table allows `auto`, Hugging Face's\n"
	"trainer fills it in; here the caller does (`struct zinf_deepspeed_facts`), and a\n"
	"fact that the caller does not know is refused by name. In `zero_optimization`,\n"
	"`fp16`, `bf16` and in keys without effect the default holds, with a note, as in\n"
	"DeepSpeed. Everywhere else `\"auto\"` is refused: neither DeepSpeed nor Accelerate\n"
	"replaces it. A file without any batch size takes the caller's, as with Accelerate.\n"
	"\n"
	"Of HJSON, comments (`#`, `//`, `/* */`) and trailing commas are read. `5e8` is a\n"
	"count as 500000000 is. `null` stands for an absent value where the default is none.\n"
	"A stage-3 key may leave out its `stage3_`, and `bf16` may be written `bfloat16`.\n"
	"\n"
	"This page is printed from the table that reads files; a test compares\n"
	"(`tests/unit/docs/test_deepspeed_page.c`).\n";

static const char *allowed(const struct deepspeed_key *key, char *text, size_t bytes)
{
	switch (key->type) {
	case DEEPSPEED_OBJECT:
	case DEEPSPEED_WHOLE:
		return "object";
	case DEEPSPEED_BOOL:
		return "true, false";
	case DEEPSPEED_TEXT:
		return "string";
	case DEEPSPEED_BETAS:
		return "two numbers, 0 to below 1";
	case DEEPSPEED_LIST:
		return "list";
	case DEEPSPEED_CHOICE:
		(void)snprintf(text, bytes, "%s", key->choices);
		return text;
	case DEEPSPEED_COUNT:
	case DEEPSPEED_NUMBER:
		break;
	}
	if (key->high >= 1e18)
		(void)snprintf(text, bytes, "%s, at least %.15g",
		               key->type == DEEPSPEED_COUNT ? "whole" : "number", key->low);
	else
		(void)snprintf(text, bytes, "%s, %.15g to %.10g",
		               key->type == DEEPSPEED_COUNT ? "whole" : "number", key->low,
		               key->high);
	return text;
}

static void print_meaning(FILE *page, const struct deepspeed_key *key)
{
	if (key->does)
		(void)fprintf(page, "%s%s", key->does, key->reason ? "; noted: " : "");
	else if (key->kind == DEEPSPEED_NOTE)
		(void)fprintf(page, "noted%s: ", key->has_switch ? " when enabled" : "");
	else if (key->kind == DEEPSPEED_REFUSE)
		(void)fprintf(page, "refused%s: ", key->has_switch ? " when enabled" : "");
	(void)fprintf(page, "%s", key->reason ? key->reason : "");
	if (key->same)
		(void)fprintf(page, " (%s: nothing to say)", key->same);
	if (key->alias)
		(void)fprintf(page, "; also `%s`", key->alias);
	if (key->only)
		(void)fprintf(page, "; of %s", key->only);
}

static void print_row(FILE *page, const struct deepspeed_key *key)
{
	char text[96];

	(void)fprintf(page, "| `%s` | %s%s | %s | ", key->path, allowed(key, text, sizeof(text)),
	              key->may_be_auto ? ", auto" : "",
	              key->is_needed                       ? "must be given"
	              : strcmp(key->standard, "null") == 0 ? "-"
	                                                   : key->standard);
	print_meaning(page, key);
	(void)fprintf(page, " |\n");
}

/* "zero_optimization.offload_param." of such a path; "" at the top. */
static size_t object_bytes(const char *path)
{
	const char *dot = strchr(path, '.');

	return dot ? (size_t)(dot - path) : 0;
}

static char *print_page(void)
{
	const char *head = "\n| key | allowed | default | here |\n| --- | --- | --- | --- |\n";
	const char *last = NULL;
	char *text = NULL;
	size_t bytes = 0;
	FILE *page = open_memstream(&text, &bytes);

	cr_assert_not_null(page);
	(void)fprintf(page, "%s\n## Top level\n%s", intro, head);
	for (uint32_t i = 0; i < deepspeed_key_count(); i++)
		if (!object_bytes(deepspeed_key(i)->path) &&
		    deepspeed_key(i)->type != DEEPSPEED_OBJECT)
			print_row(page, deepspeed_key(i));
	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *key = deepspeed_key(i);
		size_t head_bytes = object_bytes(key->path);

		if (!head_bytes || key->type == DEEPSPEED_OBJECT)
			continue;
		if (!last || object_bytes(last) != head_bytes ||
		    strncmp(last, key->path, head_bytes) != 0)
			(void)fprintf(page, "\n## %.*s\n%s", (int)head_bytes, key->path, head);
		last = key->path;
		print_row(page, key);
	}
	(void)fclose(page);
	return text;
}

Test(deepspeed_page, is_the_table)
{
	const char *build = getenv("ZINF_BUILD");
	char *printed = print_page();
	char *page = page_read("docs/DEEPSPEED.md");
	char path[256];

	if (strcmp(printed, page) != 0) {
		(void)snprintf(path, sizeof(path), "%s/DEEPSPEED.md",
		               build ? build : "build/release");
		FILE *file = fopen(path, "w");

		cr_assert_not_null(file);
		(void)fputs(printed, file);
		(void)fclose(file);
		cr_assert_fail("docs/DEEPSPEED.md is not what the table says: see %s", path);
	}
	free(printed);
	free(page);
}

Test(deepspeed_page, each_row_says_what_it_does_or_why_not)
{
	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *key = deepspeed_key(i);

		if (key->kind == DEEPSPEED_USE)
			cr_expect(key->type == DEEPSPEED_OBJECT || key->does, "%s", key->path);
		else
			cr_expect(key->reason && !key->does, "%s", key->path);
		cr_expect_not_null(key->standard, "%s", key->path);
	}
}
