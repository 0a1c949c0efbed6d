/* SPDX-License-Identifier: Apache-2.0 */
/* Moves between memory and a store. Floor 4. */
#include "daemon/tier/move.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"

static void move_done(struct nvme_io *io)
{
	struct tier_move *move = container_of(io, struct tier_move, io);

	assert(io->result <= 0);
	move->result = io->result;
	tier_member_end(
		move->member,
		&(struct tier_outcome){
			.is_write = move->is_write,
			.result = move->result,
			.place = { .offset_bytes = move->offset_bytes, .bytes = move->bytes },
		},
		zi_clock_now_ns());
	if (!move->result)
		tier_tally_add(move->tally, move->is_write, move->bytes);
	move->done(move);
}

static uint64_t move_deadline_ns(const struct tier_move *move)
{
	uint64_t timeout_ns = move->member->store->timeout_ns;

	if (move->deadline_ns)
		return move->deadline_ns;
	return timeout_ns ? zi_clock_deadline_ns(timeout_ns) : 0;
}

/**
 * tier_move_submit() - start a move
 * @engine: of the shard
 * @move: filled by the caller but for its results
 *
 * Return: 0 when accepted, and `done` will run exactly once; -EINVAL misaligned or outside the
 * store, and it never will. Context: shard thread.
 */
int tier_move_submit(struct nvme_engine *engine, struct tier_move *move)
{
	int r;

	assert(engine);
	assert(move->member->tier->kind == TIER_NVME);
	assert(move->member->store);
	assert(move->done);

	move->result = 0;
	move->io = (struct nvme_io){
		.direction = move->is_write ? NVME_WRITE : NVME_READ,
		.store = move->member->store,
		.offset_bytes = move->offset_bytes,
		.buffer = move->buffer,
		.bytes = move->bytes,
		.deadline_ns = move_deadline_ns(move),
		.flow = move->flow,
		.is_urgent = move->is_urgent,
		.done = move_done,
	};
	r = nvme_engine_submit(engine, &move->io);
	if (r)
		return err_trace(r);
	tier_member_begin(move->member, zi_clock_now_ns());
	return 0;
}

/* Gives a submitted move up. Its buffer and extent stay taken until `done` ran. */
void tier_move_cancel(struct nvme_engine *engine, struct tier_move *move)
{
	nvme_engine_cancel(engine, &move->io);
}

/* Pushes what was submitted to the kernel. */
void tier_move_kick(struct nvme_engine *engine)
{
	nvme_engine_kick(engine);
}
