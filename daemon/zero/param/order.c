/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which a step uses its units, repeats included: recorded from the leading rank, then
 * followed by all; what prefetch reads along, and what eviction decides by. Floor 5, shard thread.
 *
 * A use is a rank's unshard; a step ends with its step(). The leading rank (0) says what the order
 * is: the first step records it, and a use that differs cuts the order there and records the rest
 * anew. The other ranks do the same, sooner or later: each has a place of its own. One that does
 * something else is not believed, only found again where its unit comes next.
 */
#include "daemon/zero/param/order.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/job.h"

#define ORDER_NONE UINT32_MAX
/* Uses that are recorded: of a step with this many micro-batches, forward and backward, or 8 bytes
 * each of at most half a megabyte. What is beyond is not prefetched. */
#define ORDER_REPEATS 64u
#define ORDER_MAX     65536u

/* @order: empty, recording. Return: 0; -ENOMEM; order_deinit() it in either case. */
int order_init(struct zero_order *order, uint32_t unit_count)
{
	uint64_t capacity = ZI_MIN((uint64_t)unit_count * ORDER_REPEATS, (uint64_t)ORDER_MAX);

	capacity = ZI_MAX(capacity, (uint64_t)unit_count);
	*order = (struct zero_order){
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
		order->first[i] = order->last[i] = ORDER_NONE;
	return 0;
}

void order_deinit(struct zero_order *order)
{
	free(order->units);
	free(order->next);
	free(order->first);
	free(order->last);
	free(order->used);
	*order = (struct zero_order){ 0 };
}

static void append(struct zero_order *order, uint32_t unit)
{
	uint32_t index = order->count;

	if (index == order->capacity)
		return;
	order->count++;
	order->units[index] = unit;
	order->next[index] = ORDER_NONE;
	if (order->last[unit] == ORDER_NONE)
		order->first[unit] = index;
	else
		order->next[order->last[unit]] = index;
	order->last[unit] = index;
}

/* Only the first @count uses are true. */
static void cut(struct zero_order *order, uint32_t count)
{
	for (uint32_t i = 0; i < order->unit_count; i++)
		order->first[i] = order->last[i] = ORDER_NONE;
	order->count = 0;
	for (uint32_t i = 0; i < count; i++)
		append(order, order->units[i]);
}

/* The unit's first use at @index or later; ORDER_NONE: none in this step. */
static uint32_t use_from(const struct zero_order *order, uint32_t unit, uint32_t index)
{
	uint32_t use = order->first[unit];

	while (use != ORDER_NONE && use < index)
		use = order->next[use];
	return use;
}

/*
 * order_use() - a rank uses a unit
 * @is_leading: its order is the one to record
 * @place: the rank's own: uses it has made in this step, as far as the order goes
 */
void order_use(struct zero_order *order, uint32_t unit, bool is_leading, uint32_t *place)
{
	uint32_t use;

	assert(unit < order->unit_count);
	order->used[unit] = ++order->use_count;
	if (*place < order->count && order->units[*place] == unit) {
		(*place)++;
		return;
	}
	if (!is_leading) {
		use = use_from(order, unit, *place);
		if (use != ORDER_NONE)
			*place = use + 1;
		return;
	}
	if (!order->is_recording && *place == order->capacity)
		return; /* Longer than what can be kept, as before. */
	if (!order->is_recording) {
		order->change_count++;
		order->is_recording = true;
		cut(order, *place);
	}
	append(order, unit);
	*place = order->count;
}

/* A rank's step is over: what it uses next belongs to the next one. */
void order_step(struct zero_order *order, bool is_leading, uint32_t *place)
{
	if (is_leading && !order->is_recording && *place < order->count) {
		order->change_count++;
		cut(order, *place);
	}
	if (is_leading)
		order->is_recording = false;
	*place = 0;
}

/*
 * order_distance() - how many uses a rank makes before it uses @unit
 * @place: of the rank
 *
 * Return: 0 it comes next; from ZERO_DISTANCE_UNKNOWN on nothing is known, and the larger one was
 * not used for longer.
 */
uint64_t order_distance(const struct zero_order *order, uint32_t unit, uint32_t place)
{
	uint32_t use = use_from(order, unit, place);

	if (use != ORDER_NONE)
		return use - place;
	/* Once more in the next step. A place beyond a cut counts as its end. */
	if (!order->is_recording && order->first[unit] != ORDER_NONE)
		return (uint64_t)order->count - ZI_MIN(place, order->count) + order->first[unit];
	return ZERO_DISTANCE_UNKNOWN + order->use_count - order->used[unit];
}
