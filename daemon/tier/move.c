/* SPDX-License-Identifier: Apache-2.0 */
/* Moves between memory and a store, and the space on it. Floor 4. */
#include "daemon/tier/move.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"

static void count_bytes(const struct tier_move *move)
{
	struct tier_member *member = move->member;

	if (move->is_write) {
		member->write_bytes += move->bytes;
		member->tier->write_bytes += move->bytes;
	} else {
		member->read_bytes += move->bytes;
		member->tier->read_bytes += move->bytes;
	}
}

static void move_done(struct nvme_io *io)
{
	struct tier_move *move = container_of(io, struct tier_move, io);

	assert(io->result <= 0);
	move->result = io->result;
	if (!move->result)
		count_bytes(move);
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
	assert(engine);
	assert(move->member->tier->kind == TIER_NVME);
	assert(move->done);

	move->result = 0;
	move->io = (struct nvme_io){
		.direction = move->is_write ? NVME_WRITE : NVME_READ,
		.store = move->member->store,
		.offset_bytes = move->offset_bytes,
		.buffer = move->buffer,
		.bytes = move->bytes,
		.deadline_ns = move_deadline_ns(move),
		.done = move_done,
	};
	return err_trace(nvme_engine_submit(engine, &move->io));
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

/**
 * tier_extent_reserve() - a run of one member for one extent
 * @tier: NVMe
 * @bytes: multiple of ZI_STORE_ALIGN_BYTES
 * @ret_extent: written on success
 *
 * Return: 0; TIER_E_FULL. Context: shard thread.
 */
int tier_extent_reserve(struct tier *tier, uint64_t bytes, struct tier_extent *ret_extent)
{
	struct tier_member *member = &tier->members[0];
	struct zi_extent run;
	int r;

	assert(tier->kind == TIER_NVME);
	assert(bytes % ZI_STORE_ALIGN_BYTES == 0);

	r = nvme_space_allocate(member->space, bytes, &run);
	if (r == NVME_E_FULL)
		return TIER_E_FULL;
	if (r)
		return err_fold(r);
	*ret_extent = (struct tier_extent){ .member = member,
		                            .offset_bytes = run.offset_bytes,
		                            .bytes = run.bytes };
	return 0;
}

static struct zi_extent run_of(const struct tier_extent *extent)
{
	return (struct zi_extent){ .offset_bytes = extent->offset_bytes, .bytes = extent->bytes };
}

/* Gives back and clears @extent; nothing for one without bytes. Context: shard thread. */
void tier_extent_release(struct tier_extent *extent)
{
	struct zi_extent run = run_of(extent);

	if (extent->bytes)
		nvme_space_release(extent->member->space, &run);
	*extent = (struct tier_extent){ 0 };
}

/* Recovery: @extent is in use. Return: 0; -EUCLEAN it cannot be. */
int tier_extent_claim(const struct tier_extent *extent)
{
	struct zi_extent run = run_of(extent);

	assert(extent->member);

	return err_fold(nvme_space_claim(extent->member->space, &run));
}

/* Return: bytes that are free now, whatever is charged. */
uint64_t tier_extent_free_bytes(const struct tier *tier)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < tier->member_count; i++)
		bytes += nvme_space_free_bytes(tier->members[i].space);
	return bytes;
}

/* Return: 0 when what was written to @members is on their media. Context: commit thread; blocks. */
int tier_flush(struct tier *tier, uint32_t members)
{
	for (uint32_t i = 0; i < tier->member_count; i++) {
		int r = members >> i & 1 ? nvme_store_flush(tier->members[i].store) : 0;

		if (r)
			return err_trace(r);
	}
	return 0;
}

/* Return: the member with this identity, or NULL. */
struct tier_member *tier_member_find(struct tier *tier, const uint8_t uuid[16])
{
	for (uint32_t i = 0; i < tier->member_count; i++)
		if (memcmp(tier_member_uuid(&tier->members[i]), uuid, 16) == 0)
			return &tier->members[i];
	return NULL;
}

/* Return: of the file or device, for people. */
const char *tier_member_path(const struct tier_member *member)
{
	return member->store->path;
}

/* Return: (16,) bytes, the identity that the catalog knows. */
const uint8_t *tier_member_uuid(const struct tier_member *member)
{
	return member->store->uuid;
}
