/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what cannot be polled is refused in words before it is used, a device that refuses polled
 * requests in the middle of its use gets plain ones and nothing is lost, and nobody turns in vain
 * when nothing is in flight. Method: files on a real file system; most of their devices have no
 * poll queues, so the kernel itself refuses. Polling that works is for `make check-vm`.
 */
#include <poll.h>

#include "tests/unit/nvme/nvme_test.h"

#define STORE_BYTES (8 * MIB)
#define DATA_BYTES  (2 * MIB)
/* Blocks of this many bytes may be polled. */
#define POLL_BYTES (64u << 10)

static struct nvme_store *store;

static void set_up(void)
{
	test_make_directory();
	store = test_open("store", STORE_BYTES);
}

static void tear_down(void)
{
	store = nvme_store_close(store);
	test_remove_directory();
}

static void expect_refused(const char *words)
{
	cr_assert_eq(nvme_store_start_poll(store, &test_text), -EOPNOTSUPP);
	cr_assert_not_null(strstr(test_text.chars, words), "%s", test_text.chars);
	cr_assert_not_null(strstr(test_text.chars, "set iopoll = no"), "%s", test_text.chars);
	cr_assert_not(store->is_polled);
}

Test(poll, what_cannot_be_polled_is_refused_in_words, .init = set_up, .fini = tear_down)
{
	expect_refused("it is a file");
	/* A device whose queue nobody can ask: the file's number is none. */
	store->is_block_device = true;
	expect_refused("has no poll queues");
	store->is_direct = false;
	expect_refused("O_DIRECT");
}

static uint32_t unpolled_count;

static void unpolled(void *arg, const struct nvme_store *whose)
{
	cr_assert_eq(arg, &unpolled_count);
	cr_assert_eq(whose, store);
	unpolled_count++;
}

static struct nvme_engine *make_engine(const char *backend)
{
	const struct nvme_engine_options options = {
		.backend = backend,
		.depth = 8,
		.unpolled = unpolled,
		.arg = &unpolled_count,
		.has_poll = true,
	};
	struct nvme_engine *engine = NULL;

	cr_assert_eq(nvme_engine_new(&options, &test_text, &engine), 0, "%s", test_text.chars);
	return engine;
}

Test(poll, device_that_refuses_is_served_all_the_same, .init = set_up, .fini = tear_down)
{
	struct nvme_engine *engine = make_engine("auto");
	unsigned char *buffer = test_buffer(DATA_BYTES);
	struct pollfd pollfd = { .fd = nvme_engine_fd(engine), .events = POLLIN };

	if (!nvme_engine_can_poll(engine)) {
		engine = nvme_engine_free(engine);
		cr_skip_test("this kernel makes no ring that polls");
		return;
	}
	store->is_polled = true;
	store->poll_block_bytes = POLL_BYTES;
	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, DATA_BYTES), 0);
	test_fill(buffer, DATA_BYTES, 1);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, MIB, buffer, DATA_BYTES), 0);
	memset(buffer, 0, DATA_BYTES);
	cr_assert_eq(test_run(engine, NVME_READ, store, MIB, buffer, DATA_BYTES), 0);
	cr_assert(test_is_filled(buffer, DATA_BYTES, 1));
	/* Told once, if the device refused; one that has poll queues does not. */
	cr_assert_eq(unpolled_count, !store->is_polled);
	/* One signal may be left of what was there; then the loop sleeps. */
	(void)nvme_engine_reap(engine);
	cr_assert_eq(poll(&pollfd, 1, 0), 0);
	engine = nvme_engine_free(engine);
}

Test(poll, engines_without_a_ring_say_so, .init = set_up, .fini = tear_down)
{
	struct nvme_engine *engine = make_engine("threads");

	cr_assert_not(nvme_engine_can_poll(engine));
	engine = nvme_engine_free(engine);
	engine = test_engine("auto", 8, MIB);
	cr_assert_not(nvme_engine_can_poll(engine), "not asked for");
	engine = nvme_engine_free(engine);
}
