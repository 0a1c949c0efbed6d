/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: requests queue, go out in blocks, at most `depth` at once, and come back whole. Floor
 * 2, owner thread only (the first to kick; making and registering may be another's before that).
 *
 *   submit ──▶ queue of its flow, ──▶ blocks ──▶ backend ──▶ reap: judge each result ──▶ done()
 *              store and direction      schedule.c              cancel.c: what is given up
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

/* What fio reaches its best with here, and real drives theirs. */
#define ENGINE_DEPTH_DEFAULT 32u
/* Results in a row that move nothing (-EAGAIN, -EINTR, less than a sector) before we give up. */
#define ENGINE_STALLED_MAX 16u

/* ---- life ---- */

static int engine_check_blocks(uint32_t read_bytes, uint32_t write_bytes, struct zi_text *text)
{
	const uint32_t block_bytes[2] = { read_bytes, write_bytes };

	for (int i = 0; i < 2; i++)
		if (block_bytes[i] % ZI_STORE_ALIGN_BYTES || block_bytes[i] > NVME_BLOCK_BYTES_MAX)
			return err_origin(zi_text_error(
				text, -EINVAL,
				"I/O block of %u bytes is not a multiple of %u up to %u",
				block_bytes[i], ZI_STORE_ALIGN_BYTES, NVME_BLOCK_BYTES_MAX));
	return 0;
}

static int engine_check_options(const struct nvme_engine_options *options, struct zi_text *text)
{
	if (options->depth > NVME_DEPTH_MAX)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "I/O depth %u is more than the limit of %u",
		                                options->depth, NVME_DEPTH_MAX));
	return err_trace(
		engine_check_blocks(options->read_block_bytes, options->write_block_bytes, text));
}

static void engine_init_ports(struct nvme_engine *engine)
{
	static const struct nvme_tuning none;

	for (uint32_t i = 0; i < NVME_PORTS_COUNT; i++) {
		struct nvme_port *port = &engine->ports[i];

		zi_list_init(&port->lanes[NVME_READ].streams);
		zi_list_init(&port->lanes[NVME_WRITE].streams);
		zi_list_init(&port->deadlines);
		port->file_slot = NVME_SLOT_NONE;
	}
	nvme_port_tune(engine, &engine->ports[NVME_PORT_PLAIN], &none);
	engine->ports_end_index = NVME_PORT_PLAIN + 1;
}

/**
 * nvme_engine_new() - an engine without stores and buffers
 * @options: copied; backend NULL is "auto"; depth in blocks; block sizes in bytes
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
		.has_poll = options->has_poll,
	};
	int r;

	r = engine_check_options(options, text);
	if (r)
		return err_trace(r);
	engine = calloc(1, sizeof(*engine));
	if (!engine)
		return err_origin(-ENOMEM);
	engine->options = *options;
	engine->options.backend = NULL; /* The caller's memory. */
	engine->depth = backend_options.depth;
	engine->alarm_ns = ZI_DEADLINE_NEVER;
	engine_init_ports(engine);
	zi_list_init(&engine->free_blocks);
	zi_list_init(&engine->finished);
	nvme_fixed_init(&engine->fixed);
	r = nvme_flow_new(NVME_FLOW_WEIGHT_DEFAULT, &engine->flow);
	if (r)
		return err_trace(r);
	engine->blocks = calloc(engine->depth, sizeof(*engine->blocks));
	engine->reaped = calloc(engine->depth, sizeof(struct nvme_block *));
	if (!engine->blocks || !engine->reaped)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < engine->depth; i++) {
		engine->blocks[i].index = i;
		zi_list_push_back(&engine->free_blocks, &engine->blocks[i].link);
	}
	engine->free_count = engine->depth;
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
	for (uint32_t i = 0; i < NVME_FILES_MAX; i++)
		if (engine->fixed.files[i])
			engine->fixed.files[i]->flusher = NULL;
	engine->backend = nvme_backend_free(engine->backend);
	engine->flow = nvme_flow_free(engine->flow);
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

/* See nvme.h. */
bool nvme_engine_can_poll(const struct nvme_engine *engine)
{
	const struct nvme_backend_ops *ops = engine->backend->ops;

	return ops->can_poll && ops->can_poll(engine->backend);
}

/* Stays the engine's. Level-triggered: readable until nvme_engine_reap() has been called. */
int nvme_engine_fd(const struct nvme_engine *engine)
{
	return engine->backend->ops->fd(engine->backend);
}

/* The port of @store, registered or not. */
static struct nvme_port *engine_port(struct nvme_engine *engine, const struct nvme_store *store)
{
	int32_t slot = nvme_fixed_file(&engine->fixed, store);

	return &engine->ports[slot == NVME_SLOT_NONE ? NVME_PORT_PLAIN : (uint32_t)slot + 1];
}

/**
 * nvme_engine_tune() - another block size and depth for a store
 * @store: registered. Its `tuning` is set
 * @tuning: 0: as the engine's options say
 *
 * Return: 0; -EINVAL not registered, or a block size that cannot be. Context: owner thread; before
 * the first kick that of whoever sets things up.
 */
int nvme_engine_tune(struct nvme_engine *engine, struct nvme_store *store,
                     const struct nvme_tuning *tuning)
{
	struct nvme_port *port = engine_port(engine, store);
	int r;

	if (port == &engine->ports[NVME_PORT_PLAIN])
		return err_origin(-EINVAL);
	r = engine_check_blocks(tuning->read_block_bytes, tuning->write_block_bytes, NULL);
	if (r)
		return err_trace(r);
	store->tuning = *tuning;
	nvme_port_tune(engine, port, tuning);
	nvme_schedule_share(engine);
	return 0;
}

/* ---- out ---- */

/**
 * nvme_engine_submit() - queues a request; nvme_engine_kick() sends it
 * @io: direction, store, offset_bytes, buffer, bytes and done are set, deadline_ns and flow if
 *      wanted; the engine's until done ran
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
	io->is_late = false;
	io->is_given_up = false;
	io->is_active = true;
	io->next_bytes = 0;
	io->done_bytes = 0;
	io->inflight_count = 0;
	io->submitted_ns = zi_clock_now_ns();
	io->finished_ns = 0;
	io->port = engine_port(engine, io->store);
	nvme_schedule_queue(engine, io);
	zi_list_init(&io->deadline_link);
	if (io->deadline_ns)
		nvme_deadline_add(engine, io);
	engine->inflight_count++;
	return 0;
}

/* After one or more submits: one system call starts all that depths allow. */
void nvme_engine_kick(struct nvme_engine *engine)
{
	nvme_schedule_fill(engine);
	engine->backend->ops->submit(engine->backend);
}

/* ---- back ---- */

/* A device that refuses a polled request gets it anew as a plain one, and all later ones so. */
static void engine_stop_polling(struct nvme_engine *engine, struct nvme_store *store)
{
	if (!store->is_polled)
		return; /* Told by another block. */
	store->is_polled = false;
	if (engine->options.unpolled)
		engine->options.unpolled(engine->options.arg, store);
}

/* The errno that @block's result comes to, or 0 with the bytes that count. */
static int engine_judge(struct nvme_engine *engine, struct nvme_block *block, uint32_t *ret_bytes)
{
	uint32_t bytes;

	if (block->result == -EAGAIN || block->result == -EINTR) {
		*ret_bytes = 0;
		return ++block->stalled_count > ENGINE_STALLED_MAX ? err_origin(block->result) : 0;
	}
	if (block->result == -EOPNOTSUPP && block->is_polled) {
		engine_stop_polling(engine, block->io->store);
		*ret_bytes = 0;
		return 0;
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

/* One block came back: its request goes on, or is over. */
static void engine_block_done(struct nvme_engine *engine, struct nvme_block *block)
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
		nvme_schedule_prepare(engine, block);
		return;
	}
	block->io = NULL;
	nvme_schedule_return(engine, io->port, block);
	io->inflight_count--;
	if (io->result && io->next_bytes < io->bytes) {
		zi_list_remove(&io->link); /* It still stood in the queue. */
		io->next_bytes = io->bytes;
	}
	if (io->inflight_count || io->next_bytes < io->bytes)
		return;
	io->is_active = false;
	zi_list_push_back(&engine->finished, &io->link);
}

/* Counts a request that is over, and tells its owner, who may submit, or free it. */
static void engine_io_done(struct nvme_engine *engine, struct nvme_io *io, uint64_t now_ns)
{
	struct nvme_engine_stats *stats = &engine->stats;

	assert(!io->is_active);
	assert(io->result || io->done_bytes == io->bytes);
	assert(engine->inflight_count > 0);
	nvme_deadline_remove(engine, io);
	engine->inflight_count--;
	io->finished_ns = now_ns;
	stats->held_count -= io->is_late;
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
	struct zi_list *link;
	uint64_t now_ns = 0;
	uint32_t blocks_count;
	uint32_t count = 0;

	assert(!engine->is_reaping);
	engine->is_reaping = true;
	blocks_count = engine->backend->ops->reap(engine->backend, engine->reaped, engine->depth);
	for (uint32_t i = 0; i < blocks_count; i++)
		engine_block_done(engine, engine->reaped[i]);
	/* The disk first, then the owners: what they do takes its time. */
	nvme_engine_kick(engine);
	/* One reading for all that came together. */
	if (engine->deadlines_count || !zi_list_is_empty(&engine->finished))
		now_ns = zi_clock_now_ns();
	if (engine->deadlines_count)
		nvme_deadline_pass(engine, now_ns);
	/* Also what a `done` cancels. */
	while ((link = zi_list_pop_front(&engine->finished))) {
		engine_io_done(engine, container_of(link, struct nvme_io, link), now_ns);
		count++;
	}
	engine->is_reaping = false;
	if (count)
		nvme_engine_kick(engine); /* What the owners submitted. */
	return count;
}

/* Return: as nvme_engine_reap(); 0 only when nothing is in flight. Blocks, past deadlines as well;
 * owner thread. */
uint32_t nvme_engine_wait(struct nvme_engine *engine)
{
	uint32_t count = 0;

	while (!count && engine->inflight_count) {
		nvme_schedule_fill(engine);
		if (zi_list_is_empty(&engine->finished)) /* Else there is something to tell. */
			engine->backend->ops->wait(engine->backend); /* Starts them, too. */
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
