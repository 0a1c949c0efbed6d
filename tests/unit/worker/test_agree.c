/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a node that makes no group after all, though it had agreed to, or that cannot join, is
 * heard of by those who join, long before their deadline. Method: workers of two nodes that have
 * met, and others that are asked as a daemon asks a group's.
 */
#include "tests/unit/worker/net_fixture.h"

TestSuite(agree, .timeout = 120);

#define PATIENT_MS 3600000u
#define SHORT_MS   300u

/* Nodes 0 and 1 have met by the first two workers, of which the first serves the store. */
enum { MEETING_NODES = 2, GROUP_OF_0 = 2, GROUP_OF_1 = 3 };

static struct net_test test;
static struct net_meet meets[MEETING_NODES];
static struct net_agree agrees[NET_TEST_NODES_MAX];

static void fill_way(struct net_way *way)
{
	*way = (struct net_way){ .place = { .host = "127.0.0.1", .port = test.port },
		                 .job = "gpt",
		                 .incarnation = "run.0",
		                 .run = test.nodes[0].request.reply.run };
}

static void begin(void)
{
	net_test_init(&test, NET_TEST_NODES_MAX);
	for (uint32_t i = 0; i < MEETING_NODES; i++) {
		struct net_node *node = &test.nodes[i];

		meets[i] = (struct net_meet){ .ranks = 1u << i,
			                      .world_size = MEETING_NODES,
			                      .opening = 1,
			                      .timeout_ms = NET_TEST_MS };
		fill_way(&meets[i].way);
		meets[i].way.run = 0;
		cr_assert_eq(net_worker_meet(node->worker, &node->request, &meets[i]), 0);
		test.pending_count++;
	}
	net_test_run(&test);
	for (uint32_t i = 0; i < MEETING_NODES; i++)
		cr_assert_eq(test.nodes[i].request.error, 0, "%s",
		             test.nodes[i].request.text.chars);
}

/* Worker @index says for node @node that it makes group 2 of both, or why it does not. */
static void agree(uint32_t index, uint32_t node, int error)
{
	struct net_agree *message = &agrees[index];

	*message = (struct net_agree){ .node = node,
		                       .node_count = MEETING_NODES,
		                       .epoch = 2,
		                       .members = error ? 0 : 3,
		                       .world_size = MEETING_NODES,
		                       .error = error,
		                       .timeout_ms = NET_TEST_MS,
		                       .nodes = { 0, 1 } };
	fill_way(&message->way);
	if (error)
		zi_text_set(&message->text, "rank 0 gave up");
	cr_assert_eq(
		net_worker_agree(test.nodes[index].worker, &test.nodes[index].request, message), 0);
	test.pending_count++;
}

static void join(uint32_t index, uint32_t node, uint32_t node_count, uint64_t timeout_ms)
{
	struct net_node *of = &test.nodes[index];

	of->join = (struct net_join){ .node = node,
		                      .node_count = node_count,
		                      .epoch = 2,
		                      .timeout_ms = timeout_ms,
		                      .flags = NET_JOIN_AS_CLIENT };
	fill_way(&of->join.way);
	cr_assert_eq(net_worker_join(of->worker, &of->request, &of->join), 0);
	test.pending_count++;
}

static void expect_error(uint32_t index, int error, const char *part)
{
	const struct net_request *request = &test.nodes[index].request;

	cr_expect_eq(request->error, error, "%d: %s", request->error, request->text.chars);
	cr_expect(strstr(request->text.chars, part), "'%s' is not in: %s", part,
	          request->text.chars);
}

/* Node 0's word is in the store when it thinks better of it, before node 1 joins, or while. */
static void give_up_after_agreeing(bool is_joining)
{
	net_test_skip_unless_built(&test);
	begin();
	agree(GROUP_OF_0, 0, 0);
	agree(GROUP_OF_1, 1, 0);
	net_test_run(&test);
	cr_assert_eq(test.nodes[GROUP_OF_0].request.error, 0);
	cr_assert_eq(test.nodes[GROUP_OF_1].request.error, 0);
	if (is_joining)
		join(GROUP_OF_1, 1, MEETING_NODES, PATIENT_MS);
	agree(GROUP_OF_0, 0, -ETIMEDOUT);
	if (!is_joining) {
		net_test_run(&test);
		join(GROUP_OF_1, 1, MEETING_NODES, PATIENT_MS);
	}
	net_test_run(&test);
	expect_error(GROUP_OF_0, -ETIMEDOUT, "rank 0 gave up");
	expect_error(GROUP_OF_1, -ETIMEDOUT, "rank 0 gave up");
	net_test_deinit(&test);
}

Test(agree, who_thinks_better_of_it_is_heard_by_those_who_join_later)
{
	give_up_after_agreeing(false);
}

Test(agree, who_thinks_better_of_it_is_heard_by_those_who_are_joining)
{
	give_up_after_agreeing(true);
}

/* Of three nodes one never comes: who waits for it longest hears what the other one did. */
Test(agree, who_cannot_join_tells_those_who_wait)
{
	net_test_skip_unless_built(&test);
	begin();
	join(GROUP_OF_1, 1, 3, PATIENT_MS);
	join(GROUP_OF_0, 0, 3, SHORT_MS);
	net_test_run(&test);
	expect_error(GROUP_OF_0, -ETIMEDOUT, "node 2 of 3 did not come within");
	expect_error(GROUP_OF_1, -ETIMEDOUT, "node 2 of 3 did not come within");
	net_test_deinit(&test);
}
