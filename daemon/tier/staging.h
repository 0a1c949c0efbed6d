/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging: equal slots of one registered segment, through which a job's step streams. Floor 4,
 * shard thread.
 */
#pragma once

#include <stdint.h>

#include "daemon/tier/segment.h"

struct tier_staging {
	struct tier_segment *segment;
	struct nvme_engine *engine;
	uint64_t slot_bytes;
	uint32_t slot_count;
	uint32_t free_count;
	uint16_t *free_slots;
};

/* @segment: built, of at least slot_bytes × slot_count bytes; its reference passes on if done. */
int tier_staging_adopt(struct tier_segment *segment, struct nvme_engine *engine,
                       uint64_t slot_bytes, uint32_t slot_count, struct tier_staging **ret_staging);
int tier_staging_new(struct tier *tier, struct tier_account *account, struct nvme_engine *engine,
                     uint64_t slot_bytes, uint32_t slot_count, struct zi_text *text,
                     struct tier_staging **ret_staging);
struct tier_staging *tier_staging_free(struct tier_staging *staging); /* asserts all are back */
void *tier_staging_take(struct tier_staging *staging);                /* NULL: none free */
void tier_staging_give(struct tier_staging *staging, void *slot);
