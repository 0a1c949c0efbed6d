/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunk ring: places, uses, prefetch. Floor 1, owner thread only. ring.h has the rules.
 *
 * A chunk has two units. Its *holder* is the unit that is coming or present on it now. Its *last*
 * unit is the unit that was copied there last, and that may be absent by now: its newest event is
 * what the next copy waits for. The two differ while a copy is reserved and not queued.
 */
#include "common/gpu/ring.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/order.h"
#include "common/gpu/need.h"

/* Prefetch looks ahead over so many uses of each unit, on average: forward and backward. */
#define AHEAD_USES 2u

struct place {
	uint32_t first, count; /* chunks */
	uint32_t use_count;
	enum zi_gpu_presence presence;
	bool is_pinned;
	uint64_t copied;  /* event of the newest copy; 0: none */
	uint64_t newest;  /* event that comes after all that was queued for the unit; 0: nothing */
	uint64_t seen_by; /* number of the newest walk that has seen the unit */
};

struct chunk {
	uint32_t holder, last; /* units */
	uint64_t claimed_by;   /* number of the newest walk in which a use needs the chunk */
};

struct zi_gpu_ring {
	struct place *places; /* (unit_count,) */
	struct chunk *chunks; /* (chunk_count,): the ring's, then those of the units apart */
	uint64_t *events;     /* (chunk_count,) for zi_gpu_ring_waits() */
	uint32_t *displaced;  /* (displaced_count,) of chunk_count */
	uint32_t unit_count, chunk_count, ring_count;
	uint32_t absent_count, absent_apart_count; /* units; the latter of those apart */
	uint32_t displaced_count;
	uint64_t walk; /* number of the newest one */
	bool holds_all;
};

/* Unit behind unit, round and round. Units apart lie behind the ring. */
static void lay_out(struct zi_gpu_ring *ring, const struct zi_gpu_units *units)
{
	uint32_t next = 0, next_apart = ring->ring_count;

	for (uint32_t i = 0; i < ring->unit_count; i++) {
		struct place *place = &ring->places[i];

		place->count = (uint32_t)zi_gpu_unit_chunks(units, i);
		if (units->list[i].is_apart) {
			place->first = next_apart;
			next_apart += place->count;
			ring->absent_apart_count++;
			continue;
		}
		place->first = next;
		next = (next + place->count) % ring->ring_count;
	}
	assert(next_apart == ring->chunk_count);
	ring->absent_count = ring->unit_count;
	for (uint32_t i = 0; i < ring->chunk_count; i++)
		ring->chunks[i].holder = ring->chunks[i].last = ZI_GPU_RING_NONE;
}

int zi_gpu_ring_new(const struct zi_gpu_units *units, uint32_t chunk_count, struct zi_text *text,
                    struct zi_gpu_ring **ret_ring)
{
	struct zi_gpu_need need;
	struct zi_gpu_ring *ring;
	int r = zi_gpu_need(units, text, &need);

	if (!r)
		r = zi_gpu_need_check(units, &need, chunk_count, text);
	if (r)
		return err_trace(r);
	ring = calloc(1, sizeof(*ring));
	if (!ring)
		return err_origin(-ENOMEM);
	ring->unit_count = units->count;
	ring->chunk_count = chunk_count;
	ring->ring_count = chunk_count - (uint32_t)need.apart_count;
	ring->holds_all = need.all_count <= chunk_count;
	ring->places = calloc(ring->unit_count, sizeof(*ring->places));
	ring->chunks = calloc(ring->chunk_count, sizeof(*ring->chunks));
	ring->events = calloc(ring->chunk_count, sizeof(*ring->events));
	ring->displaced = calloc(ring->chunk_count, sizeof(*ring->displaced));
	if (!ring->places || !ring->chunks || !ring->events || !ring->displaced) {
		ring = zi_gpu_ring_free(ring);
		return err_origin(-ENOMEM);
	}
	lay_out(ring, units);
	*ret_ring = ring;
	return 0;
}

struct zi_gpu_ring *zi_gpu_ring_free(struct zi_gpu_ring *ring)
{
	if (!ring)
		return NULL;
	free(ring->places);
	free(ring->chunks);
	free(ring->events);
	free(ring->displaced);
	free(ring);
	return NULL;
}

/* ---- places ---- */

static struct place *place_of(const struct zi_gpu_ring *ring, uint32_t unit)
{
	assert(unit < ring->unit_count);
	return &ring->places[unit];
}

static bool is_apart(const struct zi_gpu_ring *ring, const struct place *place)
{
	return place->first >= ring->ring_count;
}

/* Behind the last chunk of the ring comes its first one. */
static uint32_t index_of(const struct zi_gpu_ring *ring, const struct place *place, uint32_t index)
{
	uint32_t chunk = place->first + index;

	zi_debug_assert(index < place->count);
	return !is_apart(ring, place) && chunk >= ring->ring_count ? chunk - ring->ring_count
	                                                           : chunk;
}

static struct chunk *chunk_of(const struct zi_gpu_ring *ring, const struct place *place,
                              uint32_t index)
{
	return &ring->chunks[index_of(ring, place, index)];
}

uint32_t zi_gpu_ring_chunk_count(const struct zi_gpu_ring *ring, uint32_t unit)
{
	return place_of(ring, unit)->count;
}

uint32_t zi_gpu_ring_chunk(const struct zi_gpu_ring *ring, uint32_t unit, uint32_t index)
{
	const struct place *place = place_of(ring, unit);

	assert(index < place->count);
	return index_of(ring, place, index);
}

bool zi_gpu_ring_overlaps(const struct zi_gpu_ring *ring, uint32_t one, uint32_t other)
{
	const struct place *a = place_of(ring, one), *b = place_of(ring, other);
	uint32_t count = ring->ring_count;

	if (is_apart(ring, a) || is_apart(ring, b))
		return one == other;
	/* One of them begins within the other. */
	return (b->first + count - a->first) % count < a->count ||
	       (a->first + count - b->first) % count < b->count;
}

bool zi_gpu_ring_holds_all(const struct zi_gpu_ring *ring)
{
	return ring->holds_all;
}

/* ---- state ---- */

enum zi_gpu_presence zi_gpu_ring_presence(const struct zi_gpu_ring *ring, uint32_t unit)
{
	return place_of(ring, unit)->presence;
}

uint32_t zi_gpu_ring_use_count(const struct zi_gpu_ring *ring, uint32_t unit)
{
	return place_of(ring, unit)->use_count;
}

static bool is_fixed(const struct place *place)
{
	return place->use_count || place->is_pinned;
}

uint32_t zi_gpu_ring_blocker(const struct zi_gpu_ring *ring, uint32_t unit)
{
	const struct place *place = place_of(ring, unit);

	for (uint32_t i = 0; i < place->count; i++) {
		uint32_t holder = chunk_of(ring, place, i)->holder;

		if (holder != ZI_GPU_RING_NONE && holder != unit && is_fixed(&ring->places[holder]))
			return holder;
	}
	return ZI_GPU_RING_NONE;
}

uint32_t zi_gpu_ring_displaced(const struct zi_gpu_ring *ring, const uint32_t **ret_units)
{
	*ret_units = ring->displaced;
	return ring->displaced_count;
}

/* The unit holds nothing any more. It stays the last unit of its chunks. */
static void leave(struct zi_gpu_ring *ring, uint32_t unit)
{
	struct place *place = &ring->places[unit];

	assert(place->presence != ZI_GPU_ABSENT);
	for (uint32_t i = 0; i < place->count; i++) {
		struct chunk *chunk = chunk_of(ring, place, i);

		assert(chunk->holder == unit);
		chunk->holder = ZI_GPU_RING_NONE;
	}
	place->presence = ZI_GPU_ABSENT;
	place->use_count = 0;
	place->is_pinned = false;
	ring->absent_count++;
	ring->absent_apart_count += is_apart(ring, place);
}

/* Precondition: no unit in use or pinned holds a chunk there. */
static void reserve(struct zi_gpu_ring *ring, uint32_t unit)
{
	struct place *place = &ring->places[unit];

	assert(place->presence == ZI_GPU_ABSENT);
	ring->displaced_count = 0;
	for (uint32_t i = 0; i < place->count; i++) {
		struct chunk *chunk = chunk_of(ring, place, i);

		if (chunk->holder != ZI_GPU_RING_NONE) {
			assert(!is_fixed(&ring->places[chunk->holder]));
			ring->displaced[ring->displaced_count++] = chunk->holder;
			leave(ring, chunk->holder);
		}
		chunk->holder = unit;
	}
	place->presence = ZI_GPU_COMING;
	ring->absent_count--;
	ring->absent_apart_count -= is_apart(ring, place);
}

/* For a use. Return: FRESH or BUSY. */
static int reserve_for_use(struct zi_gpu_ring *ring, uint32_t unit)
{
	if (zi_gpu_ring_blocker(ring, unit) != ZI_GPU_RING_NONE)
		return ZI_GPU_RING_E_BUSY;
	reserve(ring, unit);
	ring->places[unit].use_count = 1;
	return ZI_GPU_RING_E_FRESH;
}

/* Something was queued for the chunks of the unit behind all that was queued there before. */
static void become_last(struct zi_gpu_ring *ring, uint32_t unit, uint64_t event)
{
	struct place *place = &ring->places[unit];

	assert(event);
	assert(place->presence == ZI_GPU_COMING);
	for (uint32_t i = 0; i < place->count; i++)
		chunk_of(ring, place, i)->last = unit;
	place->newest = event;
}

/* ---- copies ---- */

uint32_t zi_gpu_ring_waits(struct zi_gpu_ring *ring, uint32_t unit, const uint64_t **ret_events)
{
	const struct place *place = place_of(ring, unit);
	uint32_t count = 0;

	assert(place->presence == ZI_GPU_COMING);
	ring->walk++;
	for (uint32_t i = 0; i < place->count; i++) {
		const struct chunk *chunk = chunk_of(ring, place, i);
		struct place *last;

		assert(chunk->holder == unit);
		if (chunk->last == ZI_GPU_RING_NONE)
			continue;
		last = &ring->places[chunk->last];
		if (last->seen_by == ring->walk)
			continue;
		last->seen_by = ring->walk;
		ring->events[count++] = last->newest;
	}
	*ret_events = ring->events;
	return count;
}

void zi_gpu_ring_copied(struct zi_gpu_ring *ring, uint32_t unit, uint64_t event)
{
	struct place *place = place_of(ring, unit);

	become_last(ring, unit, event);
	place->copied = event;
	place->presence = ZI_GPU_PRESENT;
}

void zi_gpu_ring_cancel(struct zi_gpu_ring *ring, uint32_t unit)
{
	assert(place_of(ring, unit)->presence == ZI_GPU_COMING);
	leave(ring, unit);
}

void zi_gpu_ring_lost(struct zi_gpu_ring *ring, uint32_t unit, uint64_t event)
{
	become_last(ring, unit, event);
	leave(ring, unit);
}

/* ---- parameters ---- */

int zi_gpu_ring_unshard(struct zi_gpu_ring *ring, uint32_t unit, uint64_t *ret_event)
{
	struct place *place = place_of(ring, unit);

	if (place->presence == ZI_GPU_ABSENT)
		return reserve_for_use(ring, unit);
	place->use_count++;
	if (place->presence == ZI_GPU_COMING)
		return ZI_GPU_RING_E_COMING;
	*ret_event = place->copied;
	return 0;
}

void zi_gpu_ring_reshard(struct zi_gpu_ring *ring, uint32_t unit, uint64_t event)
{
	struct place *place = place_of(ring, unit);

	assert(place->presence == ZI_GPU_PRESENT);
	assert(place->use_count);
	place->use_count--;
	if (event)
		place->newest = event;
}

void zi_gpu_ring_void(struct zi_gpu_ring *ring, uint32_t unit)
{
	const struct place *place = place_of(ring, unit);

	assert(!place->use_count);
	if (place->presence != ZI_GPU_ABSENT)
		leave(ring, unit);
}

void zi_gpu_ring_pin(struct zi_gpu_ring *ring, uint32_t unit)
{
	struct place *place = place_of(ring, unit);

	assert(place->presence != ZI_GPU_ABSENT);
	place->is_pinned = true;
}

void zi_gpu_ring_unpin(struct zi_gpu_ring *ring, uint32_t unit)
{
	place_of(ring, unit)->is_pinned = false;
}

/* ---- prefetch ---- */

/* No earlier use needs a chunk of the place, and each holder there may be displaced. */
static bool is_open(const struct zi_gpu_ring *ring, const struct place *place)
{
	for (uint32_t i = 0; i < place->count; i++) {
		const struct chunk *chunk = chunk_of(ring, place, i);
		const struct place *held;

		if (chunk->claimed_by == ring->walk)
			return false;
		if (chunk->holder == ZI_GPU_RING_NONE)
			continue;
		held = &ring->places[chunk->holder];
		if (is_fixed(held) || held->presence == ZI_GPU_COMING)
			return false;
	}
	return true;
}

/* A use needs the place. Return: chunks of the ring that no earlier use needs. */
static uint32_t claim(struct zi_gpu_ring *ring, const struct place *place)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < place->count; i++) {
		struct chunk *chunk = chunk_of(ring, place, i);

		count += chunk->claimed_by != ring->walk;
		chunk->claimed_by = ring->walk;
	}
	return is_apart(ring, place) ? 0 : count;
}

bool zi_gpu_ring_prefetch(struct zi_gpu_ring *ring, const struct zi_order *order, uint32_t place,
                          uint32_t *ret_unit)
{
	uint32_t ahead_max = ZI_MIN(order->count, AHEAD_USES * ring->unit_count);
	uint32_t claimed_count = 0;

	assert(order->unit_count == ring->unit_count);
	if (!ring->absent_count)
		return false;
	ring->walk++;
	for (uint32_t ahead = 0; ahead < ahead_max; ahead++) {
		uint32_t unit = zi_order_ahead(order, place, ahead);
		/* The ring reaches no further: an earlier use needs each chunk. */
		bool is_full = claimed_count == ring->ring_count;
		struct place *next;

		if (unit == ZI_ORDER_NONE || (is_full && !ring->absent_apart_count))
			return false;
		next = place_of(ring, unit);
		if (next->seen_by == ring->walk || (is_full && !is_apart(ring, next)))
			continue;
		next->seen_by = ring->walk;
		if (next->presence == ZI_GPU_ABSENT && is_open(ring, next)) {
			reserve(ring, unit);
			*ret_unit = unit;
			return true;
		}
		claimed_count += claim(ring, next);
	}
	return false;
}

/* ---- gradients ---- */

int zi_gpu_ring_acquire(struct zi_gpu_ring *ring, uint32_t unit)
{
	const struct place *place = place_of(ring, unit);

	if (place->presence == ZI_GPU_ABSENT)
		return reserve_for_use(ring, unit);
	assert(place->presence == ZI_GPU_COMING);
	assert(place->use_count == 1);
	return 0;
}

void zi_gpu_ring_handed(struct zi_gpu_ring *ring, uint32_t unit, uint64_t event)
{
	assert(place_of(ring, unit)->use_count == 1);
	become_last(ring, unit, event);
	leave(ring, unit);
}
