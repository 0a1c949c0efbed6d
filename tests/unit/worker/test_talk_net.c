/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: daemons that talk through real workers hear each other in order, and what they pull is
 * right, while votes go; and who says more than there is room for waits, and loses nothing. Method:
 * two to four workers on loopback (talk_fixture.h).
 */
#include <signal.h>

#include "tests/unit/worker/talk_fixture.h"

#define ROUNDS      300u
#define PLACE_BYTES (1280u << 10)
#define PULLS       120u /* from each node */
#define FLOOD       20000u

TestSuite(talk_net, .timeout = 240);

/* ---- rounds ---- */

static void vote(struct net_node *node)
{
	struct net_test *test = node->test;
	struct talk_entry entries[NET_TEST_NODES_MAX];
	uint32_t self = index_of(node), count = 0;

	for (uint32_t i = 0; i < test->node_count; i++)
		if (i != self)
			entries[count++] = (struct talk_entry){ .kind = TALK_ROUND,
				                                .node = (uint16_t)i,
				                                .tag = talkers[self].round,
				                                .data_bytes = 1,
				                                .data = { (uint8_t)self } };
	cr_assert_eq(net_worker_talk_send(node->worker, entries, count), 0);
}

static bool has_all_votes(const struct net_test *test, uint32_t self)
{
	for (uint32_t i = 0; i < test->node_count; i++)
		if (i != self && talkers[self].votes[i] <= talkers[self].round)
			return false;
	return true;
}

static bool is_all_over(const struct net_test *test)
{
	for (uint32_t i = 0; i < test->node_count; i++)
		if (talkers[i].round < ROUNDS ||
		    talkers[i].answered < (test->node_count - 1) * PULLS)
			return false;
	return true;
}

static void hear_vote(struct net_node *node, const struct talk_entry *entry)
{
	struct talker *talker = &talkers[index_of(node)];

	/* Nobody is more than a round ahead of who has not voted. */
	cr_assert_eq(entry->tag, talker->votes[entry->node]++);
	cr_assert_eq(entry->data[0], entry->node);
	while (talker->round < ROUNDS && has_all_votes(node->test, index_of(node)))
		if (++talker->round < ROUNDS)
			vote(node);
}

/* ---- pulls ---- */

static uint64_t pull_bytes(uint64_t tag)
{
	uint64_t draw = tag * 0x9e3779b97f4a7c15ull >> 40;

	return tag % 3 ? 1 + draw % 70000 : 1 + draw % PLACE_BYTES;
}

static uint32_t pull_slab(uint64_t tag, bool is_served)
{
	return (tag >> is_served) % 2 ? NET_SLAB_TALK : NET_SLAB_PARAM;
}

/* In the slab of @node: one for each of its pulls, and behind those one for each it serves. */
static uint64_t place_of(const struct net_node *node, uint32_t other, uint64_t tag, bool is_served)
{
	uint32_t way = (other + NET_TEST_NODES_MAX - index_of(node)) % NET_TEST_NODES_MAX - 1;
	uint32_t pair = way + is_served * (NET_TEST_NODES_MAX - 1);

	return (pair * PLACES + tag % PLACES) * PLACE_BYTES;
}

/* The same for whoever asks or is asked. */
static void fill(char *bytes, uint64_t tag, uint32_t server, uint64_t count)
{
	uint64_t seed = tag * 64 + server + 1;

	for (uint64_t i = 0; i < count; i++)
		bytes[i] = (char)((seed * 31 + i * 7) ^ i >> 8);
}

static bool is_refused(uint64_t tag)
{
	return tag % 17 == 5;
}

static void pull(struct net_node *node, uint32_t from, uint64_t tag)
{
	uint64_t place = place_of(node, from, tag, false), bytes = pull_bytes(tag);

	memset(node->slab + place, 0xee, bytes);
	send_one(node, from,
	         (struct talk_entry){ .kind = TALK_PULL,
	                              .tag = tag,
	                              .step = (int64_t)tag,
	                              .offset_bytes = place,
	                              .bytes = bytes,
	                              .slab = pull_slab(tag, false) });
}

static void serve(struct net_node *node, const struct talk_entry *asked)
{
	struct talker *talker = &talkers[index_of(node)];
	struct talk_entry answer = { .kind = TALK_SERVE,
		                     .tag = asked->tag,
		                     .offset_bytes = place_of(node, asked->node, asked->tag, true),
		                     .bytes = asked->bytes,
		                     .slab = pull_slab(asked->tag, true) };

	cr_assert_eq(asked->bytes, pull_bytes(asked->tag));
	cr_assert_eq(asked->step, (int64_t)asked->tag);
	/* What was there before has gone by the time that it is asked for anew. */
	cr_assert_not(talker->lies[asked->node][asked->tag % PLACES]);
	if (is_refused(asked->tag)) {
		answer = (struct talk_entry){ .kind = TALK_REFUSED,
			                      .tag = asked->tag,
			                      .error = -ESTALE };
	} else {
		talker->lies[asked->node][asked->tag % PLACES] = 1;
		fill(node->slab + answer.offset_bytes, asked->tag, index_of(node), asked->bytes);
	}
	send_one(node, asked->node, answer);
}

static void hear_answer(struct net_node *node, const struct talk_entry *entry)
{
	struct talker *talker = &talkers[index_of(node)];
	static char expected[PLACE_BYTES];
	uint64_t place = place_of(node, entry->node, entry->tag, false);

	cr_assert_eq(entry->kind == TALK_REFUSED, is_refused(entry->tag));
	cr_assert(entry->offset_bytes == place && entry->bytes == pull_bytes(entry->tag) &&
	          entry->slab == pull_slab(entry->tag, false));
	if (entry->kind == TALK_CAME)
		fill(expected, entry->tag, entry->node, entry->bytes);
	else
		memset(expected, 0xee, entry->bytes);
	cr_assert_eq(memcmp(node->slab + place, expected, entry->bytes), 0, "pull %lu",
	             (unsigned long)entry->tag);
	talker->answered++;
	if (entry->tag + PLACES < PULLS)
		pull(node, entry->node, entry->tag + PLACES);
}

static void hear_gone(struct net_node *node, const struct talk_entry *entry)
{
	uint8_t *lies = &talkers[index_of(node)].lies[entry->node][entry->tag % PLACES];

	cr_assert(*lies && entry->offset_bytes == place_of(node, entry->node, entry->tag, true));
	*lies = 0;
	/* Nobody looks any more. */
	memset(node->slab + entry->offset_bytes, 0xaa, entry->bytes);
}

/* ---- what comes ---- */

static void talked(void *arg, const struct talk_entry *entries, uint32_t count)
{
	struct net_node *node = arg;

	for (uint32_t i = 0; i < count; i++) {
		if (entries[i].kind == TALK_ROUND)
			hear_vote(node, &entries[i]);
		else if (entries[i].kind == TALK_PULL)
			serve(node, &entries[i]);
		else if (entries[i].kind == TALK_GONE)
			hear_gone(node, &entries[i]);
		else
			hear_answer(node, &entries[i]);
	}
	zi_loop_stop(node->test->loop);
}

/* ---- what goes well ---- */

static void vote_and_pull(uint32_t node_count)
{
	struct net_test test;

	open_or_skip(&test, node_count, talked);
	for (uint32_t i = 0; i < node_count; i++) {
		vote(&test.nodes[i]);
		for (uint32_t k = 0; k < node_count; k++)
			for (uint64_t tag = 0; tag < PLACES && k != i; tag++)
				pull(&test.nodes[i], k, tag);
	}
	while (!is_all_over(&test))
		cr_assert_eq(zi_loop_run(test.loop), 0);
	close_talk(&test);
}

Test(talk_net, two_nodes_vote_and_pull)
{
	vote_and_pull(2);
}

Test(talk_net, four_nodes_vote_and_pull)
{
	vote_and_pull(4);
}

Test(talk_net, as_much_is_sent_as_there_is_room_for_and_nothing_is_lost)
{
	struct talk_entry entries[TALK_BATCH_MAX];
	uint64_t said = 0, refused = 0;
	struct net_test test;

	open_or_skip(&test, 2, talked_plainly);
	while (said < FLOOD) {
		uint32_t count = 1 + said % TALK_BATCH_MAX;
		int r;

		for (uint32_t i = 0; i < count; i++)
			entries[i] = (struct talk_entry){ .kind = TALK_READY,
				                          .node = 1,
				                          .tag = said + i };
		r = net_worker_talk_send(test.nodes[0].worker, entries, count);
		if (!r) {
			said += count;
			continue;
		}
		cr_assert_eq(r, -EAGAIN);
		run_until(&test, &talkers[0].writable, ++refused);
		refused = talkers[0].writable;
	}
	run_until(&test, &talkers[1].heard[TALK_READY], said);
	cr_expect_gt(refused, 0);
	close_talk(&test);
}

Test(talk_net, one_pull_more_than_may_be_waits_for_an_answer)
{
	struct talk_entry entry = { .kind = TALK_PULL, .node = 1, .slab = NET_SLAB_TALK };
	struct net_test test;

	open_or_skip(&test, 2, talked_plainly);
	entry.bytes = 1;
	for (; entry.tag < TALK_CREDIT; entry.tag++)
		cr_assert_eq(net_worker_talk_send(test.nodes[0].worker, &entry, 1), 0);
	run_until(&test, &talkers[1].heard[TALK_PULL], TALK_CREDIT);
	/* Other words have room. */
	send_one(&test.nodes[0], 1, (struct talk_entry){ .kind = TALK_READY });
	run_until(&test, &talkers[1].heard[TALK_READY], 1);
	cr_expect_eq(net_worker_talk_send(test.nodes[0].worker, &entry, 1), -EAGAIN);
	send_one(&test.nodes[1], 0,
	         (struct talk_entry){ .kind = TALK_REFUSED, .tag = 7, .error = -EIO });
	run_until(&test, &talkers[0].writable, 1);
	run_until(&test, &talkers[0].heard[TALK_REFUSED], 1);
	cr_expect(talkers[0].last.tag == 7 && talkers[0].last.error == -EIO);
	cr_expect_eq(net_worker_talk_send(test.nodes[0].worker, &entry, 1), 0);
	run_until(&test, &talkers[1].heard[TALK_PULL], TALK_CREDIT + 1);
	close_talk(&test);
}

/* What is said to nodes that there are none of is told when the worker goes on. */
Test(talk_net, a_worker_that_takes_nothing_refuses_for_a_while)
{
	uint32_t refused_by = 0;
	struct net_test test;

	open_or_skip(&test, 2, talked_plainly);
	send_one(&test.nodes[1], 0, (struct talk_entry){ .kind = TALK_READY });
	run_until(&test, &talkers[0].heard[TALK_READY], 1);
	net_test_kill(&test, 0, SIGSTOP);
	for (uint32_t i = 1; i < SUBTREE_NODES_MAX && !refused_by; i++)
		for (uint32_t k = 0; k < TALK_QUEUE && !refused_by; k++) {
			/* Of the one that there is, some may still come in between. */
			struct talk_entry entry = { .kind = TALK_READY,
				                    .node = (uint16_t)i,
				                    .tag = k };
			int r = net_worker_talk_send(test.nodes[0].worker, &entry, 1);

			refused_by = r == -EAGAIN ? i : 0;
		}
	if (refused_by) /* else its socket is a large one */
		run_until(&test, &talkers[0].writable, 1);
	net_test_kill(&test, 0, SIGCONT);
	await_over(&test);
	expect_over(&test, NET_CULPRIT_NONE, -EINVAL,
	            "there is no other node 2: this one is 0 of 2");
	close_talk(&test);
}

Test(talk_net, one_talk_follows_another)
{
	struct net_request other = { .done = net_test_done };
	struct net_test test;

	open_or_skip(&test, 2, talked_plainly);
	cr_expect_eq(net_worker_talk(test.nodes[0].worker, &other), -EBUSY);
	for (uint32_t i = 0; i < 5; i++) {
		struct talk_entry entry = { .kind = TALK_READY, .node = 1 };

		if (i)
			talk_all(&test);
		send_one(&test.nodes[0], 1, entry);
		run_until(&test, &talkers[1].heard[TALK_READY], 1);
		/* Nobody hears these any more, or some of them. */
		net_worker_abort(test.nodes[1].worker, -ECANCELED, &(struct zi_text){ "over" });
		for (uint32_t k = 1; k < TALK_QUEUE; k++) {
			entry.tag = k;
			cr_assert_eq(net_worker_talk_send(test.nodes[0].worker, &entry, 1), 0);
		}
		await_over(&test);
		expect_over(&test, NET_CULPRIT_NONE, -ECANCELED, "over");
	}
	close_talk(&test);
}
