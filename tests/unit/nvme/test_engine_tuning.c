/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each store has its own block size and depth in each direction, and none holds up another.
 * Method: the engine's own count of blocks that are out, which only reap changes. */
#include <criterion/criterion.h>
#include <poll.h>

#include "nvme/engine.h"
#include "tests/unit/nvme/gate.h"
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

/* Until nothing but @count requests is in flight. */
static void reap_until(uint32_t count)
{
	while (nvme_engine_inflight_count(engine) > count) {
		struct pollfd event = { .fd = nvme_engine_fd(engine), .events = POLLIN };

		cr_assert_eq(poll(&event, 1, 20000), 1, "nothing comes back");
		(void)nvme_engine_reap(engine);
	}
}

static void stall(const char *backend, const struct nvme_tuning *tuning)
{
	struct nvme_store *other = test_open("other", STORE_BYTES);
	struct test_io stalled[2], tests[8];
	struct gate *gate;

	engine = test_engine(backend, 8, 4096);
	gate = gate_new(engine);
	store->tuning = other->tuning = *tuning;
	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	cr_assert_eq(nvme_engine_register_store(engine, other), 0);
	gate_shut(gate, store);
	/* 512 blocks, then as many of the other. */
	for (unsigned i = 0; i < 2; i++) {
		test_io_set(&stalled[i], (enum nvme_direction)i, store, MIB * (i + 1),
		            buffer + MIB * i, MIB);
		cr_assert_eq(nvme_engine_submit(engine, &stalled[i].io), 0);
	}
	nvme_engine_kick(engine);
	for (unsigned i = 0; i < 8; i++) {
		test_io_set(&tests[i], (enum nvme_direction)(i % 2), other, 65536 * (i + 1),
		            buffer + 2 * MIB + 65536 * i, 65536);
		cr_assert_eq(nvme_engine_submit(engine, &tests[i].io), 0);
	}
	nvme_engine_kick(engine);
	reap_until(2);
	for (unsigned i = 0; i < 8; i++)
		cr_assert_eq(tests[i].io.result, 0);
	cr_assert_eq(stalled[0].done_count + stalled[1].done_count, 0);
	cr_assert_gt(out_count(1, NVME_READ) + out_count(1, NVME_WRITE), 0);
	gate_open(gate);
	reap_until(0);
	cr_assert_eq(stalled[0].io.result, 0);
	cr_assert_eq(stalled[1].io.result, 0);
	cr_assert_eq(engine->free_count, 8);
	nvme_engine_unregister_store(engine, store);
	nvme_engine_unregister_store(engine, other);
	cr_assert_eq(engine->promised_count, 0);
	engine = nvme_engine_free(engine);
	other = nvme_store_close(other);
}

Test(tuning, stalled_store_holds_up_no_other, .init = set_up, .fini = tear_down)
{
	const struct nvme_tuning shallow = { .read_depth = 1, .write_depth = 1 };
	/* As deep as the engine: all of its places would be one store's. */
	const struct nvme_tuning deep = { .read_depth = 1000, .write_depth = 1000 };

	stall("threads", &shallow);
	stall("threads", &deep);
	stall("auto", &shallow);
	stall("auto", &deep);
}

Test(tuning, store_alone_has_all_places_and_half_are_kept_for_the_others, .init = set_up,
     .fini = tear_down)
{
	struct nvme_store *others[3];
	struct test_io tests[2];
	struct gate *gate;

	engine = test_engine("threads", 16, 4096);
	gate = gate_new(engine);
	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	gate_shut(gate, store);
	submit_both(tests);
	cr_assert_eq(out_count(1, NVME_READ) + out_count(1, NVME_WRITE), 16, "nobody else is");
	gate_open(gate);
	reap_until(0);
	for (unsigned i = 0; i < ZI_COUNT_OF(others); i++) {
		static const char *const names[] = { "a", "b", "c" };

		others[i] = test_open(names[i], STORE_BYTES);
		cr_assert_eq(nvme_engine_register_store(engine, others[i]), 0);
	}
	gate_shut(gate, store);
	submit_both(tests);
	/* Two for each of the other three. */
	cr_assert_eq(out_count(1, NVME_READ) + out_count(1, NVME_WRITE), 10);
	cr_assert_eq(engine->free_count, 6);
	cr_assert_eq(engine->promised_count, 6);
	gate_open(gate);
	reap_until(0);
	cr_assert_eq(engine->promised_count, 8);
	for (unsigned i = 0; i < ZI_COUNT_OF(others); i++) {
		nvme_engine_unregister_store(engine, others[i]);
		others[i] = nvme_store_close(others[i]);
	}
	cr_assert_eq(engine->promised_count, 0);
}
