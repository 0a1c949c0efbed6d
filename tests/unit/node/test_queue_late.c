/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: when a batch of messages is late, because of its own peers or of batches before it, the
 * peer that is waited for is named, whatever else is under way.
 * Method: rank 0 with a queue (world.h), whose peers do not come.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "libclient/coll/node/queue.h"
#include "tests/unit/node/world.h"

static struct zi_node_queue *queue;
static struct rank ranks[3];
static struct world world;

static void setup(void)
{
	world_open(&world, ranks, 3, 1);
	cr_assert_eq(zi_node_queue_new(&queue), 0);
}

static void teardown(void)
{
	queue = zi_node_queue_free(queue);
	world_close(&world, ranks);
}

static struct zi_node_op batch_of(struct zi_node_p2p *p2ps, uint32_t p2p_count, uint64_t timeout_ns)
{
	return (struct zi_node_op){ .group = &ranks[0].group,
		                    .call.timeout_ns = timeout_ns,
		                    .p2ps = p2ps,
		                    .p2p_count = p2p_count };
}

/* Of what has begun, it is not the oldest that holds up a late message, but that of the same pair;
 * the last batch waits for another one that has not begun itself. */
Test(queue_late, who_holds_up_a_late_message_is_named)
{
	static const struct {
		bool is_send;
		uint32_t peer;
	} messages[] = { { false, 2 }, { true, 1 }, { true, 1 }, { true, 1 } };
	enum { COUNT = ZI_COUNT_OF(messages) };
	int32_t words[COUNT] = { 0 };
	struct zi_node_p2p p2ps[COUNT];
	struct zi_node_op ops[COUNT];

	for (uint32_t late = 2; late < COUNT; late++) {
		setup();
		for (uint32_t i = 0; i < COUNT; i++) {
			p2ps[i] = (struct zi_node_p2p){ .is_send = messages[i].is_send,
				                        .dtype = ZI_DTYPE_I32,
				                        .peer = messages[i].peer,
				                        .element_count = 1,
				                        .buffer = &words[i] };
			ops[i] = batch_of(&p2ps[i], 1,
			                  i == late ? 5 * ZI_NS_PER_MS : 600 * ZI_NS_PER_S);
			cr_assert_eq(zi_node_queue_submit(queue, &ops[i]), 0);
		}
		for (uint32_t i = 0; i < COUNT; i++) {
			cr_assert(zi_node_queue_wait(queue, &ops[i], ZI_DEADLINE_NEVER));
			cr_expect_eq(ops[i].result, -ETIMEDOUT);
			cr_expect_eq(ops[i].culprit, 1, "call %u: %u", i, ops[i].culprit);
			cr_expect_str_eq(
				ops[i].text.chars,
				i == 1 ? "send of 1 × i32: member 1 did not take it in time"
				       : "group 0 is broken (ETIMEDOUT): make another one");
		}
		teardown();
	}
}

/* Of a batch that holds up a late send to 1, that is the message, not the one from 2, which has
 * time. */
Test(queue_late, of_a_batch_the_message_that_is_waited_for_is_named)
{
	int32_t words[3] = { 0 };
	struct zi_node_p2p p2ps[3] = { { .peer = 2 },
		                       { .is_send = true, .peer = 1 },
		                       { .is_send = true, .peer = 1 } };
	struct zi_node_op ops[2];

	setup();
	for (uint32_t i = 0; i < 3; i++) {
		p2ps[i].dtype = ZI_DTYPE_I32;
		p2ps[i].element_count = 1;
		p2ps[i].buffer = &words[i];
	}
	for (uint32_t i = 0; i < 2; i++) {
		ops[i] = batch_of(&p2ps[2 * i], 2 - i, i ? 5 * ZI_NS_PER_MS : 600 * ZI_NS_PER_S);
		cr_assert_eq(zi_node_queue_submit(queue, &ops[i]), 0);
	}
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert(zi_node_queue_wait(queue, &ops[i], ZI_DEADLINE_NEVER));
		cr_expect_eq(ops[i].result, -ETIMEDOUT);
	}
	cr_expect_str_eq(ops[0].text.chars, "send of 1 × i32: member 1 did not take it in time");
	cr_expect_eq(ops[0].culprit, 1);
	cr_expect_eq(ranks[0].group.failure.operation, ZI_COLL_SEND);
	cr_expect_eq(ranks[0].group.failure.root, 1);
	cr_expect_eq(ranks[0].group.failure.timeout_ns, 5 * ZI_NS_PER_MS);
	teardown();
}
