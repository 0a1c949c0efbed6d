/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main() of a fuzz target without libFuzzer: runs each file named on the command line, and each
 * file in a folder named there, once and in order of their names. What libFuzzer found stays found
 * wherever there is a compiler. Exit codes: 0; 1 nothing was run, or a file cannot be read. A
 * target that fails aborts.
 */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

#define REPLAY_BYTES_MAX (1u << 20)

static uint8_t buffer[REPLAY_BYTES_MAX];
static uint32_t run_count;

static int run_file(const char *path)
{
	FILE *file = fopen(path, "re");
	uint8_t *exact;
	size_t byte_count;

	if (!file) {
		(void)fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
		return 1;
	}
	byte_count = fread(buffer, 1, sizeof(buffer), file);
	(void)fclose(file); /* Only read. */
	/* Of exactly its length, so that a sanitizer sees who reads past its end. */
	exact = malloc(byte_count ? byte_count : 1);
	fuzz_check(exact != NULL, "no memory for an input");
	memcpy(exact, buffer, byte_count);
	(void)fprintf(stderr, "replay: %s\n", path); /* A target that fails aborts. */
	(void)LLVMFuzzerTestOneInput(exact, byte_count);
	free(exact);
	run_count++;
	return 0;
}

static int run_path(const char *path)
{
	struct dirent **entries = NULL;
	struct stat status;
	int count;
	int r = 0;

	if (stat(path, &status) || !S_ISDIR(status.st_mode))
		return run_file(path);
	count = scandir(path, &entries, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		char file[4096];

		if (entries[i]->d_name[0] != '.' &&
		    snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name) <
		            (int)sizeof(file))
			r |= run_file(file);
		free(entries[i]);
	}
	free(entries);
	return count < 0 ? 1 : r;
}

int main(int argc, char **argv)
{
	int r = 0;

	(void)LLVMFuzzerInitialize(&argc, &argv); /* Always 0. */
	for (int i = 1; i < argc; i++)
		r |= run_path(argv[i]);
	printf("%u inputs\n", run_count);
	return r || !run_count;
}
