/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of nvme/ share: a directory of their own on a real file system, small stores,
 * aligned buffers with known contents, and requests that remember how often they were done. */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nvme/nvme.h"
#include "tests/guard/guard.h"
#include "tests/harness/harness.h"

#define MIB (1ull << 20)

static char test_directory[256];
static struct zi_text test_text;

static inline void test_make_directory(void)
{
	cr_assert_not_null(mkdtemp(guard_path(test_directory, sizeof(test_directory), "nvme")));
}

static inline void test_remove_directory(void)
{
	(void)harness_remove_folder(test_directory);
}

static inline const char *test_path(const char *name)
{
	static char paths[4][512];
	static unsigned turn;
	char *path = paths[turn++ % 4];

	(void)snprintf(path, sizeof(paths[0]), "%s/%s", test_directory, name);
	return path;
}

static inline int test_try_open(const char *path, uint64_t bytes, struct nvme_store **ret_store)
{
	struct nvme_store_options options = { .name = "test", .path = path, .bytes = bytes };

	memset(&test_text, 0, sizeof(test_text));
	return nvme_store_open(&options, &test_text, ret_store);
}

static inline struct nvme_store *test_open(const char *name, uint64_t bytes)
{
	struct nvme_store *store = NULL;
	int r = test_try_open(test_path(name), bytes, &store);

	cr_assert_eq(r, 0, "%d: %s", r, test_text.chars);
	return store;
}

static inline void test_write_file(const char *path, const void *bytes, size_t count)
{
	FILE *file = fopen(path, "we");

	cr_assert_not_null(file);
	cr_assert_eq(fwrite(bytes, 1, count, file), count);
	cr_assert_eq(fclose(file), 0);
}

static inline unsigned char *test_buffer(uint64_t bytes)
{
	unsigned char *buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	cr_assert_neq(buffer, MAP_FAILED);
	return buffer;
}

/* Different in every word, and for every seed. */
static inline void test_fill(void *buffer, uint64_t bytes, uint64_t seed)
{
	uint64_t *words = buffer;

	for (uint64_t i = 0; i < bytes / 8; i++)
		words[i] = (i + 1) * 0x9e3779b97f4a7c15ull ^ (seed << 40);
}

static inline bool test_is_filled(const void *buffer, uint64_t bytes, uint64_t seed)
{
	const uint64_t *words = buffer;

	for (uint64_t i = 0; i < bytes / 8; i++)
		if (words[i] != ((i + 1) * 0x9e3779b97f4a7c15ull ^ (seed << 40)))
			return false;
	return true;
}

struct test_io {
	struct nvme_io io;
	unsigned done_count;
	unsigned order; /* 1 for the first that was done */
	unsigned *clock;
};

static inline void test_io_done(struct nvme_io *io)
{
	struct test_io *test = container_of(io, struct test_io, io);

	test->done_count++;
	if (test->clock)
		test->order = ++*test->clock;
}

static inline void test_io_set(struct test_io *test, enum nvme_direction direction,
                               struct nvme_store *store, uint64_t offset_bytes, void *buffer,
                               uint64_t bytes)
{
	*test = (struct test_io){ .io = { .direction = direction,
		                          .store = store,
		                          .offset_bytes = offset_bytes,
		                          .buffer = buffer,
		                          .bytes = bytes,
		                          .done = test_io_done } };
}

static inline struct nvme_engine *test_engine(const char *backend, uint32_t depth,
                                              uint32_t block_bytes)
{
	struct nvme_engine_options options = { .backend = backend,
		                               .depth = depth,
		                               .read_block_bytes = block_bytes,
		                               .write_block_bytes = block_bytes };
	struct nvme_engine *engine = NULL;
	int r;

	memset(&test_text, 0, sizeof(test_text));
	r = nvme_engine_new(&options, &test_text, &engine);
	cr_assert_eq(r, 0, "%s: %d: %s", backend ? backend : "default", r, test_text.chars);
	return engine;
}

/* One request, from submit to done. Its result. */
static inline int test_run(struct nvme_engine *engine, enum nvme_direction direction,
                           struct nvme_store *store, uint64_t offset_bytes, void *buffer,
                           uint64_t bytes)
{
	struct test_io test;

	test_io_set(&test, direction, store, offset_bytes, buffer, bytes);
	cr_assert_eq(nvme_engine_submit(engine, &test.io), 0);
	cr_assert_eq(test.done_count, 0, "done is never called from submit");
	nvme_engine_kick(engine);
	cr_assert_eq(test.done_count, 0, "done is never called from kick");
	nvme_engine_drain(engine);
	cr_assert_eq(test.done_count, 1);
	return test.io.result;
}
