/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a fuzz target: made on first use, removed with all its files at exit. */
#include <dirent.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

static char directory[256];

static void remove_directory(void)
{
	DIR *stream = opendir(directory);
	struct dirent *entry;

	while (stream && (entry = readdir(stream))) {
		char path[sizeof(directory) + sizeof(entry->d_name) + 1];

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name); /* Fits. */
		if (unlink(path))
			(void)rmdir(path); /* A folder; else rmdir() below says so. */
	}
	if (stream)
		(void)closedir(stream); /* Only read. */
	if (rmdir(directory))
		(void)fprintf(stderr, "fuzz: %s cannot be removed\n", directory);
}

const char *fuzz_directory(void)
{
	const char *parent = getenv("TMPDIR");

	if (directory[0])
		return directory;
	if (!parent || !parent[0])
		parent = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
	fuzz_check(snprintf(directory, sizeof(directory), "%s/zinf-fuzz-XXXXXX", parent) <
	                   (int)sizeof(directory),
	           "TMPDIR is too long");
	fuzz_check(mkdtemp(directory) != NULL, "mkdtemp");
	fuzz_check(!atexit(remove_directory), "atexit");
	return directory;
}
