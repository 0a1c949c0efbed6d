/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of the units that a rank has under way, in memory for a few units: each is one run of
 * slots of the rank's own segment, a *bucket*, from the acquire until its sum is made. Pure. Floor
 * 5, shard thread; device threads read where the bucket of a unit begins that they work on.
 */
#pragma once

#include "common/base/types.h"

struct zero_run;

struct zero_buckets {
	uint32_t slot_count, seam; /* see room.h */
	uint32_t unit_count;
	uint32_t run_count;
	struct zero_run *runs; /* by first slot: those that are taken */
	uint32_t *firsts;      /* (unit_count,) the bucket's first slot; BUCKET_NONE: it has none */
};

#define BUCKET_NONE UINT32_MAX

/* @largest: slots of the longest unit, at most @slot_count. @second: of the longest one that is
 * shorter; 0: all are as long. -ENOMEM. */
int buckets_init(struct zero_buckets *buckets, uint32_t slot_count, uint32_t largest,
                 uint32_t second, uint32_t unit_count);
void buckets_deinit(struct zero_buckets *buckets);
static inline bool buckets_have(const struct zero_buckets *buckets, uint32_t unit)
{
	return buckets->firsts[unit] != BUCKET_NONE;
}
/* Of @count slots, for a unit that has none. False: there is no room. */
bool buckets_take(struct zero_buckets *buckets, uint32_t unit, uint32_t count);
void buckets_give(struct zero_buckets *buckets, uint32_t unit);
/* Return: slots of the longest bucket for which there would be room if all went but those of units
 * that stay. */
uint32_t buckets_room(const struct zero_buckets *buckets,
                      bool (*stays)(const void *arg, uint32_t unit), const void *arg);
