/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a ring hands slots over in order, knows full from empty across the wrap of 2^32, refuses a
 * peer whose index lies, and never sleeps on work. Method: both ends in one thread over plain
 * memory; the peer's words are written by hand where it is hostile. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/ring.h"

#define ENTRIES 8u

struct pair {
	struct zi_uplink_header *up;
	struct zi_downlink_header *down;
	struct zi_ring_producer sq_producer;
	struct zi_ring_consumer sq_consumer;
	struct zi_ring_producer cq_producer;
	struct zi_ring_consumer cq_consumer;
};

/* Both rings with all four own indices at @first. */
static void pair_init(struct pair *pair, uint32_t first)
{
	uint64_t up_bytes = zi_uplink_bytes(ENTRIES), down_bytes = zi_downlink_bytes(ENTRIES);

	pair->up = memset(aligned_alloc(4096, up_bytes), 0, up_bytes);
	pair->down = memset(aligned_alloc(4096, down_bytes), 0, down_bytes);
	pair->up->sq_tail.value = pair->up->cq_head.value = first;
	pair->down->sq_head.value = pair->down->cq_tail.value = first;
	zi_ring_sq_producer(&pair->sq_producer, pair->up, pair->down, ENTRIES);
	zi_ring_sq_consumer(&pair->sq_consumer, pair->up, pair->down, ENTRIES);
	zi_ring_cq_producer(&pair->cq_producer, pair->up, pair->down, ENTRIES);
	zi_ring_cq_consumer(&pair->cq_consumer, pair->up, pair->down, ENTRIES);
}

static void pair_deinit(struct pair *pair)
{
	free(pair->up);
	free(pair->down);
}

static int push(struct pair *pair, uint64_t number)
{
	struct zi_sqe sqe = { .user_data = number, .args = { [5] = ~number } };

	return zi_ring_push(&pair->sq_producer, &sqe);
}

static int pop(struct pair *pair, uint64_t *ret_number)
{
	struct zi_sqe sqe;
	int r = zi_ring_pop(&pair->sq_consumer, &sqe);

	if (!r) {
		cr_assert_eq(sqe.args[5], ~sqe.user_data, "a whole slot");
		*ret_number = sqe.user_data;
	}
	return r;
}

Test(ring, slots_come_out_in_order_across_the_wrap_of_2_to_the_32)
{
	struct pair pair;
	uint64_t number;

	pair_init(&pair, UINT32_MAX - 9);
	for (uint64_t i = 0, next = 0; i < 40; i++) {
		cr_assert_eq(push(&pair, 2 * i), 0);
		cr_assert_eq(push(&pair, 2 * i + 1), 0);
		for (int k = 0; k < 2; k++, next++) {
			cr_assert_eq(pop(&pair, &number), 0);
			cr_assert_eq(number, next);
		}
	}
	cr_assert_eq(pair.up->sq_tail.value, 70, "wrapped");
	pair_deinit(&pair);
}

Test(ring, full_and_empty_are_conditions_at_any_index)
{
	const uint32_t firsts[] = { 0, 5, UINT32_MAX, UINT32_MAX - ENTRIES, 0x80000000u };

	for (size_t k = 0; k < 5; k++) {
		struct pair pair;
		uint64_t number = 77;
		uint32_t free_count = 77;

		pair_init(&pair, firsts[k]);
		cr_assert_eq(pop(&pair, &number), ZI_RING_E_EMPTY);
		cr_assert_eq(number, 77);
		for (uint32_t i = 0; i < ENTRIES; i++) {
			cr_assert_eq(zi_ring_free_count(&pair.sq_producer, &free_count), 0);
			cr_assert_eq(free_count, ENTRIES - i);
			cr_assert_eq(push(&pair, i), 0);
		}
		cr_assert_eq(push(&pair, 99), ZI_RING_E_FULL);
		cr_assert_eq(zi_ring_free_count(&pair.sq_producer, &free_count), 0);
		cr_assert_eq(free_count, 0);
		cr_assert_eq(pop(&pair, &number), 0);
		cr_assert_eq(push(&pair, ENTRIES), 0, "one slot is free again");
		for (uint64_t i = 1; i <= ENTRIES; i++) {
			cr_assert_eq(pop(&pair, &number), 0);
			cr_assert_eq(number, i);
		}
		cr_assert_eq(pop(&pair, &number), ZI_RING_E_EMPTY);
		pair_deinit(&pair);
	}
}

Test(ring, hostile_tail_is_eproto_and_takes_no_slot)
{
	const uint32_t lies[] = { ENTRIES + 1, 1000, 0x80000000u, UINT32_MAX /* one back */ };

	for (size_t k = 0; k < 4; k++) {
		struct pair pair;
		uint64_t number;

		pair_init(&pair, 100);
		cr_assert_eq(push(&pair, 1), 0);
		cr_assert_eq(pop(&pair, &number), 0);
		pair.up->sq_tail.value = 101 + lies[k];
		cr_assert_eq(pop(&pair, &number), -EPROTO);
		cr_assert_eq(pop(&pair, &number), -EPROTO, "and again");
		cr_assert_eq(pair.down->sq_head.value, 101);
		cr_assert(zi_ring_has_work(&pair.sq_consumer), "so that somebody pops and sees it");
		pair_deinit(&pair);
	}
}

Test(ring, hostile_head_is_eproto_and_writes_no_slot)
{
	const uint32_t lies[] = { 1 /* ahead of the tail */, 1000, 0x80000000u, -(ENTRIES + 1) };

	for (size_t k = 0; k < 4; k++) {
		struct pair pair;
		uint32_t free_count;

		pair_init(&pair, 100);
		pair.down->sq_head.value = 100 + lies[k];
		cr_assert_eq(push(&pair, 1), -EPROTO);
		cr_assert_eq(push(&pair, 1), -EPROTO, "and again");
		cr_assert_eq(zi_ring_free_count(&pair.sq_producer, &free_count), -EPROTO);
		cr_assert_eq(pair.up->sq_tail.value, 100);
		pair_deinit(&pair);
	}
}

Test(ring, own_index_is_never_read_again)
{
	struct pair pair;
	uint64_t number;

	pair_init(&pair, 0);
	cr_assert_eq(push(&pair, 1), 0);
	pair.down->sq_head.value = 7; /* scribbled over: our own word */
	cr_assert_eq(pop(&pair, &number), 0);
	cr_assert_eq(number, 1);
	cr_assert_eq(pair.down->sq_head.value, 1);
	pair_deinit(&pair);
}

Test(ring, completions_travel_the_other_way)
{
	struct pair pair;
	struct zi_cqe in = { .user_data = 5, .result = -EIO, .text_index = 3 }, out;

	pair_init(&pair, 0);
	cr_assert_eq(zi_ring_pop(&pair.cq_consumer, &out), ZI_RING_E_EMPTY);
	cr_assert_eq(zi_ring_push(&pair.cq_producer, &in), 0);
	cr_assert_eq(zi_ring_pop(&pair.cq_consumer, &out), 0);
	cr_assert_eq(memcmp(&in, &out, sizeof(in)), 0);
	cr_assert_eq(pair.up->cq_head.value, 1);
	cr_assert_eq(pair.down->cq_tail.value, 1);
	cr_assert_eq(pair.up->sq_tail.value, 0, "rings do not touch each other");
	pair_deinit(&pair);
}

Test(ring, armed_consumer_must_be_woken_and_others_not)
{
	struct pair pair;
	uint64_t number;

	pair_init(&pair, 0);
	cr_assert_eq(push(&pair, 1), 0);
	cr_assert_not(zi_ring_must_wake(&pair.sq_producer), "it is awake");
	cr_assert_not(zi_ring_arm(&pair.sq_consumer), "there is work: do not sleep");
	cr_assert_not(zi_ring_must_wake(&pair.sq_producer), "and it disarmed itself");
	cr_assert_eq(pop(&pair, &number), 0);
	cr_assert(zi_ring_arm(&pair.sq_consumer));
	cr_assert(zi_ring_must_wake(&pair.sq_producer));
	zi_ring_disarm(&pair.sq_consumer);
	cr_assert_not(zi_ring_must_wake(&pair.sq_producer));
	pair.up->sq_tail.value = 1000;
	cr_assert_not(zi_ring_arm(&pair.sq_consumer), "a lie is work too");
	pair_deinit(&pair);
}
