/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each store has its own block size and depth in each direction, and none holds up another.
 * Method: the engine's own count of blocks that are out, which only reap changes. */
#include <criterion/criterion.h>
#include <poll.h>

#include "nvme/engine.h"
#include "tests/unit/nvme/nvme_test.h"

#define STORE_BYTES (8 * MIB)

static struct nvme_engine *engine;
static struct nvme_store *store;
static unsigned char *buffer;

static void set_up(void)
{
	test_make_directory();
	store = test_open("tuned", STORE_BYTES);
	buffer = test_buffer(4 * MIB);
}

static void tear_down(void)
{
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
	test_remove_directory();
}

static const struct nvme_tuning small = {
	.read_block_bytes = 4096, .write_block_bytes = 8192, .read_depth = 2, .write_depth = 3
};

static uint32_t out_count(unsigned port, enum nvme_direction direction)
{
	return engine->ports[port].lanes[direction].inflight_count;
}

/* A read and a write of a MiB each. */
static void submit_both(struct test_io tests[2])
{
	test_io_set(&tests[0], NVME_READ, store, MIB, buffer, MIB);
	test_io_set(&tests[1], NVME_WRITE, store, 4 * MIB, buffer + MIB, MIB);
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(nvme_engine_submit(engine, &tests[i].io), 0);
	nvme_engine_kick(engine);
}

Test(tuning, each_direction_has_its_depth_and_block, .init = set_up, .fini = tear_down)
{
	struct test_io tests[2];

	engine = test_engine("threads", 64, 65536);
	store->tuning = small;
	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	submit_both(tests);
	cr_assert_eq(out_count(1, NVME_READ), 2);
	cr_assert_eq(out_count(1, NVME_WRITE), 3);
	cr_assert_eq(tests[0].io.next_bytes, 2 * 4096);
	cr_assert_eq(tests[1].io.next_bytes, 3 * 8192);
	nvme_engine_drain(engine);
	cr_assert_eq(tests[0].io.result, 0);
	cr_assert_eq(tests[1].io.result, 0);
	cr_assert_eq(out_count(1, NVME_READ), 0);
	cr_assert_eq(out_count(1, NVME_WRITE), 0);
}

Test(tuning, changes_from_the_next_block_on, .init = set_up, .fini = tear_down)
{
	const struct nvme_tuning deep = { .read_depth = 1000, .read_block_bytes = 65536 };
	struct test_io tests[2];

	engine = test_engine("threads", 8, 8192);
	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	cr_assert_eq(nvme_engine_tune(engine, store, &small), 0);
	submit_both(tests);
	cr_assert_eq(out_count(1, NVME_READ), 2);
	cr_assert_eq(nvme_engine_tune(engine, store, &deep), 0);
	cr_assert_eq(store->tuning.read_block_bytes, 65536);
	nvme_engine_kick(engine);
	/* Three places were free; the engine's own depth is 8. */
	cr_assert_eq(out_count(1, NVME_READ) + out_count(1, NVME_WRITE), 8);
	nvme_engine_drain(engine);
	cr_assert_eq(tests[0].io.result, 0);
	cr_assert_eq(tests[1].io.result, 0);
}

Test(tuning, that_cannot_be_is_refused, .init = set_up, .fini = tear_down)
{
	const struct nvme_tuning odd = { .read_block_bytes = 5000 };
	const struct nvme_tuning large = { .write_block_bytes = 128u << 20 };

	engine = test_engine("threads", 8, 8192);
	cr_assert_eq(nvme_engine_tune(engine, store, &small), -EINVAL, "not registered");
	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	cr_assert_eq(nvme_engine_tune(engine, store, &odd), -EINVAL);
	cr_assert_eq(nvme_engine_tune(engine, store, &large), -EINVAL);
	cr_assert_eq(store->tuning.read_block_bytes, 0);
	nvme_engine_unregister_store(engine, store);
	cr_assert_eq(nvme_engine_tune(engine, store, &small), -EINVAL, "not any more");
}

Test(tuning, stalled_store_holds_up_no_other, .init = set_up, .fini = tear_down)
{
	struct nvme_store *other = test_open("other", STORE_BYTES);
	struct test_io stalled, tests[4];

	engine = test_engine("faulty:over=threads,stall_at=1,stall_ms=300", 8, 4096);
	store->tuning.read_depth = 1;
	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	cr_assert_eq(nvme_engine_register_store(engine, other), 0);
	test_io_set(&stalled, NVME_READ, store, MIB, buffer, MIB);
	cr_assert_eq(nvme_engine_submit(engine, &stalled.io), 0);
	nvme_engine_kick(engine);
	for (unsigned i = 0; i < 4; i++) {
		test_io_set(&tests[i], NVME_READ, other, MIB * (i + 1), buffer + MIB, 65536);
		cr_assert_eq(nvme_engine_submit(engine, &tests[i].io), 0);
	}
	nvme_engine_kick(engine);
	while (nvme_engine_inflight_count(engine) > 1) {
		struct pollfd event = { .fd = nvme_engine_fd(engine), .events = POLLIN };

		cr_assert_eq(poll(&event, 1, 10000), 1);
		(void)nvme_engine_reap(engine);
	}
	cr_assert_eq(stalled.done_count, 0);
	cr_assert_eq(stalled.io.next_bytes, 4096, "its only place is taken");
	nvme_engine_drain(engine);
	cr_assert_eq(stalled.io.result, 0);
	nvme_engine_unregister_store(engine, other);
	other = nvme_store_close(other);
}
