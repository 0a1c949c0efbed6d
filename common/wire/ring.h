/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two ends of a single-producer single-consumer ring of 64-byte slots in shared memory, and the
 * sleep protocol around it. The producer's and consumer's own index and the geometry live in these
 * private structs; only the peer's index is read from shared memory. Floor 1; one thread per end.
 *
 * Sleeping (the protocol of io_uring's SQPOLL): the consumer sets need_wakeup, full fence, looks
 * again, then waits on its eventfd. The producer stores the tail (release), full fence, reads
 * need_wakeup, and writes the eventfd when set. Either the producer sees the flag or the consumer
 * sees the tail: both fences are needed (ring.c has the proof).
 *
 * push and pop are inline: an empty request through the daemon passes four of them in less than
 * half a microsecond. Each end remembers the peer's index as it saw it last and looks again only
 * when that says "full" or "empty": a look is a cache line that travels between two cores.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/layout.h"

struct zi_ring_producer {
	void *slots;
	uint32_t *tail;              /* own, shared */
	const uint32_t *head;        /* peer's, shared */
	const uint32_t *need_wakeup; /* peer's, shared */
	uint32_t tail_private;
	uint32_t head_seen; /* the peer's, checked */
	uint32_t entries;
};

struct zi_ring_consumer {
	const void *slots;
	uint32_t *head;        /* own, shared */
	const uint32_t *tail;  /* peer's, shared */
	uint32_t *need_wakeup; /* own, shared */
	uint32_t head_private;
	uint32_t tail_seen; /* the peer's, checked */
	uint32_t entries;
};

enum { _ZI_RING_E_SUCCESS, ZI_RING_E_FULL, ZI_RING_E_EMPTY };

/* Slots that may be pushed now, by a fresh look. -EPROTO when the peer's head lies. */
int zi_ring_free_count(struct zi_ring_producer *ring, uint32_t *ret_count);
/* Before sleeping: sets need_wakeup; true when it is safe to sleep (fence, ring looked at again).
 * false: there is work (or a lying tail, which the next pop reports); need_wakeup is unset. */
bool zi_ring_arm(struct zi_ring_consumer *ring);
/* After sleeping. */
void zi_ring_disarm(struct zi_ring_consumer *ring);

/* Views over a mapped pair of regions (geometry already checked by the caller). The own index is
 * read from the own region here, once: 0 in a fresh one. */
void zi_ring_sq_producer(struct zi_ring_producer *ring, void *uplink, const void *downlink,
                         uint32_t entries);
void zi_ring_sq_consumer(struct zi_ring_consumer *ring, const void *uplink, void *downlink,
                         uint32_t entries);
void zi_ring_cq_producer(struct zi_ring_producer *ring, const void *uplink, void *downlink,
                         uint32_t entries);
void zi_ring_cq_consumer(struct zi_ring_consumer *ring, void *uplink, const void *downlink,
                         uint32_t entries);

/**
 * zi_ring_push() - copy one slot in and publish it
 * @slot: (ZI_SLOT_BYTES,) bytes
 *
 * Return: 0; ZI_RING_E_FULL; -EPROTO when the peer's head lies. Context: the producing thread.
 */
static inline int zi_ring_push(struct zi_ring_producer *ring, const void *slot)
{
	uint32_t tail = ring->tail_private;

	if (tail - ring->head_seen >= ring->entries) {
		/* Acquire pairs with the release in zi_ring_pop(): the slot has been copied out. */
		ring->head_seen = __atomic_load_n(ring->head, __ATOMIC_ACQUIRE);
		if (tail - ring->head_seen > ring->entries) {
			ring->head_seen = tail - ring->entries; /* stays refused: "full" */
			return err_origin(-EPROTO);
		}
		if (tail - ring->head_seen == ring->entries)
			return ZI_RING_E_FULL;
	}
	memcpy((char *)ring->slots + (uint64_t)(tail & (ring->entries - 1)) * ZI_SLOT_BYTES, slot,
	       ZI_SLOT_BYTES);
	ring->tail_private = tail + 1;
	/* Release pairs with the acquire in zi_ring_pop(): who sees the tail sees the slot. */
	__atomic_store_n(ring->tail, tail + 1, __ATOMIC_RELEASE);
	return 0;
}

/**
 * zi_ring_pop() - copy one slot out, then release it
 * @ret_slot: (ZI_SLOT_BYTES,) bytes, private: check this copy and use only this copy
 *
 * Return: 0; ZI_RING_E_EMPTY; -EPROTO when the peer's tail lies. Context: the consuming thread.
 */
static inline int zi_ring_pop(struct zi_ring_consumer *ring, void *ret_slot)
{
	uint32_t head = ring->head_private;

	if (head == ring->tail_seen) {
		/* Acquire pairs with the release in zi_ring_push(). */
		uint32_t tail = __atomic_load_n(ring->tail, __ATOMIC_ACQUIRE);

		if (tail == head)
			return ZI_RING_E_EMPTY;
		if (tail - head > ring->entries)
			return err_origin(-EPROTO);
		ring->tail_seen = tail;
	}
	memcpy(ret_slot,
	       (const char *)ring->slots + (uint64_t)(head & (ring->entries - 1)) * ZI_SLOT_BYTES,
	       ZI_SLOT_BYTES);
	ring->head_private = head + 1;
	/* Release pairs with the acquire in zi_ring_push(): the slot is read before it is reused.
	 * It also keeps the compiler from reading the slot a second time instead of the copy. */
	__atomic_store_n(ring->head, head + 1, __ATOMIC_RELEASE);
	return 0;
}

/* Whether a pop would find something (or a lie). Context: the consuming thread. */
static inline bool zi_ring_has_work(const struct zi_ring_consumer *ring)
{
	return ring->tail_seen != ring->head_private ||
	       __atomic_load_n(ring->tail, __ATOMIC_ACQUIRE) != ring->head_private;
}

/* After one or more pushes: whether the consumer must be woken. The fence pairs with the one in
 * zi_ring_arm() (proof in ring.c). Context: the producing thread. */
static inline bool zi_ring_must_wake(const struct zi_ring_producer *ring)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(ring->need_wakeup, __ATOMIC_RELAXED) != 0;
}
