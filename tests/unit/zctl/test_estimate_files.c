/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: zctl estimate looks at no more of a file than it needs, knows an index of several, and
 * waits for nobody. Method: files in a folder of the test.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/guard/guard.h"
#include "tests/unit/zctl/estimate.h"

static char folder[64];

static void start_files(void)
{
	cr_assert_not_null(mkdtemp(guard_path(folder, sizeof(folder), "estimate")));
}

static void stop_files(void)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -rf %s", folder);
	cr_assert_eq(system(command), 0);
	estimate_model_free(&model);
}

static const char *path_of(const char *name)
{
	static char path[160];

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void write_file(const char *name, const void *bytes, size_t byte_count)
{
	FILE *file = fopen(path_of(name), "we");

	cr_assert_not_null(file);
	cr_assert_eq(fwrite(bytes, 1, byte_count, file), byte_count);
	cr_assert_eq(fclose(file), 0);
}

static void write_header(const char *name, const char *header)
{
	uint8_t bytes[1024] = { (uint8_t)strlen(header), (uint8_t)(strlen(header) >> 8) };

	memcpy(bytes + 8, header, strlen(header));
	write_file(name, bytes, 8 + strlen(header));
}

static void write_text(const char *name, const char *json)
{
	write_file(name, json, strlen(json));
}

TestSuite(estimate_files, .init = start_files, .fini = stop_files, .timeout = 20);

Test(estimate_files, an_index_is_all_of_its_files)
{
	write_header("one.safetensors", "{" TENSOR("h.0.w", "BF16", "[6]", 0, 12) "}");
	write_header("two.safetensors", "{" TENSOR("h.0.v", "BF16", "[4]", 0, 8) "," TENSOR(
						"h.1.w", "BF16", "[6]", 8, 20) "}");
	write_text("index.json", "{\"metadata\":{},\"weight_map\":{\"h.0.w\":\"one.safetensors\","
	                         "\"h.0.v\":\"two.safetensors\",\"h.1.w\":\"two.safetensors\"}}");
	cr_assert_eq(read_word(path_of("index.json"), 0), 0, "%s", text.chars);
	cr_expect_eq(model.unit_count, 2);
	cr_expect_eq(model.units[0].element_count, 10);
	cr_expect_eq(model.param_count, 3);
	cr_expect_str_eq(model.kind.chars, "names and shapes of 2 safetensors files");
}

Test(estimate_files, what_an_index_cannot_name_is_refused)
{
	static const struct {
		const char *map, *words;
	} wrong[] = {
		{ "\"a\":\"missing\"", "its file 'missing': cannot be opened: No such file" },
		{ "\"a\":\"../one.safetensors\"", "'a' lies in no file beside it" },
		{ "\"a\":\"\"", "'a' lies in no file beside it" },
		{ "\"a\":3", "'a' lies in no file beside it" },
		{ "\"a\":\"index.json\"", "its file 'index.json': is no safetensors file" },
		{ "", "it has no parameters" },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(wrong); i++) {
		char json[256];

		(void)snprintf(json, sizeof(json), "{\"weight_map\":{%s}}", wrong[i].map);
		write_text("index.json", json);
		cr_expect(read_word(path_of("index.json"), 0) < 0, "%s", json);
		expect_words(wrong[i].words);
		expect_words("index.json: ");
	}
}

/* Of a file from elsewhere. */
Test(estimate_files, names_do_not_drive_a_terminal)
{
	write_header("one.safetensors", "{" TENSOR("h\\u001b[31m\\n.w", "BF16", "[6]", 0, 12) "}");
	cr_assert_eq(read_word(path_of("one.safetensors"), 0), 0, "%s", text.chars);
	cr_expect_str_eq(model.units[0].name, "h?[31m?");
}

Test(estimate_files, only_the_header_need_be_there)
{
	uint8_t bytes[16] = { 255, 255, 255, 3 };

	write_header("head", "{" TENSOR("h.0.w", "BF16", "[1000000,1000]", 0, 2000000000) "}");
	cr_assert_eq(read_word(path_of("head"), 0), 0, "%s", text.chars);
	cr_expect_eq(model.element_count, 1000000000);
	write_file("short", bytes, sizeof(bytes));
	cr_expect_eq(read_word(path_of("short"), 0), -EINVAL);
	expect_words("is cut short: of a header of 67108863 bytes 8 are there");
	bytes[3] = 255;
	write_file("long", bytes, sizeof(bytes));
	cr_expect_eq(read_word(path_of("long"), 0), -EINVAL);
	expect_words("a header of 4294967295 bytes, at most 100 MB are possible");
	write_file("empty", bytes, 0);
	cr_expect_eq(read_word(path_of("empty"), 0), -EINVAL);
	expect_words("has 0 bytes");
}

Test(estimate_files, what_is_no_file_is_refused)
{
	cr_expect_eq(read_word(folder, 0), -EISDIR);
	expect_words("is a directory: name its manifest.json");
	cr_assert_eq(mkfifo(path_of("pipe"), 0600), 0);
	cr_expect_eq(read_word(path_of("pipe"), 0), -EINVAL, "and nobody is waited for");
	expect_words("is not a file");
	cr_expect_eq(read_word(path_of("nothing"), 0), -ENOENT);
	write_text("huge", "{}{}{}{}{}");
	cr_assert_eq(truncate(path_of("huge"), 100000009), 0);
	cr_expect_eq(read_word(path_of("huge"), 0), -EINVAL);
	expect_words("nor so much JSON");
}
