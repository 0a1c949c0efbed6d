/* SPDX-License-Identifier: Apache-2.0 */
/* Moves between memory and a store, and the space on it. Floor 4. */
#include "daemon/tier/move.h"

#include "common/base/assert.h"
#include "common/base/err.h"

static void move_done(struct nvme_io *io)
{
	struct tier_move *move = container_of(io, struct tier_move, io);

	assert(io->result <= 0);
	move->result = io->result;
	if (!move->result) {
		if (move->is_write)
			move->tier->write_bytes += move->bytes;
		else
			move->tier->read_bytes += move->bytes;
	}
	move->done(move);
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
	assert(engine);
	assert(move->tier->kind == TIER_NVME);
	assert(move->done);

	move->result = 0;
	move->io = (struct nvme_io){
		.direction = move->is_write ? NVME_WRITE : NVME_READ,
		.store = move->tier->store,
		.offset_bytes = move->offset_bytes,
		.buffer = move->buffer,
		.bytes = move->bytes,
		.done = move_done,
	};
	return err_trace(nvme_engine_submit(engine, &move->io));
}

/* Pushes what was submitted to the kernel. */
void tier_move_kick(struct nvme_engine *engine)
{
	nvme_engine_kick(engine);
}

/**
 * tier_extent_reserve() - a run of a store for one extent
 * @tier: NVMe
 * @bytes: multiple of ZI_STORE_ALIGN_BYTES
 * @ret_extent: written on success
 *
 * Return: 0; TIER_E_FULL. Context: shard thread.
 */
int tier_extent_reserve(struct tier *tier, uint64_t bytes, struct zi_extent *ret_extent)
{
	int r;

	assert(tier->kind == TIER_NVME);
	assert(bytes % ZI_STORE_ALIGN_BYTES == 0);

	r = nvme_space_allocate(tier->space, bytes, ret_extent);
	if (r == NVME_E_FULL)
		return TIER_E_FULL;
	return err_fold(r);
}

/* Gives back and clears @extent; nothing for one without bytes. Context: shard thread. */
void tier_extent_release(struct tier *tier, struct zi_extent *extent)
{
	assert(tier->kind == TIER_NVME);

	if (extent->bytes)
		nvme_space_release(tier->space, extent);
	*extent = (struct zi_extent){ 0 };
}

/* Recovery: @extent is in use. Return: 0; -EUCLEAN it cannot be. */
int tier_extent_claim(struct tier *tier, const struct zi_extent *extent)
{
	assert(tier->kind == TIER_NVME);

	return err_fold(nvme_space_claim(tier->space, extent));
}

/* Return: bytes that are free now, whatever is charged. */
uint64_t tier_extent_free_bytes(const struct tier *tier)
{
	return nvme_space_free_bytes(tier->space);
}

/* Return: 0 when what was written is on the medium. Context: commit thread; blocks. */
int tier_flush(struct tier *tier)
{
	return err_trace(nvme_store_flush(tier->store));
}

/* Return: of the file or device, for people. */
const char *tier_path(const struct tier *tier)
{
	return tier->store->path;
}

/* Return: (16,) bytes, the identity that the catalog knows. */
const uint8_t *tier_uuid(const struct tier *tier)
{
	return tier->store->uuid;
}
