/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which block goes out next. Floor 2, owner thread.
 *
 * Stores take turns, block by block, so that a slow one holds up no other: each has a depth of its
 * own in each direction, and what its depth does not let out waits in its own queue. Where all of
 * these together are more than the engine has blocks, half of the blocks are kept, in equal parts,
 * for the stores that do not use them now: one that does not answer leaves the others their part.
 *
 * Of one store's reads those of the flow go first that is furthest behind, and so of its writes:
 * each has a virtual time, which grows by the bytes it is served over its weight, so that flows
 * that go on wanting the store have it in proportion to their weights, whatever their requests'
 * lengths (start-time fair queueing: Goyal, Vin, Cheng, SIGCOMM 1996). Per direction, since depths
 * are: where one flow's writes wait for others' writes, its reads have nothing to do with it.
 *
 * Of one flow reads go before writes: someone waits for them, nobody for a write-back; but not for
 * ever. One flow's reads do not go before another's writes: they take turns.
 */
#include "common/base/assert.h"
#include "common/base/err.h"
#include "nvme/engine.h"

/* 1 MiB: what fio reaches its best with here, and real drives theirs. */
#define SCHEDULE_BLOCK_DEFAULT (1u << 20)
/* So many read blocks in a row while a write waits, then one write: no queue starves. */
#define SCHEDULE_READ_BURST 16u
/* Of virtual time: fine enough that weights are exact to 1 % at the smallest block, coarse enough
 * that 64 bits last for years at 10 GB/s and weight 1. */
#define SCHEDULE_GRAIN_BYTES 64u

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

static uint32_t port_out_count(const struct nvme_port *port)
{
	return port->lanes[NVME_READ].inflight_count + port->lanes[NVME_WRITE].inflight_count;
}

/* Of stores that are not registered nothing is known but that somebody measures or tests them. */
void nvme_schedule_share(struct nvme_engine *engine)
{
	uint32_t stores_count = 0;
	uint32_t share;

	for (uint32_t i = 0; i < NVME_FILES_MAX; i++)
		stores_count += engine->fixed.files[i] != NULL;
	share = stores_count > 1 ? engine->depth / (2 * stores_count) : 0;
	engine->promised_count = 0;
	for (uint32_t i = 0; i < NVME_FILES_MAX; i++) {
		struct nvme_port *port = &engine->ports[i + 1];
		uint32_t depth = port->lanes[NVME_READ].depth + port->lanes[NVME_WRITE].depth;
		uint32_t out_count = port_out_count(port);

		port->kept_count = engine->fixed.files[i] ? ZI_MIN(share, depth) : 0;
		if (out_count < port->kept_count)
			engine->promised_count += port->kept_count - out_count;
	}
}

/* May one more block go out there? */
static bool port_has_place(const struct nvme_engine *engine, const struct nvme_port *port)
{
	return port_out_count(port) < port->kept_count ||
	       engine->free_count > engine->promised_count;
}

void nvme_schedule_return(struct nvme_engine *engine, struct nvme_port *port,
                          struct nvme_block *block)
{
	struct nvme_lane *lane = &port->lanes[block->direction];

	assert(lane->inflight_count > 0);
	zi_list_push_front(&engine->free_blocks, &block->link);
	engine->free_count++;
	lane->inflight_count--;
	if (port_out_count(port) < port->kept_count)
		engine->promised_count++;
}

/* What @bytes, a multiple of ZI_STORE_ALIGN_BYTES, add to the virtual time of a flow. */
static uint64_t schedule_cost(const struct nvme_flow *flow, uint64_t bytes)
{
	return bytes * NVME_FLOW_WEIGHT_MAX / SCHEDULE_GRAIN_BYTES / flow->weight;
}

/* Behind those that are urgent as well. Few are at a time: they are looked through. */
static void schedule_insert(struct zi_list *queue, struct nvme_io *io)
{
	struct zi_list *place = queue->next;

	while (io->is_urgent && place != queue &&
	       container_of(place, struct nvme_io, link)->is_urgent)
		place = place->next;
	/* In front of @place, or behind them all. */
	zi_list_push_back(io->is_urgent ? place : queue, &io->link);
}

/*
 * A flow that comes back is served as of now: what it did not ask for while it was away is nobody's
 * debt. One that was ahead when it ran dry stays so.
 */
void nvme_schedule_queue(struct nvme_engine *engine, struct nvme_io *io)
{
	struct nvme_flow *flow = io->flow ? io->flow : engine->flow;
	struct nvme_stream *stream = &flow->streams[io->port - engine->ports][io->direction];
	struct nvme_lane *lane = &io->port->lanes[io->direction];

	if (!zi_list_is_linked(&stream->streams_link))
		zi_list_push_back(&lane->streams, &stream->streams_link);
	if (zi_list_is_empty(&stream->queue))
		stream->virtual_time = ZI_MAX(stream->virtual_time, lane->virtual_time);
	schedule_insert(&stream->queue, io);
}

/* Finds what is registered of a block: anew each time, as a continued one has moved. */
void nvme_schedule_prepare(struct nvme_engine *engine, struct nvme_block *block)
{
	struct nvme_piece *piece = nvme_fixed_find(&engine->fixed, block->buffer, block->bytes);
	const struct nvme_store *store = block->io->store;

	block->buffer_slot = piece ? piece->slot : NVME_SLOT_NONE;
	if (block->buffer_slot != NVME_SLOT_NONE)
		engine->fixed.slot_blocks_count[block->buffer_slot]++;
	/* Longer ones would be split, which polled requests are not: poll.c. */
	block->is_polled = store->is_polled && block->bytes <= store->poll_block_bytes;
	engine->backend->ops->prepare(engine->backend, block);
}

/* The next block of the first request of a stream. */
static void schedule_send(struct nvme_engine *engine, struct nvme_port *port,
                          struct nvme_stream *stream, enum nvme_direction direction)
{
	struct nvme_lane *lane = &port->lanes[direction];
	struct nvme_io *io = container_of(stream->queue.next, struct nvme_io, link);
	struct nvme_block *block =
		container_of(zi_list_pop_front(&engine->free_blocks), struct nvme_block, link);

	assert(io->direction == direction);
	assert(io->next_bytes < io->bytes);
	engine->free_count--;
	if (port_out_count(port) < port->kept_count)
		engine->promised_count--;
	block->io = io;
	block->direction = direction;
	block->fd = io->store->fd;
	block->is_blocking = io->store->is_blocking;
	block->file_slot = port->file_slot;
	block->buffer = (char *)io->buffer + io->next_bytes;
	block->offset_bytes = io->offset_bytes + io->next_bytes;
	block->bytes = (uint32_t)ZI_MIN(io->bytes - io->next_bytes, lane->block_bytes);
	if (io->store->is_polled)
		block->bytes = ZI_MIN(block->bytes, io->store->poll_block_bytes);
	block->stalled_count = 0;
	io->next_bytes += block->bytes;
	io->inflight_count++;
	lane->inflight_count++;
	lane->virtual_time = ZI_MAX(lane->virtual_time, stream->virtual_time);
	stream->virtual_time += schedule_cost(stream->flow, block->bytes);
	stream->flow->bytes[direction] += block->bytes;
	if (io->next_bytes == io->bytes)
		zi_list_remove(&io->link);
	nvme_schedule_prepare(engine, block);
}

/* The stream of a lane that is furthest behind, if one may go. */
static struct nvme_stream *schedule_choose(struct nvme_lane *lane)
{
	struct nvme_stream *best = NULL;

	if (lane->inflight_count >= lane->depth)
		return NULL;
	zi_list_for_each_safe(link, &lane->streams) {
		struct nvme_stream *stream = container_of(link, struct nvme_stream, streams_link);

		if (zi_list_is_empty(&stream->queue)) /* Its last request may have been given up. */
			zi_list_remove(&stream->streams_link);
		else if (!best || stream->virtual_time < best->virtual_time)
			best = stream;
	}
	return best;
}

/* One block of a port, if it has one that may go. */
static bool schedule_send_one(struct nvme_engine *engine, struct nvme_port *port)
{
	struct nvme_stream *reader, *writer;
	uint32_t burst_count = 1;

	if (!port_has_place(engine, port))
		return false;
	reader = schedule_choose(&port->lanes[NVME_READ]);
	writer = schedule_choose(&port->lanes[NVME_WRITE]);
	if (!reader && !writer)
		return false;
	if (reader && writer && reader->flow == writer->flow)
		burst_count = SCHEDULE_READ_BURST;
	if (!writer || (reader && port->reads_in_row_count < burst_count)) {
		port->reads_in_row_count += writer != NULL;
		schedule_send(engine, port, reader, NVME_READ);
		return true;
	}
	port->reads_in_row_count = 0;
	schedule_send(engine, port, writer, NVME_WRITE);
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
