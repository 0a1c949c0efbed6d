/* SPDX-License-Identifier: Apache-2.0 */
/* Staging: slots that are taken and given. Floor 4, shard thread. */
#include "daemon/tier/staging.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/err.h"

/**
 * tier_staging_adopt() - slots over memory that is there
 * @segment: built; its reference passes over on success
 * @engine: the slots are registered with it; NULL: not
 * @slot_bytes: multiple of ZI_STORE_ALIGN_BYTES
 * @slot_count: 1 … 65535
 * @ret_staging: the caller's
 *
 * Return: 0; -ENOMEM. Context: shard thread.
 */
int tier_staging_adopt(struct tier_segment *segment, struct nvme_engine *engine,
                       uint64_t slot_bytes, uint32_t slot_count, struct tier_staging **ret_staging)
{
	_cleanup_(zi_freep) struct tier_staging *staging = NULL;
	_cleanup_(zi_freep) uint16_t *slots = NULL;
	int r;

	assert(slot_bytes % ZI_STORE_ALIGN_BYTES == 0);
	assert(slot_count > 0);
	assert(slot_count <= UINT16_MAX);
	assert(segment->region.bytes / slot_count >= slot_bytes);

	staging = calloc(1, sizeof(*staging));
	slots = calloc(slot_count, sizeof(*slots));
	if (!staging || !slots)
		return err_origin(-ENOMEM);
	if (engine) {
		r = tier_segment_register(segment, engine);
		if (r)
			return err_trace(r);
	}
	/* The first slot is taken first: a job that needs few touches few. */
	for (uint32_t i = 0; i < slot_count; i++)
		slots[i] = (uint16_t)(slot_count - 1 - i);
	*staging = (struct tier_staging){
		.segment = segment,
		.engine = engine,
		.slot_bytes = slot_bytes,
		.slot_count = slot_count,
		.free_count = slot_count,
		.free_slots = zi_steal(slots),
	};
	*ret_staging = zi_steal(staging);
	return 0;
}

/**
 * tier_staging_new() - charge, build and adopt at once, on this thread
 *
 * Return: 0; -EOVERFLOW; what tier_segment_new() and tier_staging_adopt() return.
 */
int tier_staging_new(struct tier *tier, struct tier_account *account, struct nvme_engine *engine,
                     uint64_t slot_bytes, uint32_t slot_count, struct zi_text *text,
                     struct tier_staging **ret_staging)
{
	_cleanup_(tier_segment_unrefp) struct tier_segment *segment = NULL;
	uint64_t bytes;
	int r;

	if (!zi_checked_mul(slot_bytes, slot_count, &bytes))
		return err_origin(-EOVERFLOW);
	r = tier_segment_new(tier, account, "zinf-staging", bytes, TIER_PAGES_HUGE, text, &segment);
	if (r)
		return err_trace(r);
	r = tier_staging_adopt(segment, engine, slot_bytes, slot_count, ret_staging);
	if (r)
		return err_trace(r);
	segment = NULL; /* Passed over. */
	return 0;
}

/* Asserts that every slot is back. Return: NULL. */
struct tier_staging *tier_staging_free(struct tier_staging *staging)
{
	if (!staging)
		return NULL;
	assert(staging->free_count == staging->slot_count);
	staging->segment = tier_segment_unref(staging->segment);
	free(staging->free_slots);
	free(staging);
	return NULL;
}

/* Return: a slot of slot_bytes, the caller's until given back; NULL: none is free. */
void *tier_staging_take(struct tier_staging *staging)
{
	uint32_t slot;

	if (!staging->free_count)
		return NULL;
	slot = staging->free_slots[--staging->free_count];
	return (char *)staging->segment->region.base + slot * staging->slot_bytes;
}

/* @slot: from tier_staging_take(); nothing is in flight on it. */
void tier_staging_give(struct tier_staging *staging, void *slot)
{
	uint64_t offset = (uint64_t)((char *)slot - (char *)staging->segment->region.base);

	assert(offset % staging->slot_bytes == 0);
	assert(offset / staging->slot_bytes < staging->slot_count);
	assert(staging->free_count < staging->slot_count);
	staging->free_slots[staging->free_count++] = (uint16_t)(offset / staging->slot_bytes);
}
