/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: text becomes the same batches for the same names, and what is not text is refused with its
 * reason. Method: files in a temporary directory, valid and spoilt in one way each.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/gpt/data.h"
#include "tests/guard/guard.h"

static char directory[64];

static void make_directory(void)
{
	cr_assert(mkdtemp(guard_path(directory, sizeof(directory), "data")));
}

static void remove_directory(void)
{
	char command[96];

	(void)snprintf(command, sizeof(command), "rm -rf %s", directory);
	cr_assert_eq(system(command), 0);
}

TestSuite(data, .init = make_directory, .fini = remove_directory);

static const char *put(const char *name, const void *bytes, size_t byte_count)
{
	static char path[128];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "wb");
	cr_assert(file);
	cr_assert_eq(fwrite(bytes, 1, byte_count, file), byte_count);
	cr_assert_eq(fclose(file), 0);
	return path;
}

/* count letters, no two neighbouring sequences alike. */
static const char *put_text(const char *name, size_t count)
{
	char *text = malloc(count);
	const char *path;

	for (size_t i = 0; i < count; i++)
		text[i] = (char)('a' + (i * i / 7 + i) % 26);
	path = put(name, text, count);
	free(text);
	return path;
}

static void expect_refused(const char *path, uint32_t sequence_count, int error, const char *word)
{
	struct gpt_problem problem = { "" };
	struct gpt_corpus corpus;

	cr_expect_eq(gpt_corpus_load(&corpus, path, sequence_count, &problem), error, "%s",
	             problem.chars);
	cr_expect(strstr(problem.chars, word), "\"%s\" does not say \"%s\"", problem.chars, word);
	gpt_corpus_unload(&corpus);
}

Test(data, the_default_text_is_there)
{
	struct gpt_problem problem = { "" };
	struct gpt_corpus corpus;

	cr_assert_eq(gpt_corpus_load(&corpus, GPT_DATA_DEFAULT, 128, &problem), 0, "%s",
	             problem.chars);
	cr_expect_gt(corpus.byte_count, 100000);
	cr_expect_gt(corpus.file_count, 5);
	gpt_corpus_unload(&corpus);
}

Test(data, batches_are_named_by_seed_step_micro_batch_and_rank)
{
	struct gpt_problem problem;
	struct gpt_corpus corpus;
	const struct gpt_batch_name model = { .seed = 1, .step = 2, .micro_index = 3, .rank = 4 };
	struct gpt_batch_name other[5] = { model, model, model, model, model };
	uint8_t inputs[2][4 * 16], targets[2][4 * 16];

	cr_assert_eq(gpt_corpus_load(&corpus, put_text("a", 5000), 16, &problem), 0);
	other[0].seed++;
	other[1].step++;
	other[2].micro_index++;
	other[3].rank++;
	other[4].is_eval = true;
	(void)gpt_corpus_batch(&corpus, &model, 4, 16, inputs[0], targets[0]);
	for (unsigned i = 0; i < 5; i++) {
		(void)gpt_corpus_batch(&corpus, &other[i], 4, 16, inputs[1], targets[1]);
		cr_expect_neq(memcmp(inputs[0], inputs[1], sizeof(inputs[0])), 0, "name %u", i);
	}
	(void)gpt_corpus_batch(&corpus, &model, 4, 16, inputs[1], targets[1]);
	cr_expect_eq(memcmp(inputs[0], inputs[1], sizeof(inputs[0])), 0);
	cr_expect_eq(memcmp(targets[0], targets[1], sizeof(targets[0])), 0);
	for (unsigned b = 0; b < 4; b++)
		cr_expect_eq(memcmp(inputs[0] + 16 * b + 1, targets[0] + 16 * b, 15), 0);
	gpt_corpus_unload(&corpus);
}

Test(data, evaluation_text_is_never_trained_on)
{
	struct gpt_problem problem;
	struct gpt_corpus corpus;
	uint8_t inputs[16], targets[16];

	/* The smallest text that is taken: both parts are used to their last byte. */
	cr_assert_eq(gpt_corpus_load(&corpus, put_text("a", 180), 16, &problem), 0);
	memset(corpus.bytes, 't', corpus.train_count);
	memset(corpus.bytes + corpus.train_count, 'e', corpus.byte_count - corpus.train_count);
	for (unsigned i = 0; i < 200; i++) {
		struct gpt_batch_name name = { .seed = 1, .step = i, .micro_index = i };

		(void)gpt_corpus_batch(&corpus, &name, 1, 16, inputs, targets);
		cr_assert_null(memchr(targets, 'e', 16));
		name.is_eval = true;
		(void)gpt_corpus_batch(&corpus, &name, 1, 16, inputs, targets);
		cr_assert_null(memchr(inputs, 't', 16));
	}
	gpt_corpus_unload(&corpus);
}

Test(data, files_of_a_directory_come_in_the_order_of_their_names)
{
	struct gpt_problem problem;
	struct gpt_corpus corpus;
	char link_path[128];

	(void)put_text("b", 300);
	(void)put("a", "first", 5);
	(void)put(".hidden", "\0", 1);
	(void)snprintf(link_path, sizeof(link_path), "%s/link", directory);
	cr_assert_eq(symlink("b", link_path), 0);
	cr_assert_eq(gpt_corpus_load(&corpus, directory, 8, &problem), 0);
	cr_expect_eq(corpus.file_count, 2);
	cr_expect_eq(corpus.byte_count, 305);
	cr_expect_eq(memcmp(corpus.bytes, "first", 5), 0);
	gpt_corpus_unload(&corpus);
}

Test(data, a_file_with_a_nul_byte_is_not_text)
{
	char bytes[400];

	memset(bytes, 'x', sizeof(bytes));
	bytes[123] = '\0';
	expect_refused(put("a", bytes, sizeof(bytes)), 8, -EINVAL, "is not text: byte 123 is NUL");
}

Test(data, a_program_is_not_text)
{
	expect_refused("/proc/self/exe", 8, -EINVAL, "is not text");
}

Test(data, a_file_of_other_bytes_is_not_text)
{
	uint8_t bytes[400];

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(1 + i * 37 % 255);
	expect_refused(put("a", bytes, sizeof(bytes)), 8, -EINVAL, "at most 5 %");
}

Test(data, umlauts_in_utf8_and_a_few_in_latin1_are_text)
{
	struct gpt_problem problem = { "" };
	char bytes[800];

	for (unsigned i = 0; i < sizeof(bytes); i += 2)
		memcpy(bytes + i, "\xc3\xbc", 2);
	cr_expect_eq(
		gpt_corpus_check_text((uint8_t *)bytes, sizeof(bytes), "--data", "x", &problem), 0);
	memset(bytes, 'a', sizeof(bytes));
	for (unsigned i = 0; i < 40; i++)
		bytes[i * 20] = '\xfc';
	cr_expect_eq(
		gpt_corpus_check_text((uint8_t *)bytes, sizeof(bytes), "--data", "x", &problem), 0);
	bytes[7] = '\xfc'; /* one more than a twentieth */
	cr_expect_eq(
		gpt_corpus_check_text((uint8_t *)bytes, sizeof(bytes), "--data", "x", &problem),
		-EINVAL);
}

Test(data, empty_and_short_text_is_refused_with_figures)
{
	expect_refused(put("a", "", 0), 8, -EINVAL, "holds no text");
	expect_refused(put_text("a", 99), 8, -EINVAL,
	               "holds 99 bytes; --seq-len 8 needs at least 100");
}

Test(data, missing_files_and_other_things_are_refused)
{
	char path[128];

	expect_refused("/nowhere/at/all", 8, -ENOENT, "/nowhere/at/all");
	expect_refused("/dev/null", 8, -EINVAL, "not a regular file");
	(void)snprintf(path, sizeof(path), "%s/empty", directory);
	cr_assert_eq(mkdir(path, 0700), 0);
	expect_refused(path, 8, -EINVAL, "holds no text");
}

Test(data, the_flag_that_named_a_file_is_the_one_to_mend)
{
	const char *path = put("a", "x\0y", 3);
	struct gpt_problem problem = { "" };
	struct gpt_corpus corpus;

	cr_expect_eq(gpt_corpus_read(&corpus, "--eval", path, &problem), -EINVAL);
	cr_expect_not_null(strstr(problem.chars, "Give --eval a text file"), "%s", problem.chars);
	gpt_corpus_unload(&corpus);
}
