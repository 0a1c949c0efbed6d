/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a request that is cancelled or late ends once, with its own error, and never before the
 * last of its blocks is back; its neighbours are whole. Method: depths of one, so that what is
 * queued and what is out is known; blocks that the fault injector holds back; a loop for alarms. */
#include <poll.h>
#include <sys/epoll.h>

#include "common/base/clock.h"
#include "common/base/loop.h"
#include "tests/unit/nvme/over_both.h"

/* Request @index of @blocks_count blocks, each request with a MiB of its own. */
static void submit(struct nvme_engine *engine, struct test_io *test, unsigned index,
                   enum nvme_direction direction, unsigned blocks_count)
{
	test_io_set(test, direction, store, MIB * (index + 1), buffer + MIB * index,
	            (uint64_t)blocks_count * BLOCK_BYTES);
	cr_assert_eq(nvme_engine_submit(engine, &test->io), 0);
}

static bool is_readable(const struct nvme_engine *engine)
{
	struct pollfd event = { .fd = nvme_engine_fd(engine), .events = POLLIN };

	return poll(&event, 1, 0) == 1;
}

/* ---- cancel ---- */

OVER_BOTH(cancel, what_is_queued_never_goes_out)
{
	struct nvme_engine *engine = make(variant, 1, NULL);
	struct test_io first, second;

	test_fill(buffer + MIB, BLOCK_BYTES, 1);
	cr_assert_eq(test_run(engine, NVME_WRITE, store, 2 * MIB, buffer + MIB, BLOCK_BYTES), 0);
	submit(engine, &first, 0, NVME_WRITE, 1);
	nvme_engine_kick(engine); /* It occupies the only place. */
	test_fill(buffer + MIB, BLOCK_BYTES, 2);
	submit(engine, &second, 1, NVME_WRITE, 1);
	nvme_engine_cancel(engine, &second.io);
	nvme_engine_cancel(engine, &second.io); /* Twice is once. */
	cr_assert_eq(second.done_count, 0, "done is never called from cancel");
	cr_assert_eq(nvme_engine_inflight_count(engine), 2);
	nvme_engine_drain(engine);
	cr_assert_eq(first.io.result, 0);
	cr_assert_eq(second.io.result, -ECANCELED);
	cr_assert_eq(second.io.done_bytes, 0);
	cr_assert_eq(second.done_count, 1);
	cr_assert_eq(stats_of(engine).cancel_count, 1);
	cr_assert_eq(stats_of(engine).error_count, 1);
	cr_assert_eq(test_run(engine, NVME_READ, store, 2 * MIB, buffer + MIB, BLOCK_BYTES), 0);
	cr_assert(test_is_filled(buffer + MIB, BLOCK_BYTES, 1), "the second was written");
	engine = nvme_engine_free(engine);
}

OVER_BOTH(cancel, descriptor_tells_of_a_request_that_never_went_out)
{
	struct nvme_engine *engine = make(variant, 1, "seed=1");
	struct test_io test;

	submit(engine, &test, 0, NVME_READ, 4);
	nvme_engine_cancel(engine, &test.io);
	cr_assert(is_readable(engine));
	cr_assert_eq(nvme_engine_reap(engine), 1);
	cr_assert_eq(test.io.result, -ECANCELED);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(cancel, buffer_is_kept_until_the_last_block_is_back)
{
	struct nvme_engine *engine = make(variant, 4, "stall_at=2,stall_ms=200");
	struct test_io test;

	submit(engine, &test, 0, NVME_READ, 4);
	nvme_engine_kick(engine);
	nvme_engine_cancel(engine, &test.io);
	/* Blocks come back until only the stalled one is out: `done` waits for it. */
	while (test.io.inflight_count > 1) {
		struct pollfd event = { .fd = nvme_engine_fd(engine), .events = POLLIN };

		cr_assert_eq(poll(&event, 1, 10000), 1);
		cr_assert_eq(nvme_engine_reap(engine), 0);
		cr_assert_eq(test.done_count, 0);
	}
	nvme_engine_drain(engine);
	cr_assert_eq(test.done_count, 1);
	cr_assert_eq(test.io.result, -ECANCELED);
	cr_assert_geq(test.io.finished_ns - test.io.submitted_ns, 200 * ZI_NS_PER_MS);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(cancel, request_that_is_half_out_ends_with_what_is_out)
{
	struct nvme_engine *engine = make(variant, 2, NULL);
	struct test_io test, other;

	submit(engine, &test, 0, NVME_READ, 16);
	submit(engine, &other, 1, NVME_READ, 16);
	nvme_engine_kick(engine);
	nvme_engine_cancel(engine, &test.io);
	nvme_engine_drain(engine);
	cr_assert_eq(test.done_count, 1);
	cr_assert_eq(test.io.result, -ECANCELED);
	cr_assert_leq(test.io.done_bytes, 2 * BLOCK_BYTES);
	cr_assert_eq(other.io.result, 0);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(cancel, many_in_flight_end_once_each)
{
	struct nvme_engine *engine = make(variant, 64, NULL);
	struct test_io tests[4];

	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 4; i++)
			submit(engine, &tests[i], i, round % 2 ? NVME_READ : NVME_WRITE, 16);
		nvme_engine_kick(engine);
		for (unsigned i = 1; i < 4; i += 2)
			nvme_engine_cancel(engine, &tests[i].io);
		nvme_engine_drain(engine);
		for (unsigned i = 0; i < 4; i++) {
			cr_assert_eq(tests[i].done_count, 1);
			cr_assert_eq(tests[i].io.result, i % 2 ? -ECANCELED : 0);
		}
	}
	engine = nvme_engine_free(engine);
}

OVER_BOTH(cancel, request_that_is_over_keeps_its_result)
{
	struct nvme_engine *engine = make(variant, 4, NULL);
	struct test_io test;

	submit(engine, &test, 0, NVME_READ, 4);
	nvme_engine_drain(engine);
	nvme_engine_cancel(engine, &test.io);
	cr_assert_eq(test.io.result, 0);
	cr_assert_eq(nvme_engine_reap(engine), 0);
	cr_assert_eq(test.done_count, 1);
	cr_assert_eq(stats_of(engine).cancel_count, 0);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(cancel, error_that_came_first_stands)
{
	struct nvme_engine *engine = make(variant, 4, "read_eio_at=1,stall_at=2,stall_ms=50");
	struct test_io test;

	submit(engine, &test, 0, NVME_READ, 2);
	nvme_engine_kick(engine);
	while (!test.io.result) {
		struct pollfd event = { .fd = nvme_engine_fd(engine), .events = POLLIN };

		cr_assert_eq(poll(&event, 1, 10000), 1);
		cr_assert_eq(nvme_engine_reap(engine), 0);
	}
	nvme_engine_cancel(engine, &test.io);
	nvme_engine_drain(engine);
	cr_assert_eq(test.io.result, -EIO);
	cr_assert_eq(test.done_count, 1);
	engine = nvme_engine_free(engine);
}

OVER_BOTH(cancel, short_block_of_a_cancelled_request_is_not_continued)
{
	struct nvme_engine *engine = make(variant, 1, "seed=3,read_short_every=1");
	struct test_io test;

	submit(engine, &test, 0, NVME_READ, 1);
	nvme_engine_kick(engine);
	nvme_engine_cancel(engine, &test.io);
	nvme_engine_drain(engine);
	cr_assert_eq(test.io.result, -ECANCELED);
	cr_assert_lt(test.io.done_bytes, BLOCK_BYTES);
	engine = nvme_engine_free(engine);
}

/* ---- from inside done ---- */

struct canceller {
	struct test_io test;
	struct nvme_engine *engine;
	struct nvme_io *victim;
};

static void cancel_in_done(struct nvme_io *io)
{
	struct canceller *canceller = container_of(io, struct canceller, test.io);

	test_io_done(io);
	nvme_engine_cancel(canceller->engine, io); /* Itself: it is over. */
	nvme_engine_cancel(canceller->engine, canceller->victim);
}

OVER_BOTH(cancel, done_may_cancel_another)
{
	struct nvme_engine *engine = make(variant, 1, NULL);
	struct canceller canceller = { .engine = engine };
	struct test_io victim, last;

	submit(engine, &canceller.test, 0, NVME_WRITE, 1);
	canceller.test.io.done = cancel_in_done;
	canceller.victim = &victim.io;
	submit(engine, &last, 2, NVME_WRITE, 1); /* Takes the place while the first is told. */
	submit(engine, &victim, 1, NVME_WRITE, 1);
	nvme_engine_drain(engine);
	cr_assert_eq(canceller.test.io.result, 0);
	cr_assert_eq(canceller.test.done_count, 1);
	cr_assert_eq(victim.io.result, -ECANCELED);
	cr_assert_eq(victim.done_count, 1);
	cr_assert_eq(last.io.result, 0);
	engine = nvme_engine_free(engine);
}

/* ---- deadlines ---- */

struct watch {
	struct zi_loop *loop;
	struct zi_source source;
	struct zi_timer timer;
	struct nvme_engine *engine;
	unsigned late_count;  /* calls */
	unsigned alarm_count; /* calls */
	const struct nvme_io *late_io;
	bool stops_when_late;
};

static void watch_reap(struct watch *watch)
{
	(void)nvme_engine_reap(watch->engine);
	if (!nvme_engine_inflight_count(watch->engine) ||
	    (watch->stops_when_late && watch->late_count))
		zi_loop_stop(watch->loop);
}

static void watch_ready(struct zi_source *source, uint32_t epoll_events)
{
	(void)epoll_events;
	watch_reap(container_of(source, struct watch, source));
}

static void watch_due(struct zi_timer *timer)
{
	watch_reap(container_of(timer, struct watch, timer));
}

static void watch_alarm(void *arg, uint64_t deadline_ns)
{
	struct watch *watch = arg;

	watch->alarm_count++;
	zi_loop_arm(watch->loop, &watch->timer, deadline_ns, watch_due);
}

static void watch_late(void *arg, const struct nvme_io *io)
{
	struct watch *watch = arg;

	watch->late_count++;
	watch->late_io = io;
}

static void watch_open(struct watch *watch, const struct variant *variant, uint32_t depth,
                       const char *faults)
{
	char spec[200];
	struct nvme_engine_options options = { .backend = spec,
		                               .depth = depth,
		                               .read_block_bytes = BLOCK_BYTES,
		                               .write_block_bytes = BLOCK_BYTES,
		                               .alarm = watch_alarm,
		                               .late = watch_late,
		                               .arg = watch };

	*watch = (struct watch){ 0 };
	(void)snprintf(spec, sizeof(spec), "faulty:over=%s,%s", variant->over, faults);
	cr_assert_eq(zi_loop_new(&watch->loop), 0);
	cr_assert_eq(nvme_engine_new(&options, &test_text, &watch->engine), 0, "%s",
	             test_text.chars);
	cr_assert_eq(zi_loop_add(watch->loop, &watch->source, nvme_engine_fd(watch->engine),
	                         EPOLLIN, watch_ready),
	             0);
}

static void watch_close(struct watch *watch)
{
	zi_loop_disarm(&watch->timer);
	zi_loop_remove(&watch->source);
	watch->loop = zi_loop_free(watch->loop);
	watch->engine = nvme_engine_free(watch->engine);
}

/* As submit(), with @ms to go. */
static void submit_until(struct watch *watch, struct test_io *test, unsigned index,
                         unsigned blocks_count, uint64_t ms)
{
	test_io_set(test, NVME_READ, store, MIB * (index + 1), buffer + MIB * index,
	            (uint64_t)blocks_count * BLOCK_BYTES);
	test->io.deadline_ns = zi_clock_deadline_ns(ms * ZI_NS_PER_MS);
	cr_assert_eq(nvme_engine_submit(watch->engine, &test->io), 0);
}

OVER_BOTH(cancel, stalled_block_is_told_at_once_and_keeps_the_buffer)
{
	struct watch watch;
	struct test_io test;

	watch_open(&watch, variant, 4, "stall_at=1,stall_ms=400");
	watch.stops_when_late = true;
	submit_until(&watch, &test, 0, 4, 20);
	nvme_engine_kick(watch.engine);
	cr_assert_eq(zi_loop_run(watch.loop), 0);
	cr_assert_eq(watch.late_count, 1);
	cr_assert_eq(watch.late_io, &test.io);
	cr_assert(test.io.is_late);
	cr_assert_eq(test.done_count, 0, "the block is not back");
	cr_assert_eq(stats_of(watch.engine).late_count, 1);
	cr_assert_eq(stats_of(watch.engine).held_count, 1);
	watch.stops_when_late = false;
	cr_assert_eq(zi_loop_run(watch.loop), 0);
	cr_assert_eq(test.done_count, 1);
	cr_assert_eq(test.io.result, -ETIMEDOUT);
	cr_assert_eq(watch.late_count, 1, "told once");
	cr_assert_eq(stats_of(watch.engine).held_count, 0);
	cr_assert_eq(stats_of(watch.engine).cancel_count, 0);
	watch_close(&watch);
}

OVER_BOTH(cancel, request_behind_a_stall_ends_at_its_deadline)
{
	struct watch watch;
	struct test_io stalled, waiting;

	watch_open(&watch, variant, 1, "stall_at=1,stall_ms=400");
	watch.stops_when_late = true;
	submit_until(&watch, &stalled, 0, 1, 60000);
	submit_until(&watch, &waiting, 1, 1, 20);
	nvme_engine_kick(watch.engine);
	cr_assert_eq(zi_loop_run(watch.loop), 0);
	cr_assert_eq(waiting.done_count, 1, "nothing of it was in flight");
	cr_assert_eq(waiting.io.result, -ETIMEDOUT);
	cr_assert(waiting.io.is_late);
	cr_assert_eq(stalled.done_count, 0);
	watch.stops_when_late = false;
	cr_assert_eq(zi_loop_run(watch.loop), 0);
	cr_assert_eq(stalled.io.result, 0);
	cr_assert_not(stalled.io.is_late);
	watch_close(&watch);
}

OVER_BOTH(cancel, alarm_is_asked_for_the_earliest_only)
{
	struct watch watch;
	struct test_io tests[4];

	watch_open(&watch, variant, 4, "seed=1");
	submit_until(&watch, &tests[0], 0, 1, 60000);
	cr_assert_eq(watch.alarm_count, 1);
	submit_until(&watch, &tests[1], 1, 1, 70000);
	cr_assert_eq(watch.alarm_count, 1, "a later one changes nothing");
	submit_until(&watch, &tests[2], 2, 1, 50000);
	cr_assert_eq(watch.alarm_count, 2);
	submit_until(&watch, &tests[3], 3, 1, 65000);
	cr_assert_eq(watch.alarm_count, 2);
	nvme_engine_drain(watch.engine);
	cr_assert_eq(watch.alarm_count, 2, "what ends in time asks for none");
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(tests[i].io.result, 0);
	cr_assert_eq(watch.late_count, 0);
	watch_close(&watch);
}

OVER_BOTH(cancel, deadline_that_is_past_at_submit_is_late_at_once)
{
	struct nvme_engine *engine = make(variant, 1, NULL);
	struct test_io test, whole;

	submit(engine, &whole, 0, NVME_READ, 4);
	test_io_set(&test, NVME_READ, store, 2 * MIB, buffer + MIB, MIB);
	test.io.deadline_ns = 1;
	cr_assert_eq(nvme_engine_submit(engine, &test.io), 0);
	nvme_engine_drain(engine);
	cr_assert_eq(test.io.result, -ETIMEDOUT);
	cr_assert_eq(test.done_count, 1);
	cr_assert_eq(whole.io.result, 0);
	engine = nvme_engine_free(engine);
}
