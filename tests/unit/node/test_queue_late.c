/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: when a batch of messages is late, because of its own peers or of batches before it, the
 * peer that is waited for is named, whatever else is under way; what has no peer is never late.
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

/* Each of @p2ps, (@count,), carries one of @words. */
static void give_words(struct zi_node_p2p *p2ps, int32_t *words, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		p2ps[i].dtype = ZI_DTYPE_I32;
		p2ps[i].element_count = 1;
		p2ps[i].buffer = &words[i];
	}
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
	give_words(p2ps, words, 3);
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

/* Peers 65 and 66 would share bits with members 1 and 2, to which messages are under way. */
Test(queue_late, what_has_no_peer_is_refused_at_once_whatever_is_under_way)
{
	int32_t words[4] = { 0 };
	struct zi_node_p2p p2ps[4] = { { .is_send = true, .peer = 1 },
		                       { .is_send = false, .peer = 2 },
		                       { .is_send = true, .peer = 65 },
		                       { .is_send = false, .peer = 66 } };
	struct zi_node_op ops[3];

	setup();
	give_words(p2ps, words, 4);
	ops[0] = batch_of(&p2ps[0], 2, 600 * ZI_NS_PER_S);
	for (uint32_t i = 1; i < 3; i++)
		ops[i] = batch_of(&p2ps[1 + i], 1, 5 * ZI_NS_PER_MS);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(zi_node_queue_submit(queue, &ops[i]), 0);
	for (uint32_t i = 1; i < 3; i++) {
		cr_assert(
			zi_node_queue_wait(queue, &ops[i], zi_clock_deadline_ns(60 * ZI_NS_PER_S)),
			"call %u", i);
		cr_expect_eq(ops[i].result, -EINVAL);
		cr_expect_not_null(strstr(ops[i].text.chars, i == 1 ? "65" : "66"), "%s",
		                   ops[i].text.chars);
	}
	cr_expect_not(zi_node_op_is_done(&ops[0]));
	teardown();
}

/* The batch begins by its receive from 2; the group is not over by what goes to nobody. */
Test(queue_late, a_batch_with_no_peer_does_not_end_the_group)
{
	int32_t words[3] = { 0 };
	struct zi_node_p2p p2ps[3] = { { .is_send = true, .peer = 1 },
		                       { .is_send = true, .peer = 65 },
		                       { .is_send = false, .peer = 2 } };
	struct zi_node_op ops[2];

	setup();
	give_words(p2ps, words, 3);
	ops[0] = batch_of(&p2ps[0], 1, 600 * ZI_NS_PER_S);
	ops[1] = batch_of(&p2ps[1], 2, 5 * ZI_NS_PER_MS);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(zi_node_queue_submit(queue, &ops[i]), 0);
	cr_assert(zi_node_queue_wait(queue, &ops[1], ZI_DEADLINE_NEVER));
	cr_expect_eq(ops[1].result, -EINVAL, "%s", ops[1].text.chars);
	cr_expect_not(zi_node_op_is_done(&ops[0]));
	teardown();
}
