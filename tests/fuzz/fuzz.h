/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets share. Each tests/fuzz/fuzz_NAME.c is one target: linked with libFuzzer by
 * `make fuzz` (clang), and with replay.c by every other build, where it repeats the inputs that are
 * kept in tests/fuzz/corpus/NAME/.
 *
 * A target reads its input as a stream of decisions: what has been read to its end goes on as
 * zeros, so that any bytes are an input and a prefix means what it meant before.
 */
#pragma once

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What libFuzzer and replay.c call. Return: 0. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count);
/* Before the first input. */
int LLVMFuzzerInitialize(int *argument_count, char ***arguments);

struct fuzz_input {
	const uint8_t *bytes;
	size_t byte_count;
};

static inline void fuzz_take(struct fuzz_input *input, void *target, size_t byte_count)
{
	size_t there = byte_count < input->byte_count ? byte_count : input->byte_count;

	if (there)
		memcpy(target, input->bytes, there);
	memset((char *)target + there, 0, byte_count - there);
	input->bytes += there;
	input->byte_count -= there;
}

static inline uint8_t fuzz_u8(struct fuzz_input *input)
{
	uint8_t value;

	fuzz_take(input, &value, sizeof(value));
	return value;
}

static inline uint32_t fuzz_u32(struct fuzz_input *input)
{
	uint32_t value;

	fuzz_take(input, &value, sizeof(value));
	return value;
}

static inline uint64_t fuzz_u64(struct fuzz_input *input)
{
	uint64_t value;

	fuzz_take(input, &value, sizeof(value));
	return value;
}

/* A text of at most @capacity - 1 bytes, its length first; NULs are its end. */
static inline void fuzz_text(struct fuzz_input *input, char *target, size_t capacity)
{
	size_t byte_count = fuzz_u8(input);

	if (byte_count > capacity - 1)
		byte_count = capacity - 1;
	fuzz_take(input, target, byte_count);
	target[byte_count] = '\0';
}

/* What must hold whatever the input is; builds without asserts check it too. */
static inline void fuzz_check(int is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "fuzz: %s\n", what);
	abort();
}

/* The lowest descriptor that is free: a lost one makes it another. @fd: any that is open. */
static inline int fuzz_free_fd(int fd)
{
	int free_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	fuzz_check(free_fd >= 0, "fcntl");
	(void)close(free_fd);
	return free_fd;
}

/* A private folder, on memory where there is some: "DIR/zinf-fuzz-XXXXXX" with DIR from $TMPDIR,
 * else /dev/shm, else /tmp. Removed at exit. */
const char *fuzz_directory(void);
