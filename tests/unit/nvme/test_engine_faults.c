/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every fault of a disk ends in the right result of the right request, once, and the requests
 * beside it are whole. Method: the fault injector over both backends. */
#include "common/base/clock.h"
#include "tests/unit/nvme/over_both.h"

/* Writes and reads 2 MiB in 32 blocks, which must come back as they went. */
static void round_trip(struct nvme_engine *engine, uint64_t seed)
{
	test_fill(buffer, 2 * MIB, seed);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, 2 * MIB), 0);
	memset(buffer, 0, 2 * MIB);
	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, buffer, 2 * MIB), 0);
	cr_assert(test_is_filled(buffer, 2 * MIB, seed));
}

OVER_BOTH(faults, short_reads_and_writes_are_continued)
{
	for (unsigned seed = 1; seed <= 5; seed++) {
		char faults[80];
		struct nvme_engine *engine;

		(void)snprintf(faults, sizeof(faults),
		               "seed=%u,read_short_every=2,write_short_every=3", seed);
		engine = make(variant, 4, faults);
		round_trip(engine, seed);
		cr_assert_geq(stats_of(engine).short_count, 20);
		cr_assert_eq(stats_of(engine).error_count, 0);
		cr_assert_eq(stats_of(engine).read_bytes, 2 * MIB);
		cr_assert_eq(stats_of(engine).write_bytes, 2 * MIB);
		engine = nvme_engine_free(engine);
	}
}

OVER_BOTH(faults, registered_blocks_are_continued_as_well)
{
	struct nvme_engine *engine =
		make(variant, 4, "seed=9,read_short_every=2,write_short_every=2");

	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	cr_assert_eq(nvme_engine_register_buffer(engine, buffer, 4 * MIB), 0);
	round_trip(engine, 4);
	nvme_engine_unregister_buffer(engine, buffer);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(faults, results_that_say_again_are_repeated)
{
	struct nvme_engine *engine = make(variant, 4, "eagain_every=2");

	round_trip(engine, 1);
	cr_assert_eq(stats_of(engine).error_count, 0);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(faults, disk_that_always_says_again_is_given_up)
{
	struct nvme_engine *engine = make(variant, 4, "eagain_every=1");

	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, buffer, MIB), -EAGAIN);
	cr_assert_eq(stats_of(engine).error_count, 1);
	engine = nvme_engine_free(engine);
}

/* Three requests of 4 blocks; block 6, in the second, fails. */
static void fail_the_second(struct nvme_engine *engine, enum nvme_direction direction, int error)
{
	struct test_io ios[3];

	for (unsigned i = 0; i < 3; i++) {
		test_io_set(&ios[i], direction, store, 4096 + i * 4 * BLOCK_BYTES,
		            buffer + i * 4 * BLOCK_BYTES, 4 * BLOCK_BYTES);
		cr_assert_eq(nvme_engine_submit(engine, &ios[i].io), 0);
	}
	nvme_engine_drain(engine);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(ios[i].done_count, 1);
		cr_assert_eq(ios[i].io.result, i == 1 ? error : 0);
	}
	cr_assert_lt(ios[1].io.done_bytes, 4 * BLOCK_BYTES);
	cr_assert_eq(stats_of(engine).error_count, 1);
}

OVER_BOTH(faults, error_of_the_nth_read_fails_its_request_alone)
{
	struct nvme_engine *engine = make(variant, 2, "read_eio_at=6");

	fail_the_second(engine, NVME_READ, -EIO);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(faults, error_of_the_nth_write_fails_its_request_alone)
{
	struct nvme_engine *engine = make(variant, 32, "write_eio_at=6");

	fail_the_second(engine, NVME_WRITE, -EIO);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(faults, errors_of_media_and_fabric_come_through_unchanged)
{
	const struct {
		const char *faults;
		int error;
	} cases[] = {
		{ "read_eio_at=1,error=ENODATA", -ENODATA },
		{ "read_eio_at=1,error=EREMOTEIO", -EREMOTEIO },
		{ "read_eio_at=1,error=EFBIG", -EFBIG },
	};

	for (unsigned i = 0; i < 3; i++) {
		struct nvme_engine *engine = make(variant, 4, cases[i].faults);

		cr_assert_eq(test_run(engine, NVME_READ, store, 4096, buffer, MIB), cases[i].error);
		engine = nvme_engine_free(engine);
	}
}

OVER_BOTH(faults, after_an_error_nothing_more_of_the_request_goes_out)
{
	struct nvme_engine *engine = make(variant, 1, "write_eio_at=3");
	unsigned char *seen = test_buffer(MIB);

	/* The file was written with zeros in advance: what is not zero now went out. */
	test_fill(buffer, MIB, 8);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, MIB), -EIO);
	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, seen, MIB), 0);
	cr_assert_eq(memcmp(seen, buffer, 2 * BLOCK_BYTES), 0, "what went before is there");
	for (unsigned i = 2 * BLOCK_BYTES; i < MIB; i++)
		cr_assert_eq(seen[i], 0, "byte %u went out after the error", i);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(faults, first_of_several_errors_is_the_result)
{
	struct nvme_engine *engine = make(variant, 8, "write_eio_at=1,enospc_after_bytes=0");

	cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, MIB), -EIO);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, MIB), -ENOSPC);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(faults, full_disk_is_told_from_then_on)
{
	struct nvme_engine *engine = make(variant, 4, "enospc_after_bytes=1048576");

	cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, MIB), 0);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 2 * MIB, buffer, MIB), -ENOSPC);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, 4096), -ENOSPC);
	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, buffer, MIB), 0);
	cr_assert_eq(stats_of(engine).error_count, 2);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(faults, more_bytes_than_were_asked_for_are_an_error)
{
	struct nvme_engine *engine = make(variant, 4, "overlong_at=2");

	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, buffer, MIB), -EIO);
	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, buffer, MIB), 0);
	engine = nvme_engine_free(engine);
}

/* These pass the engine: they are what checksums are for. Here only that the injector does them. */
OVER_BOTH(faults, flipped_bit_is_one_wrong_bit_of_a_read_that_succeeds)
{
	struct nvme_engine *engine = make(variant, 1, "bitflip_at=3,seed=2");
	unsigned wrong_bits = 0;

	test_fill(buffer, 2 * MIB, 1);
	memcpy(buffer + 2 * MIB, buffer, 2 * MIB);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, 2 * MIB), 0);
	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, buffer, 2 * MIB), 0);
	for (unsigned i = 0; i < 2 * MIB; i++)
		wrong_bits += (unsigned)__builtin_popcount(buffer[i] ^ buffer[i + 2 * MIB]);
	cr_assert_eq(wrong_bits, 1);
	cr_assert_neq(
		memcmp(buffer + 2 * BLOCK_BYTES, buffer + 2 * MIB + 2 * BLOCK_BYTES, BLOCK_BYTES),
		0);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(faults, lost_write_succeeds_and_leaves_what_was_there)
{
	struct nvme_engine *engine = make(variant, 1, "write_lost_at=8");

	test_fill(buffer, MIB, 1);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, MIB), 0);
	memcpy(buffer + MIB, buffer, MIB);
	memset(buffer + MIB + 7 * BLOCK_BYTES, 0, BLOCK_BYTES);
	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, buffer, MIB), 0);
	cr_assert_eq(memcmp(buffer, buffer + MIB, MIB), 0);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(faults, stalled_block_holds_up_its_request_alone)
{
	struct nvme_engine *engine = make(variant, 4, "stall_at=1,stall_ms=500");
	struct test_io slow, fast;
	unsigned clock = 0;

	test_io_set(&slow, NVME_READ, store, 4096, buffer, BLOCK_BYTES);
	test_io_set(&fast, NVME_READ, store, 4096 + BLOCK_BYTES, buffer + BLOCK_BYTES, BLOCK_BYTES);
	slow.clock = fast.clock = &clock;
	cr_assert_eq(nvme_engine_submit(engine, &slow.io), 0);
	cr_assert_eq(nvme_engine_submit(engine, &fast.io), 0);
	nvme_engine_drain(engine);
	cr_assert_eq(fast.order, 1);
	cr_assert_eq(slow.order, 2);
	cr_assert_geq(slow.io.finished_ns - slow.io.submitted_ns, 500 * ZI_NS_PER_MS);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(faults, faults_of_one_path_leave_the_others_alone)
{
	struct nvme_store *other = NULL;
	struct nvme_engine *engine = make(variant, 4, "path=other,write_eio_from=2");
	struct nvme_store_options options = { .name = "other",
		                              .path = test_path("other"),
		                              .bytes = 2 * MIB };

	cr_assert_eq(nvme_store_open(&options, &test_text, &other), 0, "%s", test_text.chars);
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, BLOCK_BYTES), 0);
	cr_assert_eq(test_run(engine, NVME_WRITE, other, 4096, buffer, BLOCK_BYTES), 0);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(test_run(engine, NVME_WRITE, other, 4096, buffer, BLOCK_BYTES), -EIO);
	cr_assert_eq(test_run(engine, NVME_READ, other, 4096, buffer, BLOCK_BYTES), 0);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, BLOCK_BYTES), 0);
	engine = nvme_engine_free(engine);
	other = nvme_store_close(other);
}

OVER_BOTH(faults, throttled_path_takes_its_time_for_every_byte)
{
	/* 64 KiB at 4 MiB/s: 15.6 ms each. */
	struct nvme_engine *engine = make(variant, 4, "bytes_per_s=4194304");
	uint64_t begin_ns = zi_clock_now_ns();

	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(test_run(engine, NVME_WRITE, store, 4096, buffer, BLOCK_BYTES), 0);
	cr_assert_geq(zi_clock_now_ns() - begin_ns, 3 * 15 * ZI_NS_PER_MS);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(faults, everything_at_once_ends_once)
{
	struct nvme_engine *engine =
		make(variant, 5,
	             "seed=4,read_short_every=3,write_short_every=4,eagain_every=7,write_eio_at=20,"
	             "read_eio_at=30,stall_at=11,stall_ms=5,reorder=1");
	struct test_io ios[24];
	unsigned errors = 0;

	for (unsigned i = 0; i < 24; i++) {
		test_io_set(&ios[i], i % 2 ? NVME_READ : NVME_WRITE, store,
		            4096 + i * 2 * BLOCK_BYTES, buffer + i * 2 * BLOCK_BYTES,
		            2 * BLOCK_BYTES);
		cr_assert_eq(nvme_engine_submit(engine, &ios[i].io), 0);
	}
	nvme_engine_drain(engine);
	for (unsigned i = 0; i < 24; i++) {
		cr_assert_eq(ios[i].done_count, 1);
		cr_assert(ios[i].io.result == 0 || ios[i].io.result == -EIO);
		errors += ios[i].io.result != 0;
	}
	cr_assert_geq(errors, 1);
	cr_assert_leq(errors, 2);
	cr_assert_eq(stats_of(engine).error_count, errors);
	cr_assert_eq(stats_of(engine).read_count + stats_of(engine).write_count, 24);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(faults, file_that_was_cut_ends_in_an_error_not_in_a_loop)
{
	struct nvme_engine *engine = make(variant, 2, "read_short_every=2");

	cr_assert_eq(ftruncate(store->fd, 8 * MIB), 0);
	cr_assert_eq(test_run(engine, NVME_READ, store, 8 * MIB - BLOCK_BYTES, buffer, MIB), -EIO);
	engine = nvme_engine_free(engine);
}
