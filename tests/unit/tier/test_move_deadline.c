/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a move has the deadline of its store unless it brings its own, and can be cancelled.
 * Method: a block that the fault injector holds back longer than either.
 */
#include <poll.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "daemon/tier/move.h"
#include "tests/guard/guard.h"
#include "tests/unit/tier/fixture.h"

#define BYTES 65536u

struct stalled {
	char directory[64], path[96];
	struct nvme_store *store;
	struct nvme_engine *engine;
	struct tier tier;
	struct tier_move move;
	void *buffer;
	uint32_t done_count;
	uint64_t alarm_ns;
};

static void on_alarm(void *arg, uint64_t deadline_ns)
{
	((struct stalled *)arg)->alarm_ns = deadline_ns;
}

static void on_done(struct tier_move *move)
{
	container_of(move, struct stalled, move)->done_count++;
}

static void stalled_init(struct stalled *stalled, uint64_t timeout_ns)
{
	struct nvme_engine_options options = { .backend = "faulty:stall_at=1,stall_ms=200",
		                               .alarm = on_alarm,
		                               .arg = stalled };
	struct zi_text text = { "" };

	*stalled = (struct stalled){ .buffer = aligned_alloc(4096, BYTES) };
	cr_assert_not_null(
		mkdtemp(guard_path(stalled->directory, sizeof(stalled->directory), "tier")));
	(void)snprintf(stalled->path, sizeof(stalled->path), "%s/store", stalled->directory);
	cr_assert_eq(nvme_store_open(&(struct nvme_store_options){ .name = "slow",
	                                                           .path = stalled->path,
	                                                           .bytes = 4 * MIB },
	                             &text, &stalled->store),
	             0, "%s", text.chars);
	stalled->store->timeout_ns = timeout_ns;
	cr_assert_eq(nvme_engine_new(&options, &text, &stalled->engine), 0, "%s", text.chars);
	cr_assert_eq(nvme_engine_register_store(stalled->engine, stalled->store), 0);
	cr_assert_eq(tier_init_nvme(&stalled->tier, stalled->store->name, 0), 0);
	cr_assert_eq(tier_member_add_store(&stalled->tier, stalled->store), 0);
	stalled->move = (struct tier_move){ .member = &stalled->tier.members[0],
		                            .offset_bytes = MIB,
		                            .buffer = stalled->buffer,
		                            .bytes = BYTES,
		                            .done = on_done };
}

static void stalled_deinit(struct stalled *stalled)
{
	tier_deinit(&stalled->tier);
	stalled->engine = nvme_engine_free(stalled->engine);
	stalled->store = nvme_store_close(stalled->store);
	free(stalled->buffer);
	cr_assert_eq(unlink(stalled->path), 0);
	cr_assert_eq(rmdir(stalled->directory), 0);
}

/* Submits, reaps when the alarm asks for it, and waits for the end. Its result. */
static int run(struct stalled *stalled)
{
	struct pollfd event = { .fd = -1 };

	cr_assert_eq(tier_move_submit(stalled->engine, &stalled->move), 0);
	tier_move_kick(stalled->engine);
	if (stalled->alarm_ns) {
		(void)poll(&event, 0, zi_clock_poll_ms(stalled->alarm_ns));
		cr_assert_eq(nvme_engine_reap(stalled->engine), 0);
		cr_assert_eq(stalled->done_count, 0, "the block is out");
	}
	nvme_engine_drain(stalled->engine);
	cr_assert_eq(stalled->done_count, 1);
	return stalled->move.result;
}

Test(move_deadline, of_the_store_is_kept)
{
	struct stalled stalled;

	stalled_init(&stalled, 20 * ZI_NS_PER_MS);
	cr_assert_eq(run(&stalled), -ETIMEDOUT);
	cr_assert_eq(stalled.tier.read_bytes, 0);
	stalled_deinit(&stalled);
}

Test(move_deadline, of_the_move_goes_before)
{
	struct stalled stalled;

	stalled_init(&stalled, 3600 * ZI_NS_PER_S);
	stalled.move.deadline_ns = zi_clock_deadline_ns(20 * ZI_NS_PER_MS);
	cr_assert_eq(run(&stalled), -ETIMEDOUT);
	stalled_deinit(&stalled);
}

Test(move_deadline, none_is_for_ever)
{
	struct stalled stalled;

	stalled_init(&stalled, 0);
	cr_assert_eq(run(&stalled), 0);
	cr_assert_eq(stalled.alarm_ns, 0);
	cr_assert_eq(stalled.tier.read_bytes, BYTES);
	stalled_deinit(&stalled);
}

Test(move_deadline, cancelled_move_ends_when_its_block_is_back)
{
	struct stalled stalled;

	stalled_init(&stalled, 0);
	cr_assert_eq(tier_move_submit(stalled.engine, &stalled.move), 0);
	tier_move_kick(stalled.engine);
	tier_move_cancel(stalled.engine, &stalled.move);
	cr_assert_eq(stalled.done_count, 0);
	nvme_engine_drain(stalled.engine);
	cr_assert_eq(stalled.done_count, 1);
	cr_assert_eq(stalled.move.result, -ECANCELED);
	stalled_deinit(&stalled);
}
