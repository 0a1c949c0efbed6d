/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the engine moves every byte to its place, whatever the backend, the size of blocks and the
 * depth, and refuses what it cannot. Method: one suite over io_uring and threads, and each beneath
 * the fault injector that injects no fault; contents are compared word by word. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

#include "common/base/loop.h"
#include "tests/unit/nvme/nvme_test.h"

#define STORE_BYTES (16 * MIB)

struct variant {
	char backend[48];
};

static struct variant variants[] = {
	{ "io_uring" },
	{ "threads" },
	{ "faulty:over=io_uring" },
	{ "faulty:over=threads" },
};

#define BACKEND_TEST(name)                                                                    \
	ParameterizedTestParameters(engine, name)                                             \
	{                                                                                     \
		return cr_make_param_array(struct variant, variants,                          \
		                           sizeof(variants) / sizeof(variants[0]));           \
	}                                                                                     \
	ParameterizedTest(struct variant *variant, engine, name, .init = test_make_directory, \
	                  .fini = test_remove_directory)

/* io_uring may be refused where the tests run: then there is nothing to test of it. */
static struct nvme_engine *make(const struct variant *variant, uint32_t depth, uint32_t block_bytes)
{
	if (strstr(variant->backend, "io_uring")) {
		struct io_uring ring;
		int r = io_uring_queue_init(1, &ring, 0);

		if (r)
			cr_skip_test("io_uring is refused here (%d)", r);
		io_uring_queue_exit(&ring);
	}
	return test_engine(variant->backend, depth, block_bytes);
}

BACKEND_TEST(what_is_written_is_read)
{
	struct nvme_engine *engine = make(variant, 8, 65536);
	struct nvme_store *store = test_open("a", STORE_BYTES);
	unsigned char *target = test_buffer(5 * MIB);
	unsigned char *source = test_buffer(5 * MIB);
	/* Below, at, above and far above the block; the last one reaches the end of the store. */
	const uint64_t sizes[] = { 4096, 65536, 65536 + 4096, 3 * 65536 - 4096, 5 * MIB };
	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	for (unsigned i = 0; i < 5; i++) {
		uint64_t offset = i == 4 ? STORE_BYTES - sizes[i] : 4096 * (i + 1);

		test_fill(source, sizes[i], i + 1);
		memset(target, 0, sizes[i]);
		cr_assert_eq(test_run(engine, NVME_WRITE, store, offset, source, sizes[i]), 0);
		cr_assert_eq(test_run(engine, NVME_READ, store, offset, target, sizes[i]), 0);
		cr_assert(test_is_filled(target, sizes[i], i + 1), "size %u", i);
	}
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
}

/* Many requests at once, more blocks than depth. */
static void move_many(struct nvme_engine *engine, struct nvme_store *store, unsigned char *buffer,
                      enum nvme_direction direction, unsigned count, uint64_t bytes)
{
	struct test_io ios[32];
	unsigned clock = 0;

	for (unsigned i = 0; i < count; i++) {
		test_io_set(&ios[i], direction, store, 4096 + i * bytes, buffer + i * bytes, bytes);
		ios[i].clock = &clock;
		cr_assert_eq(nvme_engine_submit(engine, &ios[i].io), 0);
	}
	cr_assert_eq(nvme_engine_inflight_count(engine), count);
	nvme_engine_drain(engine);
	cr_assert_eq(nvme_engine_inflight_count(engine), 0);
	cr_assert_eq(clock, count);
	for (unsigned i = 0; i < count; i++) {
		cr_assert_eq(ios[i].done_count, 1);
		cr_assert_eq(ios[i].io.result, 0);
		cr_assert_eq(ios[i].io.done_bytes, bytes);
		cr_assert_gt(ios[i].io.submitted_ns, 0);
		cr_assert_geq(ios[i].io.finished_ns, ios[i].io.submitted_ns);
	}
}

BACKEND_TEST(queue_is_deeper_than_depth)
{
	const uint64_t bytes = 400 * 1024; /* 7 blocks, the last short */
	struct nvme_engine *engine = make(variant, 3, 65536);
	struct nvme_store *store = test_open("deep", STORE_BYTES);
	unsigned char *buffer = test_buffer(32 * bytes);
	struct nvme_engine_stats stats;

	for (unsigned i = 0; i < 32; i++)
		test_fill(buffer + i * bytes, bytes, i);
	move_many(engine, store, buffer, NVME_WRITE, 32, bytes);
	memset(buffer, 0, 32 * bytes);
	move_many(engine, store, buffer, NVME_READ, 32, bytes);
	for (unsigned i = 0; i < 32; i++)
		cr_assert(test_is_filled(buffer + i * bytes, bytes, i), "request %u", i);
	nvme_engine_stats(engine, &stats);
	cr_assert_eq(stats.read_count, 32);
	cr_assert_eq(stats.write_count, 32);
	cr_assert_eq(stats.read_bytes, 32 * bytes);
	cr_assert_eq(stats.write_bytes, 32 * bytes);
	cr_assert_eq(stats.error_count, 0);
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
}

BACKEND_TEST(depth_of_one_is_enough)
{
	struct nvme_engine *engine = make(variant, 1, 4096);
	struct nvme_store *store = test_open("one", STORE_BYTES);
	unsigned char *buffer = test_buffer(MIB);

	test_fill(buffer, MIB, 9);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 8192, buffer, MIB), 0);
	memset(buffer, 0, MIB);
	cr_assert_eq(test_run(engine, NVME_READ, store, 8192, buffer, MIB), 0);
	cr_assert(test_is_filled(buffer, MIB, 9));
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
}

BACKEND_TEST(requests_that_cannot_be_are_refused)
{
	struct nvme_engine *engine = make(variant, 0, 0);
	struct nvme_store *store = test_open("wrong", STORE_BYTES);
	unsigned char *buffer = test_buffer(MIB);
	const struct {
		uint64_t offset, shift, bytes;
	} wrong[] = {
		{ 4096 + 512, 0, 4096 },         /* misaligned offset */
		{ 4096, 512, 4096 },             /* misaligned buffer */
		{ 4096, 0, 4096 + 512 },         /* misaligned length */
		{ 4096, 0, 0 },                  /* nothing */
		{ 0, 0, 4096 },                  /* the superblock */
		{ STORE_BYTES, 0, 4096 },        /* behind the end */
		{ STORE_BYTES - 4096, 0, 8192 }, /* over the end */
		{ UINT64_MAX - 4095, 0, 8192 },  /* wraps */
	};
	struct test_io test;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		test_io_set(&test, NVME_WRITE, store, wrong[i].offset, buffer + wrong[i].shift,
		            wrong[i].bytes);
		cr_assert_eq(nvme_engine_submit(engine, &test.io), -EINVAL, "case %u", i);
	}
	test_io_set(&test, NVME_READ, store, 4096, NULL, 4096);
	cr_assert_eq(nvme_engine_submit(engine, &test.io), -EINVAL);
	cr_assert_eq(nvme_engine_inflight_count(engine), 0);
	cr_assert_eq(nvme_engine_wait(engine), 0, "nothing to wait for");
	cr_assert_eq(test.done_count, 0);
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
}

BACKEND_TEST(end_of_a_file_that_was_cut_is_an_error)
{
	struct nvme_engine *engine = make(variant, 4, 65536);
	struct nvme_store *store = test_open("cut", STORE_BYTES);
	unsigned char *buffer = test_buffer(MIB);

	cr_assert_eq(ftruncate(store->fd, 8 * MIB), 0);
	cr_assert_eq(test_run(engine, NVME_READ, store, 12 * MIB, buffer, MIB), -EIO);
	cr_assert_eq(test_run(engine, NVME_READ, store, 8 * MIB - 4096, buffer, MIB), -EIO);
	cr_assert_eq(test_run(engine, NVME_READ, store, 8 * MIB - 4096, buffer, 4096), 0);
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
}

BACKEND_TEST(error_of_the_kernel_comes_through_unchanged)
{
	struct nvme_engine *engine = make(variant, 4, 65536);
	struct nvme_store *store = test_open("efault", STORE_BYTES);
	unsigned char *buffer = test_buffer(MIB);
	struct nvme_engine_stats stats;

	cr_assert_eq(munmap(buffer, MIB), 0);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, MIB), -EFAULT);
	nvme_engine_stats(engine, &stats);
	cr_assert_eq(stats.error_count, 1);
	cr_assert_eq(stats.write_count, 1);
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
}

/* Four writes of a block each through one place; reads that come later go out second and third. */
BACKEND_TEST(reads_overtake_writes_and_keep_their_order)
{
	struct nvme_engine *engine = make(variant, 1, 65536);
	struct nvme_store *store = test_open("order", STORE_BYTES);
	unsigned char *buffer = test_buffer(8 * 65536);
	struct test_io writes[4], reads[2];
	unsigned clock = 0;

	for (unsigned i = 0; i < 4; i++) {
		test_io_set(&writes[i], NVME_WRITE, store, 4096 + i * 65536, buffer + i * 65536,
		            65536);
		writes[i].clock = &clock;
		cr_assert_eq(nvme_engine_submit(engine, &writes[i].io), 0);
	}
	nvme_engine_kick(engine); /* The first write occupies the only place. */
	for (unsigned i = 0; i < 2; i++) {
		test_io_set(&reads[i], NVME_READ, store, 8 * MIB + i * 65536,
		            buffer + (4 + i) * 65536, 65536);
		reads[i].clock = &clock;
		cr_assert_eq(nvme_engine_submit(engine, &reads[i].io), 0);
	}
	nvme_engine_drain(engine);
	cr_assert_eq(writes[0].order, 1);
	cr_assert_eq(reads[0].order, 2);
	cr_assert_eq(reads[1].order, 3);
	for (unsigned i = 1; i < 4; i++)
		cr_assert_eq(writes[i].order, 3 + i);
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
}

BACKEND_TEST(write_is_not_starved_by_reads_for_ever)
{
	struct nvme_engine *engine = make(variant, 1, 4096);
	struct nvme_store *store = test_open("starve", STORE_BYTES);
	unsigned char *buffer = test_buffer(MIB);
	struct test_io write, reads[100];
	unsigned clock = 0;

	for (unsigned i = 0; i < 100; i++) {
		test_io_set(&reads[i], NVME_READ, store, 4096 * (i + 1), buffer + 4096 * i, 4096);
		reads[i].clock = &clock;
		cr_assert_eq(nvme_engine_submit(engine, &reads[i].io), 0);
	}
	test_io_set(&write, NVME_WRITE, store, 8 * MIB, buffer + 600 * 1024, 4096);
	write.clock = &clock;
	cr_assert_eq(nvme_engine_submit(engine, &write.io), 0);
	nvme_engine_drain(engine);
	cr_assert_leq(write.order, 20);
	cr_assert_eq(clock, 101);
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
}

/* ---- as a source of an event loop ---- */

struct chain {
	struct zi_source source;
	struct nvme_engine *engine;
	struct nvme_io io;
	unsigned left_count;
};

static void chain_ready(struct zi_source *source, uint32_t epoll_events)
{
	struct chain *chain = container_of(source, struct chain, source);

	(void)epoll_events;
	(void)nvme_engine_reap(chain->engine);
	if (!nvme_engine_inflight_count(chain->engine))
		zi_loop_stop(source->loop);
}

/* Each request submits the next from its own completion. */
static void chain_done(struct nvme_io *io)
{
	struct chain *chain = container_of(io, struct chain, io);

	cr_assert_eq(io->result, 0);
	if (!chain->left_count)
		return;
	chain->left_count--;
	io->offset_bytes += 4096;
	io->direction = chain->left_count % 2 ? NVME_READ : NVME_WRITE;
	cr_assert_eq(nvme_engine_submit(chain->engine, io), 0);
}

BACKEND_TEST(loop_is_woken_for_each_completion)
{
	struct nvme_engine *engine = make(variant, 4, 65536);
	struct nvme_store *store = test_open("loop", STORE_BYTES);
	struct chain chains[2] = { 0 };
	struct zi_loop *loop = NULL;

	cr_assert_eq(zi_loop_new(&loop), 0);
	cr_assert_eq(
		zi_loop_add(loop, &chains[0].source, nvme_engine_fd(engine), EPOLLIN, chain_ready),
		0);
	for (unsigned i = 0; i < 2; i++) {
		chains[i].engine = engine;
		chains[i].left_count = 100;
		chains[i].io = (struct nvme_io){ .direction = NVME_WRITE,
			                         .store = store,
			                         .offset_bytes = 4096 + i * 8 * MIB,
			                         .buffer = test_buffer(MIB),
			                         .bytes = 128 * 1024,
			                         .done = chain_done };
		cr_assert_eq(nvme_engine_submit(engine, &chains[i].io), 0);
	}
	nvme_engine_kick(engine);
	alarm(20); /* A lost wake-up would hang here. */
	cr_assert_eq(zi_loop_run(loop), 0);
	alarm(0);
	cr_assert_eq(chains[0].left_count + chains[1].left_count, 0);
	zi_loop_remove(&chains[0].source);
	loop = zi_loop_free(loop);
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
}

static bool is_readable(const struct nvme_engine *engine)
{
	struct pollfd event = { .fd = nvme_engine_fd(engine), .events = POLLIN };

	return poll(&event, 1, 0) == 1;
}

BACKEND_TEST(descriptor_is_quiet_when_nothing_is_left)
{
	struct nvme_engine *engine = make(variant, 4, 65536);
	struct nvme_store *store = test_open("quiet", STORE_BYTES);

	cr_assert_not(is_readable(engine));
	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, test_buffer(MIB), MIB), 0);
	/* A wait may leave the announcement of what it took itself: one turn of a loop, no more. */
	cr_assert_eq(nvme_engine_reap(engine), 0);
	cr_assert_not(is_readable(engine));
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
}

/* ---- threads of its life: made here, used there, freed here ---- */

struct errand {
	struct nvme_engine *engine;
	struct nvme_store *store;
	unsigned char *buffer;
	int results[2];
};

static void *run_errand(void *arg)
{
	struct errand *errand = arg;

	errand->results[0] =
		test_run(errand->engine, NVME_WRITE, errand->store, 4096, errand->buffer, MIB);
	memset(errand->buffer, 0, MIB);
	errand->results[1] =
		test_run(errand->engine, NVME_READ, errand->store, 4096, errand->buffer, MIB);
	return NULL;
}

BACKEND_TEST(engine_is_made_by_one_thread_and_owned_by_another)
{
	struct errand errand = { .engine = make(variant, 8, 65536),
		                 .store = test_open("errand", STORE_BYTES),
		                 .buffer = test_buffer(MIB),
		                 .results = { -1, -1 } };
	pthread_t thread;

	cr_assert_eq(nvme_engine_register_store(errand.engine, errand.store), 0);
	cr_assert_eq(nvme_engine_register_buffer(errand.engine, errand.buffer, MIB), 0);
	test_fill(errand.buffer, MIB, 77);
	cr_assert_eq(pthread_create(&thread, NULL, run_errand, &errand), 0);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_eq(errand.results[0], 0);
	cr_assert_eq(errand.results[1], 0);
	cr_assert(test_is_filled(errand.buffer, MIB, 77));
	nvme_engine_unregister_buffer(errand.engine, errand.buffer);
	nvme_engine_unregister_store(errand.engine, errand.store);
	errand.engine = nvme_engine_free(errand.engine);
	errand.store = nvme_store_close(errand.store);
}

#ifndef NDEBUG
Test(engine_misuse, free_with_a_request_in_flight_aborts, .signal = SIGABRT,
     .init = test_make_directory)
{
	struct nvme_engine *engine = test_engine("threads", 1, 4096);
	struct nvme_store *store = test_open("abort", MIB);
	struct test_io test;

	test_remove_directory(); /* The descriptor lives on; nobody else will clear up. */
	test_io_set(&test, NVME_READ, store, 4096, test_buffer(4096), 4096);
	cr_assert_eq(nvme_engine_submit(engine, &test.io), 0);
	engine = nvme_engine_free(engine);
}
#endif
