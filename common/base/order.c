/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which a step uses its units, repeats included. The leading rank (0) records the
 * order, and all ranks follow it. Prefetch reads along the order; eviction decides by it. Floor 0,
 * owner thread.
 *
 * A use is an unshard by a rank. A rank's step() ends its step. The first step of the leading rank
 * records the order. Where a later use of the leading rank differs, the order is cut and the rest
 * is recorded again. Each other rank has a place of its own in the order. A rank that leaves the
 * order does not change it; the rank's place moves to the next use of the unit in the order.
 *
 * A forward-only job has no steps. Its uses are recorded until a sequence of uses has come twice
 * in a row: this sequence is a round, and is expected to repeat. A round may contain a unit twice
 * (tied weights), so the second use of the first unit does not have to be the end of the round. A
 * sequence that turned out to be the beginning of a longer round is not tried again. Uses before
 * the first round, or the rest of an earlier round, can hide a round. So the record begins again,
 * each time with room for twice as many uses.
 */
#include "common/base/order.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

/* Uses that are recorded: of a step with this many micro-batches, forward and backward, or 8 bytes
 * each of at most half a megabyte. What is beyond is not prefetched. */
#define ORDER_REPEATS 64u
#define ORDER_MAX     65536u
/* What went as recorded so often was a round, and if it changes another one has come. */
#define ORDER_ROUNDS_TRUE 4u
/* Uses of each unit that are looked at first: two rounds with each of them twice. */
#define ORDER_LOOK 4u

int zi_order_init(struct zi_order *order, uint32_t unit_count)
{
	uint64_t capacity = ZI_MIN((uint64_t)unit_count * ORDER_REPEATS, (uint64_t)ORDER_MAX);

	capacity = ZI_MAX(capacity, (uint64_t)unit_count);
	*order = (struct zi_order){
		.units = calloc(capacity, sizeof(*order->units)),
		.next = calloc(capacity, sizeof(*order->next)),
		.first = calloc(unit_count, sizeof(*order->first)),
		.last = calloc(unit_count, sizeof(*order->last)),
		.used = calloc(unit_count, sizeof(*order->used)),
		.capacity = (uint32_t)capacity,
		.unit_count = unit_count,
		.is_recording = true,
	};
	if (!order->units || !order->next || !order->first || !order->last || !order->used)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < unit_count; i++)
		order->first[i] = order->last[i] = ZI_ORDER_NONE;
	return 0;
}

/* For one of @count_min uses or more. */
static void look_for_round(struct zi_order *order, uint32_t count_min)
{
	uint32_t count = ORDER_LOOK * ZI_MAX(order->unit_count, count_min);

	order->count_min = count_min;
	order->count_max = ZI_MIN(count, order->capacity);
}

int zi_order_cycle(struct zi_order *order)
{
	assert(!order->use_count);
	order->borders = calloc(order->capacity, sizeof(*order->borders));
	look_for_round(order, 1);
	return order->borders ? 0 : err_origin(-ENOMEM);
}

void zi_order_deinit(struct zi_order *order)
{
	free(order->borders);
	free(order->units);
	free(order->next);
	free(order->first);
	free(order->last);
	free(order->used);
	*order = (struct zi_order){ 0 };
}

/* Of the first @index + 1 uses, from those of fewer. D. E. Knuth, J. H. Morris, V. R. Pratt, Fast
 * pattern matching in strings, SIAM Journal on Computing 6(2), 1977. */
static uint32_t border_of(const struct zi_order *order, uint32_t index)
{
	uint32_t border = index ? order->borders[index - 1] : 0;

	while (border && order->units[border] != order->units[index])
		border = order->borders[border - 1];
	return index && order->units[border] == order->units[index] ? border + 1 : 0;
}

static void append(struct zi_order *order, uint32_t unit)
{
	uint32_t index = order->count;

	if (index == order->capacity)
		return;
	order->count++;
	order->units[index] = unit;
	if (order->borders)
		order->borders[index] = border_of(order, index);
	order->next[index] = ZI_ORDER_NONE;
	if (order->last[unit] == ZI_ORDER_NONE)
		order->first[unit] = index;
	else
		order->next[order->last[unit]] = index;
	order->last[unit] = index;
}

/* Only the first @count uses are true. What it costs goes by what was recorded, as a trainer may
 * have it done every few uses. */
static void cut(struct zi_order *order, uint32_t count)
{
	for (uint32_t i = 0; i < order->count; i++)
		order->first[order->units[i]] = order->last[order->units[i]] = ZI_ORDER_NONE;
	order->count = 0;
	for (uint32_t i = 0; i < count; i++)
		append(order, order->units[i]);
}

/* The unit's first use at @index or later; ZI_ORDER_NONE: none in this step. */
static uint32_t use_from(const struct zi_order *order, uint32_t unit, uint32_t index)
{
	uint32_t use = order->first[unit];

	while (use != ZI_ORDER_NONE && use < index)
		use = order->next[use];
	return use;
}

/* The uses so far are the same twice over: once is a round. */
static void find_round(struct zi_order *order, uint32_t *place)
{
	uint32_t half = order->count / 2;
	uint32_t period = order->count - order->borders[order->count - 1];

	if (order->count % 2 || half % period || half < order->count_min)
		return;
	cut(order, half);
	order->is_recording = false;
	order->round_count = 0;
	*place = 0;
}

/* What was followed so far goes another way. */
static void lose_round(struct zi_order *order)
{
	bool is_true =
		order->round_count >= ORDER_ROUNDS_TRUE || order->count >= order->capacity / 2;

	look_for_round(order, is_true ? 1 : order->count + 1);
}

/* A use went as recorded. */
static void follow(struct zi_order *order, bool is_leading, uint32_t *place)
{
	(*place)++;
	if (!order->borders || order->is_recording || *place < order->count)
		return;
	*place = 0;
	order->round_count += is_leading && order->round_count < ORDER_ROUNDS_TRUE;
}

/* A rank that does not lead is where its unit comes next. */
static void find_again(struct zi_order *order, uint32_t unit, uint32_t *place)
{
	uint32_t use = use_from(order, unit, *place);

	if (use == ZI_ORDER_NONE && order->borders)
		use = order->first[unit];
	if (use == ZI_ORDER_NONE)
		return;
	*place = use;
	follow(order, false, place);
}

/* The leading rank's use, which the order does not have. */
static void record(struct zi_order *order, uint32_t unit, uint32_t *place)
{
	if (order->borders && order->count == order->count_max) {
		order->count_max = ZI_MIN(2 * order->count_max, order->capacity);
		cut(order, 0);
	}
	append(order, unit);
	*place = order->count;
	if (order->borders)
		find_round(order, place);
}

void zi_order_use(struct zi_order *order, uint32_t unit, bool is_leading, uint32_t *place)
{
	assert(unit < order->unit_count);
	order->used[unit] = ++order->use_count;
	if (*place < order->count && order->units[*place] == unit) {
		follow(order, is_leading, place);
		return;
	}
	if (!is_leading) {
		find_again(order, unit, place);
		return;
	}
	if (!order->is_recording && *place == order->capacity)
		return; /* Longer than what can be kept, as before. */
	if (!order->is_recording) {
		order->change_count++;
		order->is_recording = true;
		if (order->borders)
			lose_round(order);
		cut(order, order->borders ? 0 : *place);
	}
	record(order, unit, place);
}

void zi_order_step(struct zi_order *order, bool is_leading, uint32_t *place)
{
	if (is_leading && !order->is_recording && *place < order->count) {
		order->change_count++;
		cut(order, *place);
	}
	if (is_leading)
		order->is_recording = false;
	*place = 0;
}

void zi_order_discard(struct zi_order *order, bool is_leading, uint32_t *place)
{
	/* The record of a part would be taken for a whole step. */
	if (is_leading && order->is_recording)
		cut(order, 0);
	*place = 0;
}

uint32_t zi_order_ahead(const struct zi_order *order, uint32_t place, uint32_t ahead)
{
	uint64_t index = (uint64_t)place + ahead;

	if (order->borders && !order->is_recording && index >= order->count)
		index -= order->count;
	return index < order->count ? order->units[index] : ZI_ORDER_NONE;
}

uint64_t zi_order_distance(const struct zi_order *order, uint32_t unit, uint32_t place)
{
	uint32_t use = use_from(order, unit, place);

	if (use != ZI_ORDER_NONE)
		return use - place;
	/* Once more in the next step. A place beyond a cut counts as its end. */
	if (!order->is_recording && order->first[unit] != ZI_ORDER_NONE)
		return (uint64_t)order->count - ZI_MIN(place, order->count) + order->first[unit];
	return ZI_DISTANCE_UNKNOWN + order->use_count - order->used[unit];
}
