/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that are given up: cancelled, or past their deadline. Floor 2, owner thread.
 *
 * Giving up ends what is queued at once; what the kernel has is asked back and waited for, since
 * nobody else may use a buffer into which a device may still write. No system call per request: the
 * requests of a store wait in a list by deadline, reap looks at the heads, and one timer of the
 * owner's loop (options.alarm) sees to it that reap is called when nothing else happens.
 */
#include <errno.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "nvme/engine.h"

/* Asks the kernel for the blocks of @io. A walk over all blocks, but a rare one. */
static void cancel_blocks(struct nvme_engine *engine, const struct nvme_io *io)
{
	uint32_t left_count = io->inflight_count;

	for (uint32_t i = 0; left_count && i < engine->depth; i++) {
		if (engine->blocks[i].io != io)
			continue;
		left_count--;
		engine->backend->ops->cancel(engine->backend, &engine->blocks[i]);
	}
	assert(left_count == 0);
}

/* @io: active. An error that came first stands. */
static void cancel_give_up(struct nvme_engine *engine, struct nvme_io *io, int error)
{
	assert(io->is_active);
	if (!io->result)
		io->result = error;
	if (io->is_given_up)
		return;
	io->is_given_up = true;
	if (io->next_bytes < io->bytes) {
		zi_list_remove(&io->link); /* It stands in its queue. */
		io->next_bytes = io->bytes;
	}
	if (io->inflight_count) {
		cancel_blocks(engine, io);
		return;
	}
	io->is_active = false;
	zi_list_push_back(&engine->finished, &io->link);
	engine->backend->ops->wake(engine->backend);
}

/**
 * nvme_engine_cancel() - gives a request up
 * @io: was submitted; its memory is still there. One whose last block is back is left as it is
 *
 * Context: owner thread, also from a `done`. `done` of @io runs from nvme_engine_reap().
 */
void nvme_engine_cancel(struct nvme_engine *engine, struct nvme_io *io)
{
	if (!io->is_active || io->is_given_up)
		return;
	engine->stats.cancel_count++;
	cancel_give_up(engine, io, -ECANCELED);
}

/* ---- deadlines ---- */

/* Sorted from its end: the deadlines of a store are mostly a constant after the submit. */
void nvme_deadline_add(struct nvme_engine *engine, struct nvme_io *io)
{
	struct zi_list *head = &io->port->deadlines;
	struct zi_list *after;

	for (after = head->prev; after != head; after = after->prev)
		if (container_of(after, struct nvme_io, deadline_link)->deadline_ns <=
		    io->deadline_ns)
			break;
	zi_list_push_front(after, &io->deadline_link);
	engine->deadlines_count++;
	if (io->deadline_ns >= engine->alarm_ns)
		return;
	engine->alarm_ns = io->deadline_ns;
	if (engine->options.alarm)
		engine->options.alarm(engine->options.arg, io->deadline_ns);
}

/* Without one, or removed before: nothing to do. The alarm stays; it will find nothing. */
void nvme_deadline_remove(struct nvme_engine *engine, struct nvme_io *io)
{
	if (!zi_list_is_linked(&io->deadline_link))
		return;
	assert(engine->deadlines_count > 0);
	engine->deadlines_count--;
	zi_list_remove(&io->deadline_link);
}

static void deadline_miss(struct nvme_engine *engine, struct nvme_io *io)
{
	nvme_deadline_remove(engine, io);
	if (!io->is_active)
		return; /* Its last block came with this very reap. */
	io->is_late = true;
	engine->stats.late_count++;
	engine->stats.held_count += io->inflight_count > 0;
	cancel_give_up(engine, io, -ETIMEDOUT);
	if (engine->options.late)
		engine->options.late(engine->options.arg, io);
}

/* The owner's `late` may cancel, not submit or reap. */
void nvme_deadline_pass(struct nvme_engine *engine, uint64_t now_ns)
{
	uint64_t next_ns = ZI_DEADLINE_NEVER;

	for (uint32_t i = 0; i < engine->ports_end_index; i++) {
		struct zi_list *head = &engine->ports[i].deadlines;

		while (!zi_list_is_empty(head)) {
			struct nvme_io *io =
				container_of(head->next, struct nvme_io, deadline_link);

			if (io->deadline_ns > now_ns) {
				next_ns = ZI_MIN(next_ns, io->deadline_ns);
				break;
			}
			deadline_miss(engine, io);
		}
	}
	if (now_ns < engine->alarm_ns)
		return; /* It will still come. */
	engine->alarm_ns = next_ns;
	if (next_ns != ZI_DEADLINE_NEVER && engine->options.alarm)
		engine->options.alarm(engine->options.arg, next_ns);
}
