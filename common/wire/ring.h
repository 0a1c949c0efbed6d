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
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/layout.h"

struct zi_ring_producer {
	void *slots;
	uint32_t *tail;              /* own, shared */
	const uint32_t *head;        /* peer's, shared */
	const uint32_t *need_wakeup; /* peer's, shared */
	uint32_t tail_private;
	uint32_t entries;
};

struct zi_ring_consumer {
	const void *slots;
	uint32_t *head;       /* own, shared */
	const uint32_t *tail; /* peer's, shared */
	uint32_t *need_wakeup; /* own, shared */
	uint32_t head_private;
	uint32_t entries;
};

/* Copies one slot in and publishes it. 0; ZI_RING_E_FULL; -EPROTO when the peer's head lies. */
enum { _ZI_RING_E_SUCCESS, ZI_RING_E_FULL, ZI_RING_E_EMPTY };
int zi_ring_push(struct zi_ring_producer *ring, const void *slot);
/* Copies one slot out, then releases it. 0; ZI_RING_E_EMPTY; -EPROTO when the peer's tail lies. */
int zi_ring_pop(struct zi_ring_consumer *ring, void *ret_slot);
/* Slots that may be pushed now. -EPROTO as above. */
int zi_ring_free_count(const struct zi_ring_producer *ring, uint32_t *ret_count);
bool zi_ring_has_work(const struct zi_ring_consumer *ring);
/* After one or more pushes: whether the consumer must be woken (full fence inside). */
bool zi_ring_must_wake(const struct zi_ring_producer *ring);
/* Before sleeping: sets need_wakeup; true when it is safe to sleep (fence, ring looked at again). */
bool zi_ring_arm(struct zi_ring_consumer *ring);
void zi_ring_disarm(struct zi_ring_consumer *ring);

/* Views over a mapped pair of regions (geometry already checked by the caller). */
void zi_ring_sq_producer(struct zi_ring_producer *ring, void *uplink, const void *downlink,
			 uint32_t entries);
void zi_ring_sq_consumer(struct zi_ring_consumer *ring, const void *uplink, void *downlink,
			 uint32_t entries);
void zi_ring_cq_producer(struct zi_ring_producer *ring, const void *uplink, void *downlink,
			 uint32_t entries);
void zi_ring_cq_consumer(struct zi_ring_consumer *ring, void *uplink, const void *downlink,
			 uint32_t entries);
