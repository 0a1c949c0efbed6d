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
	/* Of a job without steps, whose rounds are found (order_cycle()): */
	uint32_t *borders;    /* (count,) of the first i + 1 uses the longest beginning that is
	                       * also their end, and not all of them; NULL: steps say it */
	uint32_t count_min;   /* shorter rounds were no rounds */
	uint32_t count_max;   /* without a round in so many uses the next ones are looked at */
	uint32_t round_count; /* that went as recorded */
};

int order_init(struct zero_order *order, uint32_t unit_count);
/* Nobody will say where a round of uses ends: it is found. @order: of order_init(). Return: 0;
 * -ENOMEM. */
int order_cycle(struct zero_order *order);
/* Gives its arrays back. */
void order_deinit(struct zero_order *order);
void order_use(struct zero_order *order, uint32_t unit, bool is_leading, uint32_t *place);
void order_step(struct zero_order *order, bool is_leading, uint32_t *place);
void order_discard(struct zero_order *order, bool is_leading, uint32_t *place);
/* The unit of the use that comes @ahead of those at @place, from 0 on; UINT32_MAX: not known. */
uint32_t order_ahead(const struct zero_order *order, uint32_t place, uint32_t ahead);
/* Uses until @unit is used by a rank at @place. */
uint64_t order_distance(const struct zero_order *order, uint32_t unit, uint32_t place);
