/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: registered buffers and files are found, used, accounted and given back, at any time; a
 * refusal costs speed only. Method: regions on both sides of every border; a slot is seen to be
 * used because it keeps the pages and the file it was given; 64 KiB of lockable memory. */
#include <fcntl.h>
#include <grp.h>
#include <liburing.h>
#include <signal.h>
#include <sys/resource.h>

#include "nvme/fixed.h"
#include "tests/unit/nvme/nvme_test.h"

#define STORE_BYTES (16 * MIB)

static struct nvme_store *store;

static void set_up(void)
{
	struct io_uring ring;
	int r = io_uring_queue_init(1, &ring, 0);

	test_make_directory();
	if (r) {
		test_remove_directory(); /* A test that is skipped has no .fini. */
		cr_skip_test("io_uring is refused here (%d)", r);
	}
	io_uring_queue_exit(&ring);
	store = test_open("register", STORE_BYTES);
}

static void tear_down(void)
{
	store = nvme_store_close(store);
	test_remove_directory();
}

TestSuite(registered, .init = set_up, .fini = tear_down);

static struct nvme_engine_stats stats_of(const struct nvme_engine *engine)
{
	struct nvme_engine_stats stats;

	nvme_engine_stats(engine, &stats);
	return stats;
}

static void round_trip(struct nvme_engine *engine, unsigned char *buffer, uint64_t bytes,
                       uint64_t seed)
{
	test_fill(buffer, bytes, seed);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, bytes), 0);
	memset(buffer, 0, bytes);
	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, buffer, bytes), 0);
	cr_assert(test_is_filled(buffer, bytes, seed));
}

Test(registered, bytes_are_counted_and_returned)
{
	struct nvme_engine *engine = test_engine("io_uring", 4, 65536);
	unsigned char *a = test_buffer(MIB), *b = test_buffer(2 * MIB);

	cr_assert_eq(nvme_engine_register_buffer(engine, a, MIB), 0);
	cr_assert_eq(nvme_engine_register_buffer(engine, b, 2 * MIB), 0);
	cr_assert_eq(stats_of(engine).registered_bytes, 3 * MIB);
	cr_assert_eq(stats_of(engine).unregistered_bytes, 0);
	round_trip(engine, a, MIB, 1);
	round_trip(engine, b, 2 * MIB, 2);
	nvme_engine_unregister_buffer(engine, a);
	cr_assert_eq(stats_of(engine).registered_bytes, 2 * MIB);
	round_trip(engine, a, MIB, 3);
	round_trip(engine, b, 2 * MIB, 4);
	nvme_engine_unregister_buffer(engine, a);
	nvme_engine_unregister_buffer(engine, b);
	cr_assert_eq(stats_of(engine).registered_bytes, 0);
	engine = nvme_engine_free(engine);
}

/* A registered buffer is the pages it had: after the mapping has been replaced, I/O by slot still
 * goes to the old ones. */
Test(registered, slot_is_really_used)
{
	struct nvme_engine *engine = test_engine("io_uring", 4, 65536);
	unsigned char *buffer = test_buffer(MIB);

	test_fill(buffer, MIB, 1);
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, MIB), 0);
	cr_assert_eq(mmap(buffer, MIB, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
	             buffer);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, MIB), 0);
	nvme_engine_unregister_buffer(engine, buffer);
	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, buffer, MIB), 0);
	cr_assert(test_is_filled(buffer, MIB, 1), "the write came from the registered pages");
	engine = nvme_engine_free(engine);
}

/* Likewise: a registered file stays what it was, whatever becomes of the descriptor. */
Test(registered, file_slot_is_really_used)
{
	struct nvme_engine *engine = test_engine("io_uring", 4, 65536);
	unsigned char *buffer = test_buffer(MIB);
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int kept_fd = store->fd;

	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	cr_assert_eq(nvme_engine_register_store(engine, store), -EEXIST);
	store->fd = null_fd;
	round_trip(engine, buffer, MIB, 1);
	nvme_engine_unregister_store(engine, store);
	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, buffer, MIB), -EIO,
	             "/dev/null is at its end");
	store->fd = kept_fd;
	close(null_fd);
	engine = nvme_engine_free(engine);
}

Test(registered, stores_have_a_limit_and_slots_are_used_again)
{
	struct nvme_engine *engine = test_engine("io_uring", 4, 65536);
	struct nvme_store stores[NVME_FILES_MAX + 1];

	for (unsigned i = 0; i <= NVME_FILES_MAX; i++) {
		stores[i] = *store;
		cr_assert_eq(nvme_engine_register_store(engine, &stores[i]),
		             i < NVME_FILES_MAX ? 0 : -ENOSPC);
	}
	nvme_engine_unregister_store(engine, &stores[5]);
	nvme_engine_unregister_store(engine, &stores[NVME_FILES_MAX]); /* is not: ignored */
	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	round_trip(engine, test_buffer(MIB), MIB, 7);
	engine = nvme_engine_free(engine);
}

Test(registered, buffer_is_added_and_removed_while_others_are_in_flight)
{
	struct nvme_engine *engine = test_engine("io_uring", 8, 65536);
	unsigned char *busy = test_buffer(4 * MIB), *other = test_buffer(MIB);
	struct test_io test;

	cr_assert_eq(nvme_engine_register_buffer(engine, busy, 4 * MIB), 0);
	test_fill(busy, 4 * MIB, 3);
	test_io_set(&test, NVME_WRITE, store, 8 * MIB, busy, 4 * MIB);
	cr_assert_eq(nvme_engine_submit(engine, &test.io), 0);
	nvme_engine_kick(engine);
	for (unsigned i = 0; i < 20; i++) {
		cr_assert_eq(nvme_engine_register_buffer(engine, other, MIB), 0);
		cr_assert_eq(stats_of(engine).registered_bytes, 5 * MIB);
		(void)nvme_engine_reap(engine);
		nvme_engine_unregister_buffer(engine, other);
	}
	nvme_engine_drain(engine);
	cr_assert_eq(test.io.result, 0);
	memset(busy, 0, 4 * MIB);
	cr_assert_eq(test_run(engine, NVME_READ, store, 8 * MIB, busy, 4 * MIB), 0);
	cr_assert(test_is_filled(busy, 4 * MIB, 3));
	engine = nvme_engine_free(engine);
}

Test(registered, block_that_leaves_its_region_goes_out_unregistered)
{
	struct nvme_engine *engine = test_engine("io_uring", 4, 65536);
	unsigned char *buffer = test_buffer(MIB);

	/* Two regions that touch, and a rest that is in none: blocks cross each border. */
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, 3 * 4096), 0);
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer + 3 * 4096, 100 * 4096), 0);
	round_trip(engine, buffer, MIB, 6);
	engine = nvme_engine_free(engine);
}

Test(registered, overlap_emptiness_and_too_many_are_refused)
{
	struct nvme_engine *engine = test_engine("io_uring", 4, 65536);
	unsigned char *buffer = test_buffer((NVME_PIECES_MAX + 1) * 4096);

	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, 0), -EINVAL);
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, UINT64_MAX - 4096), -EINVAL);
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, 1ull << 46), -ENOSPC);
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer + 4096, 8192), 0);
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, 8192), -EEXIST);
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer + 8192, 4096), -EEXIST);
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, MIB), -EEXIST);
	nvme_engine_unregister_buffer(engine, buffer + 8192); /* not a base: ignored */
	cr_assert_eq(stats_of(engine).registered_bytes, 8192);
	nvme_engine_unregister_buffer(engine, buffer + 4096);
	for (unsigned i = 0; i <= NVME_PIECES_MAX; i++)
		cr_assert_eq(nvme_engine_register_buffer(engine, buffer + i * 4096, 4096),
		             i < NVME_PIECES_MAX ? 0 : -ENOSPC, "region %u", i);
	round_trip(engine, buffer, MIB, 2);
	engine = nvme_engine_free(engine);
}

Test(registered, threads_register_nothing_and_refuse_nothing)
{
	struct nvme_engine *engine = test_engine("threads", 4, 65536);
	unsigned char *buffer = test_buffer(MIB);

	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, MIB), 0);
	cr_assert_eq(stats_of(engine).registered_bytes, 0);
	cr_assert_eq(stats_of(engine).unregistered_bytes, 0);
	round_trip(engine, buffer, MIB, 2);
	nvme_engine_unregister_buffer(engine, buffer);
	nvme_engine_unregister_store(engine, store);
	engine = nvme_engine_free(engine);
}

/* This process gives up CAP_IPC_LOCK: each test has a process of its own. */
Test(registered, too_little_lockable_memory_is_counted_and_io_works)
{
	struct rlimit limit = { 65536, 65536 };
	struct nvme_engine *engine;
	unsigned char *buffer;

	test_remove_directory(); /* While we may. The store's descriptor lives on. */
	cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	if (geteuid() == 0) {
		cr_assert_eq(setgroups(0, NULL), 0);
		cr_assert_eq(setgid(65534), 0);
		cr_assert_eq(setuid(65534), 0);
	}
	engine = test_engine("io_uring", 4, 65536);
	buffer = test_buffer(2 * MIB);
	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, 2 * MIB), 0);
	cr_assert_eq(stats_of(engine).registered_bytes, 0);
	cr_assert_eq(stats_of(engine).unregistered_bytes, 2 * MIB);
	round_trip(engine, buffer, 2 * MIB, 5);
	nvme_engine_unregister_buffer(engine, buffer);
	cr_assert_eq(stats_of(engine).unregistered_bytes, 0);
	/* Refusals use up no slot: what fits is still registered after more of them than slots. */
	for (unsigned i = 0; i < NVME_PIECES_MAX; i++) {
		cr_assert_eq(nvme_engine_register_buffer(engine, buffer, 2 * MIB), 0);
		nvme_engine_unregister_buffer(engine, buffer);
	}
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, 8192), 0);
	cr_assert_eq(stats_of(engine).registered_bytes, 8192);
	round_trip(engine, buffer, MIB, 6);
	nvme_engine_unregister_buffer(engine, buffer);
	engine = nvme_engine_free(engine);
}

#ifndef NDEBUG
Test(registered, unregister_under_a_block_in_flight_aborts, .signal = SIGABRT)
{
	struct nvme_engine *engine =
		test_engine("faulty:over=io_uring,stall_at=1,stall_ms=10000", 1, 4096);
	unsigned char *buffer = test_buffer(4096);
	struct test_io test;

	test_remove_directory(); /* The descriptor lives on; nobody else will clear up. */
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, 4096), 0);
	test_io_set(&test, NVME_READ, store, 4096, buffer, 4096);
	cr_assert_eq(nvme_engine_submit(engine, &test.io), 0);
	nvme_engine_kick(engine);
	nvme_engine_unregister_buffer(engine, buffer);
}
#endif

/* ---- the table alone: gibibytes need not exist ---- */

static struct nvme_fixed fixed;

static void add(uintptr_t base, uint64_t bytes, uintptr_t region)
{
	struct nvme_piece piece = { .base = base, .bytes = bytes, .region_base = region };

	piece.slot = nvme_fixed_take_slot(&fixed);
	nvme_fixed_insert(&fixed, &piece);
}

Test(fixed, finds_the_piece_that_holds_a_run_and_no_other)
{
	nvme_fixed_init(&fixed);
	cr_assert_null(nvme_fixed_find(&fixed, (void *)0x1000, 1));
	add(0x30000, 0x1000, 0x30000);
	add(0x10000, 0x4000, 0x10000);
	add(0x14000, 0x4000, 0x10000);
	cr_assert_null(nvme_fixed_find(&fixed, (void *)0xf000, 0x1000));
	cr_assert_null(nvme_fixed_find(&fixed, (void *)0xf000, 0x1001));
	cr_assert_eq(nvme_fixed_find(&fixed, (void *)0x10000, 0x4000)->slot, 1);
	cr_assert_eq(nvme_fixed_find(&fixed, (void *)0x13fff, 1)->slot, 1);
	cr_assert_null(nvme_fixed_find(&fixed, (void *)0x13fff, 2));
	cr_assert_eq(nvme_fixed_find(&fixed, (void *)0x14000, 1)->slot, 2);
	cr_assert_null(nvme_fixed_find(&fixed, (void *)0x18000, 1));
	cr_assert_eq(nvme_fixed_find(&fixed, (void *)0x30fff, 1)->slot, 0);
	cr_assert_null(nvme_fixed_find(&fixed, (void *)0x31000, 1));
	cr_assert(nvme_fixed_overlaps(&fixed, (void *)0x17fff, 1));
	cr_assert(nvme_fixed_overlaps(&fixed, (void *)0x20000, 0x10001));
	cr_assert_not(nvme_fixed_overlaps(&fixed, (void *)0x20000, 0x10000));
	cr_assert_not(nvme_fixed_overlaps(&fixed, (void *)0x18000, 0x8000));
}

Test(fixed, region_is_removed_piece_by_piece_and_its_neighbours_stay)
{
	struct nvme_piece piece;

	nvme_fixed_init(&fixed);
	add(0x10000, 0x4000, 0x10000);
	add(0x14000, 0x4000, 0x10000);
	add(0x18000, 0x4000, 0x18000);
	cr_assert_not(nvme_fixed_remove(&fixed, (void *)0x14000, &piece), "not a region's base");
	cr_assert(nvme_fixed_remove(&fixed, (void *)0x10000, &piece));
	cr_assert_eq(piece.base, 0x10000);
	cr_assert(nvme_fixed_remove(&fixed, (void *)0x10000, &piece));
	cr_assert_eq(piece.base, 0x14000);
	cr_assert_not(nvme_fixed_remove(&fixed, (void *)0x10000, &piece));
	cr_assert_eq(fixed.pieces_count, 1);
	cr_assert_eq(nvme_fixed_find(&fixed, (void *)0x18000, 1)->slot, 2);
}
