/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real workers on loopback that talk (net_fixture.h), with the test as all their daemons, each with
 * a slab that is mapped as both slabs of a talk.
 */
#pragma once

#include "tests/unit/worker/net_fixture.h"

#define PLACES 4u /* pulls from one node at once, each with a place of its own */

struct talker {
	uint64_t round, votes[NET_TEST_NODES_MAX]; /* which is open; how many each other one gave */
	uint64_t answered;                         /* pulls, one way or the other */
	uint8_t lies[NET_TEST_NODES_MAX][PLACES];  /* what is served */
	/* Of tests that look for themselves. */
	uint64_t heard[_TALK_KIND_COUNT];
	uint64_t writable;
	struct talk_entry last;
};

static struct talker talkers[NET_TEST_NODES_MAX];

static inline uint32_t index_of(const struct net_node *node)
{
	return (uint32_t)(node - node->test->nodes);
}

static inline void send_one(struct net_node *node, uint32_t to, struct talk_entry entry)
{
	entry.node = (uint16_t)to;
	cr_assert_eq(net_worker_talk_send(node->worker, &entry, 1), 0);
}

static inline void talked_plainly(void *arg, const struct talk_entry *entries, uint32_t count)
{
	struct net_node *node = arg;
	struct talker *talker = &talkers[index_of(node)];

	for (uint32_t i = 0; i < count; i++) {
		if (entries[i].kind == TALK_READY)
			cr_assert_eq(entries[i].tag, talker->heard[TALK_READY]);
		talker->heard[entries[i].kind]++;
		talker->last = entries[i];
	}
	zi_loop_stop(node->test->loop);
}

static inline void writable(void *arg)
{
	struct net_node *node = arg;

	talkers[index_of(node)].writable++;
	zi_loop_stop(node->test->loop);
}

static inline void talk_one(struct net_test *test, uint32_t index)
{
	cr_assert_eq(net_worker_talk(test->nodes[index].worker, &test->nodes[index].request), 0);
	test->pending_count++;
}

static inline void talk_all(struct net_test *test)
{
	memset(talkers, 0, sizeof(talkers));
	net_test_join(test);
	for (uint32_t slab = NET_SLAB_TALK; slab <= NET_SLAB_PARAM; slab++) {
		for (uint32_t i = 0; i < test->node_count; i++) {
			cr_assert_eq(net_worker_map(test->nodes[i].worker, &test->nodes[i].request,
			                            slab, test->nodes[i].slab_fd,
			                            NET_TEST_SLAB_BYTES),
			             0);
			test->pending_count++;
		}
		net_test_run(test);
	}
	for (uint32_t i = 0; i < test->node_count; i++)
		talk_one(test, i);
}

static inline bool open_talk(struct net_test *test, uint32_t node_count, net_talked_fn fn)
{
	*test = (struct net_test){ .talked = fn, .writable = writable };
	if (!net_test_is_built(test))
		return false;
	net_test_init(test, node_count);
	talk_all(test);
	return true;
}

#define open_or_skip(test, node_count, fn)                                              \
	do {                                                                            \
		if (!open_talk(test, node_count, fn))                                   \
			cr_skip_test("%s is not built (libgloo-dev)", (test)->program); \
	} while (0)

/* Until @count is @wanted. */
static inline void run_until(struct net_test *test, const uint64_t *count, uint64_t wanted)
{
	while (*count < wanted)
		cr_assert_eq(zi_loop_run(test->loop), 0);
}

static inline void await_over(struct net_test *test)
{
	while (test->pending_count)
		cr_assert_eq(zi_loop_run(test->loop), 0);
}

static inline void expect_over(const struct net_test *test, uint32_t but, int error,
                               const char *says)
{
	for (uint32_t i = 0; i < test->node_count; i++) {
		const struct net_request *request = &test->nodes[i].request;
		struct talk_entry entry = { .kind = TALK_READY, .node = !i };

		cr_expect_eq(net_worker_talk_send(test->nodes[i].worker, &entry, 1), -ENOTCONN);
		if (i == but)
			continue;
		cr_expect_eq(request->error, error, "node %u: %d, %s", i, request->error,
		             request->text.chars);
		cr_expect(strstr(request->text.chars, says), "node %u: %s", i, request->text.chars);
	}
}

static inline void close_talk(struct net_test *test)
{
	if (test->pending_count) {
		net_worker_abort(test->nodes[0].worker, -ECANCELED,
		                 &(struct zi_text){ "all is said" });
		await_over(test);
		expect_over(test, NET_CULPRIT_NONE, -ECANCELED, "all is said");
	}
	net_test_deinit(test);
}
