/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine registers with the kernel: stores and buffers. Floor 2. The owner thread's, and
 * before the first kick that of whoever sets things up. Refusals are counted, never an error: a
 * request finds no slot then and goes out with its plain descriptor or address.
 */
#include <errno.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "nvme/engine.h"

/**
 * nvme_engine_register_store() - gives the kernel the store's descriptor once and for all
 * @store: open until nvme_engine_unregister_store() or nvme_engine_free()
 *
 * A kernel that cannot is no error: the plain descriptor is used.
 * Return: 0, -EEXIST (it is registered), -ENOSPC (NVME_FILES_MAX are).
 */
int nvme_engine_register_store(struct nvme_engine *engine, struct nvme_store *store)
{
	const struct nvme_backend_ops *ops = engine->backend->ops;
	struct nvme_fixed *fixed = &engine->fixed;
	uint32_t slot = 0;

	for (uint32_t i = 0; i < NVME_FILES_MAX; i++)
		if (fixed->files[i] == store)
			return err_origin(-EEXIST);
	while (slot < NVME_FILES_MAX && fixed->files[slot])
		slot++;
	if (slot == NVME_FILES_MAX)
		return err_origin(-ENOSPC);
	fixed->files[slot] = store;
	store->flusher = ops->flush ? engine->backend : NULL;
	fixed->is_file_refused[slot] =
		!ops->register_file || ops->register_file(engine->backend, slot, store->fd);
	engine->ports[slot + 1].file_slot =
		fixed->is_file_refused[slot] ? NVME_SLOT_NONE : (int32_t)slot;
	nvme_port_tune(engine, &engine->ports[slot + 1], &store->tuning);
	engine->ports_end_index = ZI_MAX(engine->ports_end_index, slot + 2);
	nvme_schedule_share(engine);
	return 0;
}

/* Nothing of it waits or is in flight. */
static void engine_close_port(struct nvme_engine *engine, struct nvme_port *port)
{
	for (uint32_t i = 0; i < ZI_COUNT_OF(port->lanes); i++) {
		struct zi_list *streams = &port->lanes[i].streams;
		struct zi_list *link;

		assert(port->lanes[i].inflight_count == 0);
		while ((link = zi_list_pop_front(streams)))
			assert(zi_list_is_empty(
				&container_of(link, struct nvme_stream, streams_link)->queue));
	}
	port->file_slot = NVME_SLOT_NONE;
	while (engine->ports_end_index > NVME_PORT_PLAIN + 1 &&
	       !engine->fixed.files[engine->ports_end_index - 2])
		engine->ports_end_index--;
	engine->ports_turn_index = 0;
	nvme_schedule_share(engine);
}

/* Before the store is closed, unless the engine goes first: its place in memory may be another's
 * later. Nothing of it may be in flight. A store that is not registered is ignored. */
void nvme_engine_unregister_store(struct nvme_engine *engine, struct nvme_store *store)
{
	struct nvme_fixed *fixed = &engine->fixed;

	for (uint32_t i = 0; i < NVME_FILES_MAX; i++) {
		if (fixed->files[i] != store)
			continue;
		/* A foreign thread is refused; the slot's file then lives as long as the ring, and
		 * a store that takes the slot replaces it. */
		if (!fixed->is_file_refused[i])
			(void)engine->backend->ops->register_file(engine->backend, i, -1);
		fixed->files[i] = NULL;
		store->flusher = NULL;
		engine_close_port(engine, &engine->ports[i + 1]);
	}
}

static void engine_register_piece(struct nvme_engine *engine, struct nvme_piece *piece)
{
	const struct nvme_backend_ops *ops = engine->backend->ops;
	int32_t slot;

	piece->slot = NVME_SLOT_NONE;
	if (!ops->register_buffer)
		return;
	slot = nvme_fixed_take_slot(&engine->fixed);
	if (ops->register_buffer(engine->backend, (uint32_t)slot, (void *)piece->base,
	                         piece->bytes)) {
		/* Not enough lockable memory, most of all. I/O works without. */
		nvme_fixed_give_slot(&engine->fixed, slot);
		piece->is_refused = true;
		engine->stats.unregistered_bytes += piece->bytes;
		return;
	}
	piece->slot = slot;
	engine->stats.registered_bytes += piece->bytes;
}

/**
 * nvme_engine_register_buffer() - spares I/O on this memory the pinning of pages at each request
 * @base: mapped, and touched best of all, until nvme_engine_unregister_buffer()
 * @bytes: any; registered in pieces of at most 1 GiB. A block that crosses the seam of two pieces
 *         goes out unregistered
 *
 * Return: 0, refused or not (see the statistics); -EINVAL (empty or beyond the address space),
 * -EEXIST (overlaps what is registered), -ENOSPC (NVME_PIECES_MAX).
 */
int nvme_engine_register_buffer(struct nvme_engine *engine, void *base, uint64_t bytes)
{
	struct nvme_fixed *fixed = &engine->fixed;
	uint64_t pieces_count = bytes / NVME_PIECE_BYTES_MAX + !!(bytes % NVME_PIECE_BYTES_MAX);

	if (!bytes || bytes > UINTPTR_MAX - (uintptr_t)base)
		return err_origin(-EINVAL);
	if (nvme_fixed_overlaps(fixed, base, bytes))
		return err_origin(-EEXIST);
	if (pieces_count > NVME_PIECES_MAX - fixed->pieces_count)
		return err_origin(-ENOSPC);
	for (uint64_t done_bytes = 0; done_bytes < bytes; done_bytes += NVME_PIECE_BYTES_MAX) {
		struct nvme_piece piece = {
			.base = (uintptr_t)base + done_bytes,
			.bytes = ZI_MIN(bytes - done_bytes, NVME_PIECE_BYTES_MAX),
			.region_base = (uintptr_t)base,
		};

		engine_register_piece(engine, &piece);
		nvme_fixed_insert(fixed, &piece);
	}
	return 0;
}

/* @base: as it was registered; what was not is ignored. Nothing may be in flight on it. */
void nvme_engine_unregister_buffer(struct nvme_engine *engine, void *base)
{
	const struct nvme_backend_ops *ops = engine->backend->ops;
	struct nvme_piece piece;

	while (nvme_fixed_remove(&engine->fixed, base, &piece)) {
		if (piece.is_refused)
			engine->stats.unregistered_bytes -= piece.bytes;
		if (piece.slot == NVME_SLOT_NONE)
			continue;
		/* After the owner thread's end the ring refuses, and goes soon itself. */
		(void)ops->register_buffer(engine->backend, (uint32_t)piece.slot, NULL, 0);
		nvme_fixed_give_slot(&engine->fixed, piece.slot);
		engine->stats.registered_bytes -= piece.bytes;
	}
}
