/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: requests queue, go out in blocks, at most `depth` at once, and come back whole. Floor
 * 2, owner thread only (the first to kick; making and registering may be another's before that).
 *
 *   submit ──▶ queue of reads ─┐  reads first: someone waits for them, nobody for a write-back
 *   submit ──▶ queue of writes ┴▶ blocks ──▶ backend ──▶ reap: judge each result ──▶ done()
 *
 * Here every result is judged, for all backends alike: a count that is short is continued, one that
 * cannot be is an error, and a request succeeds only when each of its bytes was counted. After an
 * error nothing more of the request goes out, and it ends when what is in flight has come back.
 * Nothing is allocated after nvme_engine_new().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "nvme/engine.h"

/* 1 MiB blocks, 32 deep: what fio reaches its best with here, and real drives theirs. */
#define ENGINE_DEPTH_DEFAULT 32u
#define ENGINE_BLOCK_DEFAULT (1u << 20)
#define ENGINE_DEPTH_MAX     4096u
#define ENGINE_BLOCK_MAX     (64u << 20)
/* So many read blocks in a row while a write waits, then one write: no queue starves. */
#define ENGINE_READ_BURST 16u
/* Results in a row that move nothing (-EAGAIN, -EINTR, less than a sector) before we give up. */
#define ENGINE_STALLED_MAX 16u

/* ---- life ---- */

static int engine_check_options(const struct nvme_engine_options *options, struct zi_text *text)
{
	const uint32_t block_bytes[2] = { options->read_block_bytes, options->write_block_bytes };

	if (options->depth > ENGINE_DEPTH_MAX)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "I/O depth %u is more than the limit of %u",
		                                options->depth, ENGINE_DEPTH_MAX));
	for (int i = 0; i < 2; i++)
		if (block_bytes[i] % ZI_STORE_ALIGN_BYTES || block_bytes[i] > ENGINE_BLOCK_MAX)
			return err_origin(zi_text_error(
				text, -EINVAL,
				"I/O block of %u bytes is not a multiple of %u up to %u",
				block_bytes[i], ZI_STORE_ALIGN_BYTES, ENGINE_BLOCK_MAX));
	return 0;
}

/**
 * nvme_engine_new() - an engine without stores and buffers
 * @options: backend NULL is "auto"; depth in blocks; block sizes in bytes
 * @text: a sentence when it fails, may be NULL
 * @ret_engine: the caller's
 *
 * Return: 0; -EINVAL (options), -ENOMEM, or what io_uring or thread creation says.
 * Context: any thread; the first to kick owns the engine from then on.
 */
int nvme_engine_new(const struct nvme_engine_options *options, struct zi_text *text,
                    struct nvme_engine **ret_engine)
{
	_cleanup_(nvme_engine_freep) struct nvme_engine *engine = NULL;
	struct nvme_backend_options backend_options = {
		.depth = options->depth ? options->depth : ENGINE_DEPTH_DEFAULT,
		.buffer_slots_count = NVME_PIECES_MAX,
		.file_slots_count = NVME_FILES_MAX,
	};
	int r;

	r = engine_check_options(options, text);
	if (r)
		return err_trace(r);
	engine = calloc(1, sizeof(*engine));
	if (!engine)
		return err_origin(-ENOMEM);
	engine->depth = backend_options.depth;
	engine->block_bytes[NVME_READ] =
		options->read_block_bytes ? options->read_block_bytes : ENGINE_BLOCK_DEFAULT;
	engine->block_bytes[NVME_WRITE] =
		options->write_block_bytes ? options->write_block_bytes : ENGINE_BLOCK_DEFAULT;
	zi_list_init(&engine->queues[NVME_READ]);
	zi_list_init(&engine->queues[NVME_WRITE]);
	zi_list_init(&engine->free_blocks);
	nvme_fixed_init(&engine->fixed);
	engine->blocks = calloc(engine->depth, sizeof(*engine->blocks));
	engine->reaped = calloc(engine->depth, sizeof(struct nvme_block *));
	if (!engine->blocks || !engine->reaped)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < engine->depth; i++) {
		engine->blocks[i].index = i;
		zi_list_push_back(&engine->free_blocks, &engine->blocks[i].link);
	}
	r = nvme_backend_new(options->backend ? options->backend : "auto", &backend_options, text,
	                     &engine->backend);
	if (r)
		return err_trace(r);
	*ret_engine = zi_steal(engine);
	return 0;
}

/* Asserts that nothing is in flight. Owner thread, or a thread without an engine of its own. */
struct nvme_engine *nvme_engine_free(struct nvme_engine *engine)
{
	if (!engine)
		return NULL;
	assert(!engine->is_reaping);
	assert(engine->inflight_count == 0);
	engine->backend = nvme_backend_free(engine->backend);
	free(engine->reaped);
	free(engine->blocks);
	free(engine);
	return NULL;
}

/* "io_uring", "threads", or what faulty.c makes of them; lives as long as the engine. */
const char *nvme_engine_backend(const struct nvme_engine *engine)
{
	return engine->backend->ops->name(engine->backend);
}

/* Stays the engine's. Level-triggered: readable until nvme_engine_reap() has been called. */
int nvme_engine_fd(const struct nvme_engine *engine)
{
	return engine->backend->ops->fd(engine->backend);
}

/* ---- out ---- */

/**
 * nvme_engine_submit() - queues a request; nvme_engine_kick() sends it
 * @io: direction, store, offset_bytes, buffer, bytes and done are set; the engine's until done ran
 *
 * Return: 0; -EINVAL when misaligned, empty, on the superblock or beyond the end: nothing happens
 * then, done is not called.
 */
int nvme_engine_submit(struct nvme_engine *engine, struct nvme_io *io)
{
	uint64_t end_bytes;

	assert(io->done);
	assert(io->direction == NVME_READ || io->direction == NVME_WRITE);
	if (io->offset_bytes % ZI_STORE_ALIGN_BYTES || io->bytes % ZI_STORE_ALIGN_BYTES ||
	    (uintptr_t)io->buffer % ZI_STORE_ALIGN_BYTES)
		return err_origin(-EINVAL);
	if (!io->buffer || !io->bytes || io->offset_bytes < NVME_SUPERBLOCK_BYTES)
		return err_origin(-EINVAL);
	if (!zi_checked_add(io->offset_bytes, io->bytes, &end_bytes) ||
	    end_bytes > io->store->bytes)
		return err_origin(-EINVAL);
	io->result = 0;
	io->next_bytes = 0;
	io->done_bytes = 0;
	io->inflight_count = 0;
	io->submitted_ns = zi_clock_now_ns();
	io->finished_ns = 0;
	zi_list_push_back(&engine->queues[io->direction], &io->link);
	engine->inflight_count++;
	return 0;
}

/* Finds what is registered of a block: anew each time, as a continued one has moved. */
static void engine_prepare(struct nvme_engine *engine, struct nvme_block *block)
{
	struct nvme_piece *piece = nvme_fixed_find(&engine->fixed, block->buffer, block->bytes);

	block->buffer_slot = piece ? piece->slot : NVME_SLOT_NONE;
	if (block->buffer_slot != NVME_SLOT_NONE)
		engine->fixed.slot_blocks_count[block->buffer_slot]++;
	engine->backend->ops->prepare(engine->backend, block);
}

/* The next block of the first request of a queue. */
static void engine_send(struct nvme_engine *engine, enum nvme_direction direction)
{
	struct nvme_io *io = container_of(engine->queues[direction].next, struct nvme_io, link);
	struct nvme_block *block =
		container_of(zi_list_pop_front(&engine->free_blocks), struct nvme_block, link);

	assert(io->direction == direction);
	assert(io->next_bytes < io->bytes);
	block->io = io;
	block->direction = direction;
	block->fd = io->store->fd;
	block->file_slot = nvme_fixed_file(&engine->fixed, io->store);
	block->buffer = (char *)io->buffer + io->next_bytes;
	block->offset_bytes = io->offset_bytes + io->next_bytes;
	block->bytes = (uint32_t)ZI_MIN(io->bytes - io->next_bytes, engine->block_bytes[direction]);
	block->stalled_count = 0;
	io->next_bytes += block->bytes;
	io->inflight_count++;
	if (io->next_bytes == io->bytes)
		zi_list_remove(&io->link);
	engine_prepare(engine, block);
}

static enum nvme_direction engine_choose(struct nvme_engine *engine)
{
	bool has_reads = !zi_list_is_empty(&engine->queues[NVME_READ]);
	bool has_writes = !zi_list_is_empty(&engine->queues[NVME_WRITE]);

	if (!has_writes || (has_reads && engine->reads_in_row_count < ENGINE_READ_BURST)) {
		engine->reads_in_row_count += has_writes;
		return NVME_READ;
	}
	engine->reads_in_row_count = 0;
	return NVME_WRITE;
}

/* Hands the backend what `depth` allows, without starting it. */
static void engine_fill(struct nvme_engine *engine)
{
	while (!zi_list_is_empty(&engine->free_blocks)) {
		if (zi_list_is_empty(&engine->queues[NVME_READ]) &&
		    zi_list_is_empty(&engine->queues[NVME_WRITE]))
			break;
		engine_send(engine, engine_choose(engine));
	}
}

/* After one or more submits: one system call starts all that `depth` allows. */
void nvme_engine_kick(struct nvme_engine *engine)
{
	engine_fill(engine);
	engine->backend->ops->submit(engine->backend);
}

/* ---- back ---- */

/* The errno that @block's result comes to, or 0 with the bytes that count. */
static int engine_judge(struct nvme_engine *engine, struct nvme_block *block, uint32_t *ret_bytes)
{
	uint32_t bytes;

	if (block->result == -EAGAIN || block->result == -EINTR) {
		*ret_bytes = 0;
		return ++block->stalled_count > ENGINE_STALLED_MAX ? err_origin(block->result) : 0;
	}
	if (block->result < 0)
		return err_origin(block->result);
	/* More than was asked for, or the end of a store whose size was checked. */
	if ((uint32_t)block->result > block->bytes || block->result == 0)
		return err_origin(-EIO);
	bytes = (uint32_t)block->result;
	if (bytes < block->bytes) {
		engine->stats.short_count++;
		/* The rest must be aligned: what lies past the last whole sector is repeated. */
		bytes &= ~(block->io->store->align_bytes - 1);
	}
	if (bytes)
		block->stalled_count = 0;
	else if (++block->stalled_count > ENGINE_STALLED_MAX)
		return err_origin(-EIO);
	*ret_bytes = bytes;
	return 0;
}

/* One block came back. True when its request is over. */
static bool engine_block_done(struct nvme_engine *engine, struct nvme_block *block)
{
	struct nvme_io *io = block->io;
	uint32_t bytes = 0;
	int r;

	assert(io->inflight_count > 0);
	if (block->buffer_slot != NVME_SLOT_NONE)
		engine->fixed.slot_blocks_count[block->buffer_slot]--;
	r = engine_judge(engine, block, &bytes);
	if (r && !io->result)
		io->result = r;
	io->done_bytes += bytes;
	block->buffer += bytes;
	block->offset_bytes += bytes;
	block->bytes -= bytes;
	if (!io->result && block->bytes) {
		engine_prepare(engine, block);
		return false;
	}
	block->io = NULL;
	zi_list_push_front(&engine->free_blocks, &block->link);
	io->inflight_count--;
	if (io->result && io->next_bytes < io->bytes) {
		zi_list_remove(&io->link); /* It still stood in the queue. */
		io->next_bytes = io->bytes;
	}
	return io->inflight_count == 0 && io->next_bytes == io->bytes;
}

/* Counts a request that is over, and tells its owner, who may submit, or free it. */
static void engine_io_done(struct nvme_engine *engine, struct nvme_io *io)
{
	struct nvme_engine_stats *stats = &engine->stats;

	assert(io->result || io->done_bytes == io->bytes);
	assert(engine->inflight_count > 0);
	engine->inflight_count--;
	io->finished_ns = zi_clock_now_ns();
	if (io->result)
		stats->error_count++;
	if (io->direction == NVME_READ) {
		stats->read_count++;
		stats->read_bytes += io->done_bytes;
	} else {
		stats->write_count++;
		stats->write_bytes += io->done_bytes;
	}
	io->done(io);
}

/**
 * nvme_engine_reap() - completes what has finished, then kicks. Never blocks
 *
 * Return: the number of requests completed.
 * Context: owner thread; not from a `done`.
 */
uint32_t nvme_engine_reap(struct nvme_engine *engine)
{
	struct zi_list finished;
	struct zi_list *link;
	uint32_t blocks_count;
	uint32_t count = 0;

	assert(!engine->is_reaping);
	engine->is_reaping = true;
	zi_list_init(&finished);
	blocks_count = engine->backend->ops->reap(engine->backend, engine->reaped, engine->depth);
	for (uint32_t i = 0; i < blocks_count; i++) {
		struct nvme_io *io = engine->reaped[i]->io;

		if (engine_block_done(engine, engine->reaped[i]))
			zi_list_push_back(&finished, &io->link);
	}
	/* The disk first, then the owners: what they do takes its time. */
	nvme_engine_kick(engine);
	while ((link = zi_list_pop_front(&finished))) {
		engine_io_done(engine, container_of(link, struct nvme_io, link));
		count++;
	}
	engine->is_reaping = false;
	if (count)
		nvme_engine_kick(engine); /* What the owners submitted. */
	return count;
}

/* Return: as nvme_engine_reap(); 0 only when nothing is in flight. Blocks; owner thread. */
uint32_t nvme_engine_wait(struct nvme_engine *engine)
{
	uint32_t count = 0;

	while (!count && engine->inflight_count) {
		engine_fill(engine);
		engine->backend->ops->wait(engine->backend); /* Starts them, too: one call. */
		count = nvme_engine_reap(engine);
	}
	return count;
}

/* Until nothing is in flight, whatever `done` submits meanwhile. Blocks; owner thread. */
void nvme_engine_drain(struct nvme_engine *engine)
{
	while (engine->inflight_count)
		(void)nvme_engine_wait(engine); /* The count is of no use here. */
}

/* Requests accepted whose `done` has not run. */
uint32_t nvme_engine_inflight_count(const struct nvme_engine *engine)
{
	return engine->inflight_count;
}

/* Counted since nvme_engine_new(). Owner thread. */
void nvme_engine_stats(const struct nvme_engine *engine, struct nvme_engine_stats *ret_stats)
{
	*ret_stats = engine->stats;
}
