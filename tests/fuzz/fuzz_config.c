/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: configuration files, and assignments of the command line. The input is a file; what
 * follows a NUL is lines of --set. A refusal has words, and those about the file name it; what is
 * accepted is within the limits that the rest of the daemon relies upon.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "common/wire/layout.h"
#include "daemon/config.h"
#include "tests/fuzz/fuzz.h"

static int file_fd = -1;
static char file_path[64];

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	file_fd = memfd_create("zinf-fuzz-config", MFD_CLOEXEC);
	fuzz_check(file_fd >= 0, "memfd_create");
	(void)snprintf(file_path, sizeof(file_path), "/proc/self/fd/%d", file_fd); /* Fits. */
	return 0;
}

static int load(struct config *config, const uint8_t *bytes, size_t byte_count)
{
	struct zi_text text = { "" };
	int r;

	fuzz_check(!ftruncate(file_fd, 0), "ftruncate");
	fuzz_check(pwrite(file_fd, bytes, byte_count, 0) == (ssize_t)byte_count, "pwrite");
	r = config_load(config, file_path, &text);
	if (r)
		fuzz_check(strstr(text.chars, file_path) != NULL, "a refusal without the file");
	return r;
}

static int set(struct config *config, const uint8_t *bytes, size_t byte_count)
{
	int r = 0;

	while (!r && byte_count) {
		const uint8_t *end = memchr(bytes, '\n', byte_count);
		size_t line_bytes = end ? (size_t)(end - bytes) : byte_count;
		char *line = strndup((const char *)bytes, line_bytes);
		struct zi_text text = { "" };

		fuzz_check(line != NULL, "strndup");
		r = config_set(config, line, &text);
		fuzz_check(!r || text.chars[0], "a refusal without words");
		free(line);
		line_bytes += end != NULL;
		bytes += line_bytes;
		byte_count -= line_bytes;
	}
	return r;
}

static void check_accepted(const struct config *config)
{
	fuzz_check(config->sessions > 0 && config->jobs > 0, "no sessions, or no jobs");
	fuzz_check(config->inflight_ops >= config->sessions, "sessions without an operation");
	fuzz_check(config->ring_entries && config->ring_entries <= ZI_RING_ENTRIES_MAX &&
	                   !(config->ring_entries & (config->ring_entries - 1)),
	           "a ring of impossible entries");
	fuzz_check(config->store_count <= CONFIG_STORES_MAX, "too many stores");
	for (uint32_t i = 0; i < config->store_count; i++) {
		fuzz_check(config->stores[i].path[0] == '/', "a store without a path");
		fuzz_check(config->stores[i].name[0] != '\0', "a store without a name");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	static struct config config;
	const uint8_t *end = byte_count ? memchr(bytes, 0, byte_count) : NULL;
	size_t file_bytes = end ? (size_t)(end - bytes) : byte_count;
	struct zi_text text = { "" };
	int r;

	config_init(&config);
	r = load(&config, bytes, file_bytes);
	if (!r && end)
		r = set(&config, end + 1, byte_count - file_bytes - 1);
	if (r)
		return 0;
	r = config_check(&config, &text);
	fuzz_check(!r || text.chars[0], "a refusal without words");
	if (!r)
		check_accepted(&config);
	return 0;
}
