/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the bytes of a catalog's file. It is refused with words and left as it was, or
 * opened, asked for a store, and its jobs are loaded: whatever they are, nobody computes with a
 * value that is out of its range.
 */
#include <fcntl.h>
#include <unistd.h>

#include "daemon/catalog/catalog.h"
#include "tests/fuzz/fuzz.h"

#define FILE_BYTES_MAX (1u << 20)

static char path[320], log_path[320], index_path[320], mark_path[320];
static uint8_t after[FILE_BYTES_MAX];

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	(void)snprintf(path, sizeof(path), "%s/catalog.db", fuzz_directory()); /* All fit. */
	(void)snprintf(log_path, sizeof(log_path), "%s/catalog.db-wal", fuzz_directory());
	(void)snprintf(mark_path, sizeof(mark_path), "%s/catalog.db-mark", fuzz_directory());
	(void)snprintf(index_path, sizeof(index_path), "%s/catalog.db-journal", fuzz_directory());
	return 0;
}

static int take(void *arg, struct catalog_job *job)
{
	uint64_t *sum = arg;

	fuzz_check(memchr(job->name, 0, sizeof(job->name)) != NULL, "a name without end");
	for (uint32_t i = 0; i < job->extent_count; i++) {
		fuzz_check(job->extents[i].unit < job->unit_count, "an extent of no unit");
		for (uint32_t k = 0; k < job->extents[i].hash_count; k++)
			*sum += job->extents[i].hashes[k];
	}
	for (uint32_t i = 0; i < job->param_count; i++)
		fuzz_check(job->params[i].dim_count <= ZI_PARAM_DIMS_MAX, "dimensions");
	for (uint32_t i = 0; i < job->blob_count; i++)
		for (uint64_t k = 0; k < job->blobs[i].byte_count; k++)
			*sum += ((const uint8_t *)job->blobs[i].bytes)[k];
	job = catalog_job_free(job);
	return 0;
}

static void check_untouched(const uint8_t *bytes, size_t byte_count, const char *words)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	fuzz_check(fd >= 0, "the file is gone");
	fuzz_check(read(fd, after, sizeof(after)) == (ssize_t)byte_count, "it was resized");
	fuzz_check(!byte_count || !memcmp(after, bytes, byte_count), words);
	(void)close(fd); /* Only read. */
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	static const uint8_t uuid[16] = { 1 };
	struct catalog *catalog = NULL;
	struct zi_text text = { "" };
	uint64_t sum = 0;
	int fd;
	int r;

	if (byte_count > FILE_BYTES_MAX)
		return -1;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	fuzz_check(fd >= 0 && write(fd, bytes, byte_count) == (ssize_t)byte_count, "a file");
	(void)close(fd); /* Its content is there. */
	r = catalog_open(fuzz_directory(), &text, &catalog);
	if (r) {
		fuzz_check(text.chars[0] != '\0', "a refusal without words");
		check_untouched(bytes, byte_count, text.chars);
	} else {
		r = catalog_adopt_store(catalog, "disk", uuid, byte_count % 2, &text);
		fuzz_check(!r || text.chars[0], "a refusal without words");
		text.chars[0] = '\0';
		r = catalog_load_jobs(catalog, take, &sum, &text);
		fuzz_check(!r || text.chars[0], "a refusal without words");
		catalog = catalog_close(catalog);
	}
	(void)unlink(path); /* Each of these may not be there. */
	(void)unlink(log_path);
	(void)unlink(index_path);
	(void)unlink(mark_path);
	return 0;
}
