/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which block goes out next. Floor 2, owner thread.
 *
 * Stores take turns, block by block, so that a slow one holds up no other: each has a depth of its
 * own in each direction, and what its depth does not let out waits in its own queue. Of one store
 * reads go first: someone waits for them, nobody for a write-back; but not for ever.
 */
#include "common/base/assert.h"
#include "common/base/err.h"
#include "nvme/engine.h"

/* 1 MiB: what fio reaches its best with here, and real drives theirs. */
#define SCHEDULE_BLOCK_DEFAULT (1u << 20)
/* So many read blocks in a row while a write waits, then one write: no queue starves. */
#define SCHEDULE_READ_BURST 16u

static uint32_t schedule_block_bytes(uint32_t tuned_bytes, uint32_t option_bytes)
{
	if (tuned_bytes)
		return tuned_bytes;
	return option_bytes ? option_bytes : SCHEDULE_BLOCK_DEFAULT;
}

static uint32_t schedule_depth(const struct nvme_engine *engine, uint32_t depth)
{
	return depth ? ZI_MIN(depth, engine->depth) : engine->depth;
}

/* @tuning: checked. What is queued is cut by it from its next block on. */
void nvme_port_tune(const struct nvme_engine *engine, struct nvme_port *port,
                    const struct nvme_tuning *tuning)
{
	const struct nvme_engine_options *options = &engine->options;
	struct nvme_lane *reads = &port->lanes[NVME_READ];
	struct nvme_lane *writes = &port->lanes[NVME_WRITE];

	reads->block_bytes =
		schedule_block_bytes(tuning->read_block_bytes, options->read_block_bytes);
	writes->block_bytes =
		schedule_block_bytes(tuning->write_block_bytes, options->write_block_bytes);
	reads->depth = schedule_depth(engine, tuning->read_depth);
	writes->depth = schedule_depth(engine, tuning->write_depth);
}

/* Finds what is registered of a block: anew each time, as a continued one has moved. */
void nvme_schedule_prepare(struct nvme_engine *engine, struct nvme_block *block)
{
	struct nvme_piece *piece = nvme_fixed_find(&engine->fixed, block->buffer, block->bytes);

	block->buffer_slot = piece ? piece->slot : NVME_SLOT_NONE;
	if (block->buffer_slot != NVME_SLOT_NONE)
		engine->fixed.slot_blocks_count[block->buffer_slot]++;
	engine->backend->ops->prepare(engine->backend, block);
}

/* The next block of the first request of a lane. */
static void schedule_send(struct nvme_engine *engine, struct nvme_port *port,
                          enum nvme_direction direction)
{
	struct nvme_lane *lane = &port->lanes[direction];
	struct nvme_io *io = container_of(lane->queue.next, struct nvme_io, link);
	struct nvme_block *block =
		container_of(zi_list_pop_front(&engine->free_blocks), struct nvme_block, link);

	assert(io->direction == direction);
	assert(io->next_bytes < io->bytes);
	block->io = io;
	block->direction = direction;
	block->fd = io->store->fd;
	block->file_slot = port->file_slot;
	block->buffer = (char *)io->buffer + io->next_bytes;
	block->offset_bytes = io->offset_bytes + io->next_bytes;
	block->bytes = (uint32_t)ZI_MIN(io->bytes - io->next_bytes, lane->block_bytes);
	block->stalled_count = 0;
	io->next_bytes += block->bytes;
	io->inflight_count++;
	lane->inflight_count++;
	if (io->next_bytes == io->bytes)
		zi_list_remove(&io->link);
	nvme_schedule_prepare(engine, block);
}

static bool schedule_may_send(const struct nvme_lane *lane)
{
	return lane->inflight_count < lane->depth && !zi_list_is_empty(&lane->queue);
}

/* One block of a port, if it has one that may go. */
static bool schedule_send_one(struct nvme_engine *engine, struct nvme_port *port)
{
	bool may_read = schedule_may_send(&port->lanes[NVME_READ]);
	bool may_write = schedule_may_send(&port->lanes[NVME_WRITE]);

	if (!may_read && !may_write)
		return false;
	if (!may_write || (may_read && port->reads_in_row_count < SCHEDULE_READ_BURST)) {
		port->reads_in_row_count += may_write;
		schedule_send(engine, port, NVME_READ);
		return true;
	}
	port->reads_in_row_count = 0;
	schedule_send(engine, port, NVME_WRITE);
	return true;
}

/* Until there is no free block, or a whole round has found nothing to send. */
void nvme_schedule_fill(struct nvme_engine *engine)
{
	uint32_t idle_count = 0;

	while (idle_count < engine->ports_end_index && !zi_list_is_empty(&engine->free_blocks)) {
		struct nvme_port *port = &engine->ports[engine->ports_turn_index];

		engine->ports_turn_index = (engine->ports_turn_index + 1) % engine->ports_end_index;
		idle_count = schedule_send_one(engine, port) ? 0 : idle_count + 1;
	}
}
