/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which a step uses its units, repeats included: recorded, then followed. Prefetch
 * reads along it, eviction goes by the distance of the next use. Floor 0, owner thread only: the
 * daemon has one order per job, libzinf one per arena of GPU memory.
 */
#pragma once

#include "common/base/types.h"

/* Distances from here on are guesses by age: nothing is known of the unit's next use. */
#define ZI_DISTANCE_UNKNOWN (1ull << 40)
#define ZI_DISTANCE_NEVER   UINT64_MAX
/* No unit, or no use. */
#define ZI_ORDER_NONE UINT32_MAX

/* The uses of units in one step, in order, as the leading rank made them. */
struct zi_order {
	uint32_t *units; /* (count,) of capacity */
	uint32_t *next;  /* (count,) index of the same unit's next use; ZI_ORDER_NONE: none */
	uint32_t *first; /* (unit_count,) index of a unit's first use; ZI_ORDER_NONE: none */
	uint32_t *last;  /* (unit_count,) */
	uint64_t *used;  /* (unit_count,) number of its newest use by any rank; 0: none */
	uint32_t count, capacity, unit_count;
	uint64_t use_count; /* of all ranks */
	bool is_recording;
	uint64_t change_count; /* steps that used units in another order than recorded */
	/* Of a job without steps, whose rounds are found (zi_order_cycle()): */
	uint32_t *borders;    /* (count,) of the first i + 1 uses the longest beginning that is
	                       * also their end, and not all of them; NULL: steps say it */
	uint32_t count_min;   /* shorter rounds were no rounds */
	uint32_t count_max;   /* without a round in so many uses the next ones are looked at */
	uint32_t round_count; /* that went as recorded */
};

/* @order: becomes empty, and records. Return: 0; -ENOMEM. Call zi_order_deinit() in either case. */
int zi_order_init(struct zi_order *order, uint32_t unit_count);
/* No step will mark the end of a round of uses: the order finds it. @order: of zi_order_init().
 * Return: 0; -ENOMEM. */
int zi_order_cycle(struct zi_order *order);
/* Frees the arrays. @order: zeroed, or of zi_order_init(). */
void zi_order_deinit(struct zi_order *order);
/* A rank uses @unit. @is_leading: the order records this rank's uses. @place: the rank's own
 * position, the number of its uses in this step as far as the order has them; 0 at first. */
void zi_order_use(struct zi_order *order, uint32_t unit, bool is_leading, uint32_t *place);
/* A rank's step is over: its next use belongs to the next step. */
void zi_order_step(struct zi_order *order, bool is_leading, uint32_t *place);
/* A rank's step was discarded: the next step begins where this one began. */
void zi_order_discard(struct zi_order *order, bool is_leading, uint32_t *place);
/* The unit of the use that comes @ahead uses after @place; 0 is the next use. ZI_ORDER_NONE: the
 * order does not know it. */
uint32_t zi_order_ahead(const struct zi_order *order, uint32_t place, uint32_t ahead);
/* Uses that a rank at @place makes before it uses @unit; 0: @unit comes next. From
 * ZI_DISTANCE_UNKNOWN on nothing is known, and the unit with the larger distance is the one whose
 * last use is older. */
uint64_t zi_order_distance(const struct zi_order *order, uint32_t unit, uint32_t place);
