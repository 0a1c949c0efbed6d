/* SPDX-License-Identifier: Apache-2.0 */
/* In which order a step uses its units, recorded and followed. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"

/* Distances from here on are guesses by age: nothing is known of the unit's next use. */
#define ZERO_DISTANCE_UNKNOWN (1ull << 40)
#define ZERO_DISTANCE_NEVER   UINT64_MAX

/* The uses of units in one step, in order, as the leading rank made them. */
struct zero_order {
	uint32_t *units; /* (count,) of capacity */
	uint32_t *next;  /* (count,) index of the same unit's next use; UINT32_MAX: none */
	uint32_t *first; /* (unit_count,) index of a unit's first use; UINT32_MAX: none */
	uint32_t *last;  /* (unit_count,) */
	uint64_t *used;  /* (unit_count,) number of its newest use by any rank; 0: none */
	uint32_t count, capacity, unit_count;
	uint64_t use_count; /* of all ranks */
	bool is_recording;
	uint64_t change_count; /* steps that used units in another order than recorded */
};

int order_init(struct zero_order *order, uint32_t unit_count);
/* Gives its arrays back. */
void order_deinit(struct zero_order *order);
void order_use(struct zero_order *order, uint32_t unit, bool is_leading, uint32_t *place);
void order_step(struct zero_order *order, bool is_leading, uint32_t *place);
/* Uses until @unit is used by a rank at @place. */
uint64_t order_distance(const struct zero_order *order, uint32_t unit, uint32_t place);
