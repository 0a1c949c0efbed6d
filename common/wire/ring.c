/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cold half of the ring: views over the regions, and sleeping. Floor 1.
 *
 * Why no slot is read before it is written, or written before it was read: each shared index has
 * one writer. push() stores the tail with release after the slot's bytes; pop() loads it with
 * acquire before it copies them. pop() stores the head with release after the copy; push() loads it
 * with acquire before it writes over the slot. A remembered index is an older value of the same
 * word: it only says "full" or "empty" too early, and then is read anew.
 *
 * Why no wake-up is lost. The producer does
 *     P1 store tail       P2 full fence       P3 load need_wakeup
 * and the consumer, before it sleeps,
 *     C1 store need_wakeup = 1       C2 full fence       C3 load tail
 * The two fences lie in one total order (C11 7.17.4, sequentially consistent fences). If P2 is
 * before C2, C3 sees P1's tail or a later one: the consumer does not sleep. If C2 is before P2, P3
 * sees C1's flag: the producer writes the eventfd, and the consumer's poll() returns, however late
 * it began. Without P2 the processor may read the flag while the tail still waits in its store
 * buffer (x86 does just that), and both sides may miss each other; millions of stress rounds do not
 * find it. The flag stays 1 until disarm(): a producer that sees it late writes the eventfd once
 * too often, and the consumer wakes for nothing: harmless.
 */
#include "common/wire/ring.h"

static void assert_geometry(uint32_t entries)
{
	assert(entries > 0);
	assert(entries <= ZI_RING_ENTRIES_MAX);
	assert(!(entries & (entries - 1)));
	(void)entries; /* Only asserted. */
}

/* A producer over its words: looks at the peer's head before the first push. */
static void producer_init(struct zi_ring_producer *ring, void *slots, struct zi_line *tail,
                          const struct zi_line *head, const struct zi_line *need_wakeup,
                          uint32_t entries)
{
	assert_geometry(entries);
	*ring = (struct zi_ring_producer){
		.slots = slots,
		.tail = &tail->value,
		.head = &head->value,
		.need_wakeup = &need_wakeup->value,
		.tail_private = tail->value,
		.head_seen = tail->value - entries,
		.entries = entries,
	};
}

/* A consumer over its words: looks at the peer's tail before the first pop. */
static void consumer_init(struct zi_ring_consumer *ring, const void *slots, struct zi_line *head,
                          const struct zi_line *tail, struct zi_line *need_wakeup, uint32_t entries)
{
	assert_geometry(entries);
	*ring = (struct zi_ring_consumer){
		.slots = slots,
		.head = &head->value,
		.tail = &tail->value,
		.need_wakeup = &need_wakeup->value,
		.head_private = head->value,
		.tail_seen = head->value,
		.entries = entries,
	};
}

/* The client's end of the SQ. @uplink writable, @downlink read-only; both outlive @ring. */
void zi_ring_sq_producer(struct zi_ring_producer *ring, void *uplink, const void *downlink,
                         uint32_t entries)
{
	struct zi_uplink_header *up = uplink;
	const struct zi_downlink_header *down = downlink;

	producer_init(ring, (char *)uplink + ZI_UPLINK_SQ_OFFSET, &up->sq_tail, &down->sq_head,
	              &down->sq_need_wakeup, entries);
}

/* The daemon's end of the SQ. @uplink read-only, @downlink writable. */
void zi_ring_sq_consumer(struct zi_ring_consumer *ring, const void *uplink, void *downlink,
                         uint32_t entries)
{
	const struct zi_uplink_header *up = uplink;
	struct zi_downlink_header *down = downlink;

	consumer_init(ring, (const char *)uplink + ZI_UPLINK_SQ_OFFSET, &down->sq_head,
	              &up->sq_tail, &down->sq_need_wakeup, entries);
}

/* The daemon's end of the CQ. @uplink read-only, @downlink writable. */
void zi_ring_cq_producer(struct zi_ring_producer *ring, const void *uplink, void *downlink,
                         uint32_t entries)
{
	const struct zi_uplink_header *up = uplink;
	struct zi_downlink_header *down = downlink;

	producer_init(ring, (char *)downlink + ZI_DOWNLINK_CQ_OFFSET, &down->cq_tail, &up->cq_head,
	              &up->cq_need_wakeup, entries);
}

/* The client's end of the CQ. @uplink writable, @downlink read-only. */
void zi_ring_cq_consumer(struct zi_ring_consumer *ring, void *uplink, const void *downlink,
                         uint32_t entries)
{
	struct zi_uplink_header *up = uplink;
	const struct zi_downlink_header *down = downlink;

	consumer_init(ring, (const char *)downlink + ZI_DOWNLINK_CQ_OFFSET, &up->cq_head,
	              &down->cq_tail, &up->cq_need_wakeup, entries);
}

/**
 * zi_ring_free_count() - how many pushes will succeed now
 * @ret_count: 0 … entries
 *
 * Return: 0, or -EPROTO when the peer's head lies. Context: the producing thread.
 */
int zi_ring_free_count(struct zi_ring_producer *ring, uint32_t *ret_count)
{
	/* Acquire pairs with the release in zi_ring_pop(), as in zi_ring_push(). */
	uint32_t head = __atomic_load_n(ring->head, __ATOMIC_ACQUIRE);
	uint32_t used = ring->tail_private - head;

	if (used > ring->entries)
		return err_origin(-EPROTO);
	ring->head_seen = head;
	*ret_count = ring->entries - used;
	return 0;
}

/**
 * zi_ring_arm() - ask to be woken, and look once more
 *
 * Return: true when it is safe to sleep on the eventfd; false, and not armed, when there is work.
 * Context: the consuming thread.
 */
bool zi_ring_arm(struct zi_ring_consumer *ring)
{
	__atomic_store_n(ring->need_wakeup, 1u, __ATOMIC_RELAXED);
	/* Pairs with the fence in zi_ring_must_wake(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!zi_ring_has_work(ring))
		return true;
	zi_ring_disarm(ring);
	return false;
}

/* Takes the wish to be woken back. Relaxed: a producer that reads the old flag wakes us once more.
 */
void zi_ring_disarm(struct zi_ring_consumer *ring)
{
	__atomic_store_n(ring->need_wakeup, 0u, __ATOMIC_RELAXED);
}
