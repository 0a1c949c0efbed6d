/* SPDX-License-Identifier: Apache-2.0 */
/* Loading text, refusing what is not text, drawing batches. */
#include "examples/gpt/data.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "examples/gpt/rng.h"

/* More than a trainer that keeps its text in memory should take: about a thousand books. */
#define DATA_BYTES_MAX (1ull << 30)
/* Text has hardly a byte that is none: 1 in 20 leaves room for Latin-1. Random bytes have every
 * second one. */
#define NOT_TEXT_SHARE 20u

#define FNV_BASIS 0xcbf29ce484222325ull /* FNV-1a, 64 bit */
#define FNV_PRIME 0x100000001b3ull

/* Bytes of the UTF-8 character at @bytes; 0 when there is none. */
static uint64_t character_bytes(const uint8_t *bytes, uint64_t byte_count)
{
	uint64_t count = bytes[0] < 0x80         ? 1
	                 : (bytes[0] >> 5) == 6  ? 2
	                 : (bytes[0] >> 4) == 14 ? 3
	                 : (bytes[0] >> 3) == 30 ? 4
	                                         : 0;

	if (count == 0 || count > byte_count)
		return 0;
	for (uint64_t i = 1; i < count; i++)
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
	/* Control characters but white space (9 to 13) and escape. */
	if (bytes[0] == 0x7f ||
	    (bytes[0] < 0x20 && !(bytes[0] >= 9 && bytes[0] <= 13) && bytes[0] != 27))
		return 0;
	return count;
}

/* @flag: that named it. Return: 0, -EINVAL with the reason: a NUL byte, or too many bytes that no
 * text has. */
int gpt_corpus_check_text(const uint8_t *bytes, uint64_t byte_count, const char *flag,
                          const char *name, struct gpt_problem *problem)
{
	const uint8_t *nul = byte_count ? memchr(bytes, 0, byte_count) : NULL;
	uint64_t bad_count = 0;

	if (nul)
		return gpt_problem_set(problem, -EINVAL,
		                       "%s is not text: byte %llu is NUL. Give %s a text file",
		                       name, (unsigned long long)(nul - bytes), flag);
	for (uint64_t i = 0; i < byte_count;) {
		uint64_t step = character_bytes(bytes + i, byte_count - i);

		bad_count += step == 0;
		i += step ? step : 1;
	}
	if (bad_count > byte_count / NOT_TEXT_SHARE)
		return gpt_problem_set(
			problem, -EINVAL,
			"%s is not text: %.1f %% of its bytes are control characters or not "
			"UTF-8, at most %u %% are taken. Give %s a text file",
			name, 100.0 * (double)bad_count / (double)byte_count, 100u / NOT_TEXT_SHARE,
			flag);
	return 0;
}

static int append_file(struct gpt_corpus *corpus, const char *flag, const char *path,
                       struct gpt_problem *problem)
{
	FILE *file = fopen(path, "rbe");
	struct stat stat;
	uint8_t *bytes;
	uint64_t count;
	size_t got;

	if (!file)
		return gpt_problem_set(problem, -errno, "Opening %s failed: %s", path,
		                       strerror(errno));
	if (fstat(fileno(file), &stat) || !S_ISREG(stat.st_mode)) {
		(void)fclose(file); /* Only read. */
		return gpt_problem_set(problem, -EINVAL, "%s is not a regular file", path);
	}
	count = (uint64_t)stat.st_size;
	if (count > DATA_BYTES_MAX - corpus->byte_count) {
		(void)fclose(file);
		return gpt_problem_set(
			problem, -EFBIG,
			"%s: more than %llu MiB of text are not taken; give a part of it", path,
			DATA_BYTES_MAX >> 20);
	}
	bytes = realloc(corpus->bytes, corpus->byte_count + count + 1);
	if (!bytes) {
		(void)fclose(file);
		return gpt_problem_set(problem, -ENOMEM, "No memory for %s", path);
	}
	corpus->bytes = bytes;
	got = fread(bytes + corpus->byte_count, 1, count, file);
	(void)fclose(file);
	if (got != count)
		return gpt_problem_set(problem, -EIO, "Reading %s ended at byte %zu of %llu", path,
		                       got, (unsigned long long)count);
	corpus->byte_count += count;
	corpus->file_count++;
	return gpt_corpus_check_text(bytes + corpus->byte_count - count, count, flag, path,
	                             problem);
}

/* Regular files only: links in a directory are second names of the same text. */
static int is_file(const struct dirent *entry)
{
	return entry->d_type == DT_REG && entry->d_name[0] != '.';
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name); /* Not alphasort(): that follows the locale. */
}

static int append_directory(struct gpt_corpus *corpus, const char *flag, const char *path,
                            struct gpt_problem *problem)
{
	struct dirent **entries = NULL;
	int count = scandir(path, &entries, is_file, by_name);
	int r = 0;

	if (count < 0)
		return gpt_problem_set(problem, -errno, "Listing %s failed: %s", path,
		                       strerror(errno));
	for (int i = 0; i < count; i++) {
		char file[4096];

		if (!r && snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name) >=
		                  (int)sizeof(file))
			r = gpt_problem_set(problem, -ENAMETOOLONG, "A name in %s is too long",
			                    path);
		if (!r)
			r = append_file(corpus, flag, file, problem);
		free(entries[i]);
	}
	free(entries);
	return r;
}

/* A whole text, of any length. @corpus: unload it, also after a failure. @flag: that named @path.
 * Return: 0; -EINVAL not text; errors of the file system. */
int gpt_corpus_read(struct gpt_corpus *corpus, const char *flag, const char *path,
                    struct gpt_problem *problem)
{
	struct stat st;

	*corpus = (struct gpt_corpus){ .fingerprint = FNV_BASIS };
	if (stat(path, &st))
		return gpt_problem_set(problem, -errno, "%s %s: %s", flag, path, strerror(errno));
	return S_ISDIR(st.st_mode) ? append_directory(corpus, flag, path, problem)
	                           : append_file(corpus, flag, path, problem);
}

/*
 * @corpus: unload it, also after a failure. @path: a file, or a directory whose files are taken in
 * the order of their names. @sequence_count: tokens of a sequence; both parts must hold one more.
 * Return: 0; -EINVAL not text, empty or too short; errors of the file system.
 */
int gpt_corpus_load(struct gpt_corpus *corpus, const char *path, uint32_t sequence_count,
                    struct gpt_problem *problem)
{
	uint64_t needed = 10 * ((uint64_t)sequence_count + 2);
	int r;

	r = gpt_corpus_read(corpus, "--data", path, problem);
	if (r)
		return r;
	if (corpus->byte_count == 0)
		return gpt_problem_set(problem, -EINVAL, "--data %s holds no text", path);
	if (corpus->byte_count < needed)
		return gpt_problem_set(
			problem, -EINVAL,
			"--data %s holds %llu bytes; --seq-len %u needs at least %llu "
			"(a tenth of the text is kept for evaluation)",
			path, (unsigned long long)corpus->byte_count, sequence_count,
			(unsigned long long)needed);
	corpus->train_count = corpus->byte_count / 10 * 9;
	for (uint64_t i = 0; i < corpus->byte_count; i++)
		corpus->fingerprint = (corpus->fingerprint ^ corpus->bytes[i]) * FNV_PRIME;
	return 0;
}

/* Twice is fine. */
void gpt_corpus_unload(struct gpt_corpus *corpus)
{
	free(corpus->bytes);
	*corpus = (struct gpt_corpus){ 0 };
}

/* ret_inputs, ret_targets: (B, T); targets are the inputs moved by one. Return: the state of the
 * random stream afterwards. */
uint64_t gpt_corpus_batch(const struct gpt_corpus *corpus, const struct gpt_batch_name *name,
                          uint32_t batch_count, uint32_t sequence_count, uint8_t *ret_inputs,
                          uint8_t *ret_targets)
{
	struct gpt_rng rng =
		gpt_rng_init(name->seed, name->is_eval ? GPT_RNG_EVAL : GPT_RNG_TRAIN,
	                     name->is_eval ? 0 : name->step, name->micro_index, name->rank);
	uint64_t first = name->is_eval ? corpus->train_count : 0;
	uint64_t count = name->is_eval ? corpus->byte_count - first : corpus->train_count;

	assert(count > sequence_count);
	for (uint32_t b = 0; b < batch_count; b++) {
		const uint8_t *text =
			corpus->bytes + first + gpt_rng_below(&rng, count - sequence_count);

		memcpy(ret_inputs + (uint64_t)b * sequence_count, text, sequence_count);
		memcpy(ret_targets + (uint64_t)b * sequence_count, text + 1, sequence_count);
	}
	return rng.state;
}
