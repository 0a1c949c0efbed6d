/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the chunk ring: what each chunk holds, and the streams that change it. */
#include "tests/harness/ring_model.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "tests/harness/ring_model_queue.h"

#define CONTENT_BROKEN UINT64_MAX /* a write is under way */

static void fail(struct ring_model *model, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Keeps the first failure only. */
static void fail(struct ring_model *model, const char *format, ...)
{
	va_list args;

	if (model->failure[0])
		return;
	va_start(args, format);
	(void)vsnprintf(model->failure, sizeof(model->failure), format, args);
	va_end(args);
}

/* ---- layout ---- */

static uint32_t chunk_at(const struct ring_model *model, const struct ring_model_unit *unit,
                         uint32_t index)
{
	return unit->is_apart ? unit->first + index : (unit->first + index) % model->ring_count;
}

static bool covers(const struct ring_model *model, uint32_t unit, uint32_t chunk)
{
	const struct ring_model_unit *u = &model->units[unit];

	for (uint32_t i = 0; i < u->count; i++)
		if (chunk_at(model, u, i) == chunk)
			return true;
	return false;
}

static bool overlaps(const struct ring_model *model, uint32_t one, uint32_t other)
{
	const struct ring_model_unit *u = &model->units[one];

	for (uint32_t i = 0; i < u->count; i++)
		if (covers(model, other, chunk_at(model, u, i)))
			return true;
	return false;
}

/* The layout as ring.h describes it, by addition alone. */
static void lay_out(struct ring_model *model, const struct zi_gpu_units *units)
{
	uint64_t sum = 0;
	uint32_t apart = model->chunk_count;

	for (uint32_t i = 0; i < units->count; i++) {
		struct ring_model_unit *unit = &model->units[i];

		unit->version = 1;
		unit->is_apart = units->list[i].is_apart;
		while (unit->count * units->chunk_bytes < units->list[i].bytes)
			unit->count++;
		apart -= unit->is_apart ? unit->count : 0;
	}
	model->ring_count = apart;
	for (uint32_t i = 0; i < units->count; i++) {
		struct ring_model_unit *unit = &model->units[i];

		unit->first = unit->is_apart ? apart : (uint32_t)(sum % model->ring_count);
		if (unit->is_apart)
			apart += unit->count;
		else
			sum += unit->count;
	}
	if (zi_gpu_ring_holds_all(model->ring) != (sum <= model->ring_count))
		fail(model, "holds_all is wrong");
}

static void check_layout(struct ring_model *model)
{
	for (uint32_t u = 0; u < model->unit_count; u++) {
		const struct ring_model_unit *unit = &model->units[u];

		if (zi_gpu_ring_chunk_count(model->ring, u) != unit->count)
			fail(model, "unit %u has another number of chunks", u);
		for (uint32_t i = 0; i < unit->count && !model->failure[0]; i++)
			if (zi_gpu_ring_chunk(model->ring, u, i) != chunk_at(model, unit, i))
				fail(model, "chunk %u of unit %u lies elsewhere", i, u);
		for (uint32_t v = 0; v < model->unit_count; v++)
			if (zi_gpu_ring_overlaps(model->ring, u, v) != overlaps(model, u, v))
				fail(model, "units %u and %u: wrong overlap", u, v);
	}
}

int ring_model_init(struct ring_model *model, const struct zi_gpu_units *units,
                    uint32_t chunk_count)
{
	int r;

	*model = (struct ring_model){ .unit_count = units->count, .chunk_count = chunk_count };
	if (units->count > RING_MODEL_UNITS_MAX || chunk_count > RING_MODEL_CHUNKS_MAX)
		return -E2BIG;
	r = zi_gpu_ring_new(units, chunk_count, NULL, &model->ring);
	if (!r)
		r = zi_order_init(&model->order, units->count);
	for (uint32_t i = 0; !r && i < _RING_STREAM_COUNT; i++) {
		model->queues[i] = ring_model_queue_new();
		r = model->queues[i] ? 0 : -ENOMEM;
	}
	if (r)
		return r;
	lay_out(model, units);
	check_layout(model);
	return 0;
}

void ring_model_cycle(struct ring_model *model)
{
	if (zi_order_cycle(&model->order))
		abort();
	model->is_cyclic = true;
}

void ring_model_deinit(struct ring_model *model)
{
	for (uint32_t i = 0; i < _RING_STREAM_COUNT; i++)
		model->queues[i] = ring_model_queue_free(model->queues[i]);
	zi_order_deinit(&model->order);
	free(model->is_done);
	model->ring = zi_gpu_ring_free(model->ring);
}

/* ---- the GPU ---- */

static uint64_t new_event(struct ring_model *model)
{
	if (model->event_count + 2 > model->event_capacity) {
		uint64_t capacity = 2 * model->event_capacity + 64;
		bool *is_done = realloc(model->is_done, capacity);

		if (!is_done)
			abort();
		memset(is_done + model->event_capacity, 0, capacity - model->event_capacity);
		model->is_done = is_done;
		model->event_capacity = capacity;
	}
	return ++model->event_count;
}

static uint64_t content_of(uint32_t unit, uint32_t index, uint32_t version)
{
	return (uint64_t)version << 32 | (uint64_t)unit << 16 | index;
}

/* Whether the chunks of the work's unit have its bytes. */
static void check_bytes(struct ring_model *model, const struct ring_model_work *work)
{
	const struct ring_model_unit *unit = &model->units[work->unit];

	for (uint32_t i = 0; i < unit->count; i++)
		if (model->content[chunk_at(model, unit, i)] !=
		    content_of(work->unit, i, work->version))
			fail(model, "a use of unit %u sees other bytes in its chunk %u", work->unit,
			     i);
}

static void begin(struct ring_model *model, const struct ring_model_work *work)
{
	const struct ring_model_unit *unit = &model->units[work->unit];

	for (uint32_t i = 0; i < unit->count; i++) {
		uint32_t chunk = chunk_at(model, unit, i);

		if (model->is_written[chunk])
			fail(model, "unit %u: chunk %u is being written", work->unit, chunk);
		if (work->is_write && model->reader_count[chunk])
			fail(model, "a write of unit %u to chunk %u, which is being read",
			     work->unit, chunk);
		model->reader_count[chunk] += !work->is_write;
		model->is_written[chunk] |= work->is_write;
		if (work->is_write)
			model->content[chunk] = CONTENT_BROKEN;
	}
	if (!work->is_write)
		check_bytes(model, work);
}

static void end(struct ring_model *model, const struct ring_model_work *work)
{
	const struct ring_model_unit *unit = &model->units[work->unit];

	if (!work->is_write)
		check_bytes(model, work);
	for (uint32_t i = 0; i < unit->count; i++) {
		uint32_t chunk = chunk_at(model, unit, i);

		model->reader_count[chunk] -= !work->is_write;
		if (!work->is_write)
			continue;
		model->is_written[chunk] = false;
		model->content[chunk] = content_of(work->unit, i, work->version);
	}
	model->is_done[work->event] = true;
}

bool ring_model_run(struct ring_model *model, enum ring_stream stream)
{
	struct ring_model_queue *queue = model->queues[stream];
	struct ring_model_work *work = ring_model_queue_first(queue);

	if (!work)
		return false;
	if (work->is_running) {
		end(model, work);
		ring_model_queue_pop(queue);
		return true;
	}
	for (uint32_t i = 0; i < work->wait_count; i++)
		if (!model->is_done[work->waits[i]])
			return false;
	begin(model, work);
	work->is_running = true;
	return true;
}

void ring_model_drain(struct ring_model *model)
{
	bool has_run = true;

	while (has_run) {
		has_run = false;
		for (uint32_t i = 0; i < _RING_STREAM_COUNT; i++)
			has_run |= ring_model_run(model, (enum ring_stream)i);
	}
	for (uint32_t i = 0; i < _RING_STREAM_COUNT; i++)
		if (ring_model_queue_first(model->queues[i]))
			fail(model, "the streams wait for one another");
}

/* @waits: (wait_count,) events. Return: the work's own event. */
static uint64_t queue(struct ring_model *model, enum ring_stream stream, uint32_t unit,
                      bool is_write, const uint64_t *waits, uint32_t wait_count)
{
	struct ring_model_work work = { .unit = unit,
		                        .version = model->units[unit].version,
		                        .is_write = is_write,
		                        .wait_count = wait_count,
		                        .event = new_event(model) };

	if (wait_count > RING_MODEL_CHUNKS_MAX) {
		fail(model, "unit %u waits for %u events", unit, wait_count);
		work.wait_count = 0;
	}
	for (uint32_t i = 0; i < work.wait_count; i++) {
		work.waits[i] = waits[i];
		if (!waits[i] || waits[i] >= work.event) {
			fail(model, "unit %u waits for an event that nobody gave", unit);
			work.wait_count = 0;
		}
	}
	ring_model_queue_push(model->queues[stream], &work);
	return work.event;
}

/* ---- the host ---- */

static bool is_fixed(const struct ring_model_unit *unit)
{
	return unit->use_count || unit->is_pinned;
}

/* A unit that refuses a demand for @unit; ZI_GPU_RING_NONE: there is none. */
static uint32_t blocker_of(const struct ring_model *model, uint32_t unit)
{
	for (uint32_t i = 0; i < model->unit_count; i++)
		if (i != unit && is_fixed(&model->units[i]) && overlaps(model, i, unit))
			return i;
	return ZI_GPU_RING_NONE;
}

static void compare(struct ring_model *model, const char *after)
{
	for (uint32_t i = 0; i < model->unit_count; i++) {
		const struct ring_model_unit *unit = &model->units[i];

		if (zi_gpu_ring_presence(model->ring, i) != unit->presence)
			fail(model, "after %s unit %u is %d instead of %d", after, i,
			     zi_gpu_ring_presence(model->ring, i), unit->presence);
		if (zi_gpu_ring_use_count(model->ring, i) != unit->use_count)
			fail(model, "after %s unit %u has %u uses", after, i,
			     zi_gpu_ring_use_count(model->ring, i));
	}
}

static void become_absent(struct ring_model_unit *unit)
{
	unit->presence = ZI_GPU_ABSENT;
	unit->use_count = 0;
	unit->is_pinned = false;
}

/* The ring has reserved the place of an absent unit. */
static void reserved(struct ring_model *model, uint32_t unit)
{
	const uint32_t *displaced;
	uint32_t count = zi_gpu_ring_displaced(model->ring, &displaced);

	model->displaced_count += count;
	for (uint32_t i = 0; i < model->unit_count; i++) {
		bool goes = i != unit && model->units[i].presence != ZI_GPU_ABSENT &&
		            overlaps(model, i, unit);
		bool is_told = false;

		for (uint32_t k = 0; k < count; k++)
			is_told |= displaced[k] == i;
		if (is_told != goes)
			fail(model, "for unit %u unit %u %s", unit, i,
			     goes ? "must be displaced" : "is displaced");
		if (goes && is_fixed(&model->units[i]))
			fail(model, "for unit %u unit %u is displaced in use", unit, i);
		if (goes)
			become_absent(&model->units[i]);
	}
	model->units[unit].presence = ZI_GPU_COMING;
	model->units[unit].is_written = false;
}

/* Of a demand that the ring has answered with @r. */
static void demanded(struct ring_model *model, uint32_t unit, int r)
{
	uint32_t blocker = blocker_of(model, unit), named;

	if (r == ZI_GPU_RING_E_BUSY) {
		model->busy_count++;
		named = zi_gpu_ring_blocker(model->ring, unit);
		if (blocker == ZI_GPU_RING_NONE)
			fail(model, "unit %u is refused without a reason", unit);
		else if (named >= model->unit_count || named == unit ||
		         !is_fixed(&model->units[named]) || !overlaps(model, named, unit))
			fail(model, "unit %u is refused for unit %u", unit, named);
		return;
	}
	if (r == ZI_GPU_RING_E_FRESH) {
		if (blocker != ZI_GPU_RING_NONE)
			fail(model, "unit %u comes over unit %u in use", unit, blocker);
		reserved(model, unit);
	}
}

int ring_model_unshard(struct ring_model *model, uint32_t unit)
{
	static const int expected[] = { [ZI_GPU_ABSENT] = ZI_GPU_RING_E_FRESH,
		                        [ZI_GPU_COMING] = ZI_GPU_RING_E_COMING,
		                        [ZI_GPU_PRESENT] = 0 };
	struct ring_model_unit *u = &model->units[unit];
	uint64_t event = 0;
	int r = zi_gpu_ring_unshard(model->ring, unit, &event);

	if (r != ZI_GPU_RING_E_BUSY && r != expected[u->presence])
		fail(model, "unshard of unit %u returns %d", unit, r);
	demanded(model, unit, r);
	if (!r && event != u->copied)
		fail(model, "unit %u has another event of its copy", unit);
	if (r != ZI_GPU_RING_E_BUSY) {
		u->use_count++;
		zi_order_use(&model->order, unit, true, &model->place);
	}
	compare(model, "unshard");
	return r;
}

void ring_model_copy(struct ring_model *model, uint32_t unit)
{
	struct ring_model_unit *u = &model->units[unit];
	const uint64_t *waits;
	uint32_t count = zi_gpu_ring_waits(model->ring, unit, &waits);

	u->copied = queue(model, RING_STREAM_UP, unit, true, waits, count);
	zi_gpu_ring_copied(model->ring, unit, u->copied);
	u->presence = ZI_GPU_PRESENT;
	model->copy_count++;
	compare(model, "a copy");
}

void ring_model_reshard(struct ring_model *model, uint32_t unit)
{
	struct ring_model_unit *u = &model->units[unit];
	uint64_t event = queue(model, RING_STREAM_COMPUTE, unit, false, &u->copied, 1);

	zi_gpu_ring_reshard(model->ring, unit, event);
	u->use_count--;
	compare(model, "reshard");
}

void ring_model_reshard_unused(struct ring_model *model, uint32_t unit)
{
	zi_gpu_ring_reshard(model->ring, unit, 0);
	model->units[unit].use_count--;
	compare(model, "an unused use");
}

/* Uses until the next one of each unit, as far as prefetch looks; UINT32_MAX: further. */
static void find_next_uses(const struct ring_model *model, uint32_t *ret_next)
{
	uint32_t ahead_max = ZI_MIN(model->order.count, 2 * model->unit_count);

	for (uint32_t i = 0; i < model->unit_count; i++)
		ret_next[i] = UINT32_MAX;
	for (uint32_t ahead = 0; ahead < ahead_max; ahead++) {
		uint32_t unit = zi_order_ahead(&model->order, model->place, ahead);

		if (unit == ZI_ORDER_NONE)
			return;
		ret_next[unit] = ZI_MIN(ret_next[unit], ahead);
	}
}

/* Whether @unit may be copied now, and costs nothing that is used earlier. */
static bool is_worth(const struct ring_model *model, uint32_t unit, const uint32_t *next)
{
	if (model->units[unit].presence != ZI_GPU_ABSENT || next[unit] == UINT32_MAX)
		return false;
	for (uint32_t i = 0; i < model->unit_count; i++) {
		const struct ring_model_unit *other = &model->units[i];

		if (i == unit || !overlaps(model, i, unit))
			continue;
		if (next[i] < next[unit] || is_fixed(other) || other->presence == ZI_GPU_COMING)
			return false;
	}
	return true;
}

bool ring_model_prefetch(struct ring_model *model, uint32_t *ret_unit)
{
	uint32_t next[RING_MODEL_UNITS_MAX], best = ZI_GPU_RING_NONE;
	uint32_t unit = ZI_GPU_RING_NONE;
	bool is_found;

	find_next_uses(model, next);
	for (uint32_t i = 0; i < model->unit_count; i++)
		if (is_worth(model, i, next) && (best == ZI_GPU_RING_NONE || next[i] < next[best]))
			best = i;
	is_found = zi_gpu_ring_prefetch(model->ring, &model->order, model->place, &unit);
	if (unit != best)
		fail(model, "unit %u is prefetched instead of unit %u", unit, best);
	if (is_found && unit < model->unit_count) {
		reserved(model, unit);
		model->prefetch_count++;
		*ret_unit = unit;
	}
	compare(model, "prefetch");
	return is_found;
}

void ring_model_cancel(struct ring_model *model, uint32_t unit)
{
	zi_gpu_ring_cancel(model->ring, unit);
	become_absent(&model->units[unit]);
	compare(model, "cancel");
}

void ring_model_lose(struct ring_model *model, uint32_t unit)
{
	struct ring_model_unit *u = &model->units[unit];
	const uint64_t *waits;
	uint32_t count = zi_gpu_ring_waits(model->ring, unit, &waits);

	zi_gpu_ring_lost(model->ring, unit, queue(model, RING_STREAM_UP, unit, true, waits, count));
	become_absent(u);
	u->version++;
	compare(model, "a lost copy");
}

void ring_model_pin(struct ring_model *model, uint32_t unit, bool is_pinned)
{
	if (is_pinned)
		zi_gpu_ring_pin(model->ring, unit);
	else
		zi_gpu_ring_unpin(model->ring, unit);
	model->units[unit].is_pinned = is_pinned;
	compare(model, "pin");
}

void ring_model_renew(struct ring_model *model, uint32_t unit)
{
	zi_gpu_ring_void(model->ring, unit);
	become_absent(&model->units[unit]);
	model->units[unit].version++;
	compare(model, "void");
}

void ring_model_step(struct ring_model *model)
{
	for (uint32_t i = 0; i < model->unit_count; i++)
		if (!model->units[i].use_count)
			ring_model_renew(model, i);
	if (!model->is_cyclic)
		zi_order_step(&model->order, true, &model->place);
}

void ring_model_discard(struct ring_model *model)
{
	if (!model->is_cyclic)
		zi_order_discard(&model->order, true, &model->place);
}

int ring_model_acquire(struct ring_model *model, uint32_t unit)
{
	struct ring_model_unit *u = &model->units[unit];
	int r = zi_gpu_ring_acquire(model->ring, unit);

	if (r != ZI_GPU_RING_E_BUSY && r != (u->presence ? 0 : ZI_GPU_RING_E_FRESH))
		fail(model, "acquire of unit %u returns %d", unit, r);
	demanded(model, unit, r);
	if (r == ZI_GPU_RING_E_FRESH)
		u->use_count = 1;
	compare(model, "acquire");
	return r;
}

void ring_model_write(struct ring_model *model, uint32_t unit)
{
	struct ring_model_unit *u = &model->units[unit];
	const uint64_t *waits = NULL;
	uint32_t count = u->is_written ? 0 : zi_gpu_ring_waits(model->ring, unit, &waits);

	u->version++;
	u->copied = queue(model, RING_STREAM_COMPUTE, unit, true, waits, count);
	u->is_written = true;
}

void ring_model_hand(struct ring_model *model, uint32_t unit)
{
	struct ring_model_unit *u = &model->units[unit];
	uint64_t event = queue(model, RING_STREAM_DOWN, unit, false, &u->copied, 1);

	zi_gpu_ring_handed(model->ring, unit, event);
	become_absent(u);
	compare(model, "handing over");
}
