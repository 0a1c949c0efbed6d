/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a store that answers late once (a packet lost and sent again, a machine without a CPU for a
 * moment) costs its time and no more; one that is gone is told in the link's own words. Method:
 * real workers on loopback, one of which reaches the store through a relay.
 */
#include "daemon/worker/store_client.h"
#include "tests/unit/worker/store_relay.h"

/* More than is asked for a single answer where the store may be cut off. */
#define SLOW_NS (500 * ZI_NS_PER_MS)

static struct store_relay relay;

/* Node 0 serves the store, node 1 comes through the relay. */
static void join_two(struct net_test *test, uint64_t timeout_ms)
{
	uint16_t port = test->port;

	test->epoch = 1;
	net_test_join_one(test, 0, NET_TEST_MS);
	test->port = relay.port;
	net_test_join_one(test, 1, timeout_ms);
	test->port = port;
}

Test(store_slow, a_late_answer_does_not_end_a_join)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 3);
	store_relay_open(&relay, &test);
	relay.key = "1/abort";
	relay.keep_ns = SLOW_NS;
	join_two(&test, NET_TEST_MS);
	while (!relay.is_over && !test.nodes[1].is_done)
		cr_assert_eq(zi_loop_run(test.loop), 0);
	net_test_join_one(&test, 2, NET_TEST_MS);
	net_test_run(&test);
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(test.nodes[i].request.error, 0, "node %u: %s", i,
		             test.nodes[i].request.text.chars);
	store_relay_close(&relay);
	net_test_deinit(&test);
}

static void expect_told(const struct net_test *test, int error, const char *says)
{
	for (uint32_t i = 0; i < test->node_count; i++) {
		cr_expect_eq(test->nodes[i].request.error, error, "node %u: %d", i,
		             test->nodes[i].request.error);
		cr_expect(strstr(test->nodes[i].request.text.chars, says), "node %u: %s", i,
		          test->nodes[i].request.text.chars);
	}
}

/* Node 1's other connection lives: the one that waits for it hears why it does not come. */
Test(store_slow, a_link_lost_in_a_join_is_told_at_once_in_its_own_words)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 3);
	store_relay_open(&relay, &test);
	relay.key = "1/abort";
	join_two(&test, NET_TEST_MS);
	net_test_run(&test);
	test.node_count = 2; /* The third never comes. */
	expect_told(&test, -EPIPE, "is gone: the first node's worker ended");
	test.node_count = 3;
	store_relay_close(&relay);
	net_test_deinit(&test);
}

Test(store_slow, a_store_that_answers_no_more_is_blamed_at_the_deadline_and_no_node)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 3);
	store_relay_open(&relay, &test);
	relay.key = "1/abort";
	relay.keep_ns = NET_TEST_MS * ZI_NS_PER_MS;
	join_two(&test, 400);
	net_test_run(&test);
	test.node_count = 2; /* The third never comes. */
	expect_told(&test, -ETIMEDOUT, "does not answer");
	test.node_count = 3;
	cr_expect(!relay.is_over);
	store_relay_close(&relay);
	net_test_deinit(&test);
}

/* Asked because things are slow, a node must not take that for the store's end. */
Test(store_slow, a_late_answer_does_not_end_the_watch)
{
	const struct net_asked asked = { .sequence = 7, .operation = 3 };
	uint64_t deadline_ns = zi_clock_deadline_ns(NET_TEST_MS * ZI_NS_PER_MS);
	struct store_client_options way = {
		.host = "127.0.0.1", .job = "gpt", .incarnation = "run.0", .name = "test"
	};
	struct net_test test = { .host = NULL };
	struct store_client *client;
	struct net_node *node = &test.nodes[1];
	struct zi_text text = { "" };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 2);
	store_relay_open(&relay, &test);
	join_two(&test, NET_TEST_MS);
	net_test_run(&test);
	cr_assert_eq(node->request.error, 0, "%s", node->request.text.chars);
	cr_assert_eq(
		net_worker_map(node->worker, &node->request, 0, node->slab_fd, NET_TEST_SLAB_BYTES),
		0);
	test.pending_count++;
	net_test_run(&test);
	relay.key = "1/asked/1";
	relay.keep_ns = SLOW_NS;
	test.sequence++;
	node->exchange = (struct net_exchange){ .kind = NET_MOVE };
	net_test_exchange_one(&test, 1, NET_TEST_MS);
	way.port = test.port;
	cr_assert_eq(store_client_open(&way, deadline_ns, &text, &client), 0, "%s", text.chars);
	cr_assert_eq(
		store_client_set(client, "1/asked/1", &asked, sizeof(asked), deadline_ns, NULL), 0);
	store_client_close(client);
	test.is_awaiting_question = true;
	while (!node->asked_count && !node->is_done)
		cr_assert_eq(zi_loop_run(test.loop), 0);
	test.is_awaiting_question = false;
	cr_expect(!node->is_done, "%s", node->request.text.chars);
	cr_expect(relay.is_over);
	cr_expect_eq(node->asked_count, 1);
	cr_expect_eq(node->asked.sequence, 7);
	/* It watches on. */
	net_worker_abort(test.nodes[0].worker, -ECANCELED, &(struct zi_text){ "rank 1 left" });
	net_test_run(&test);
	cr_expect(strstr(node->request.text.chars, "rank 1 left"), "%s", node->request.text.chars);
	store_relay_close(&relay);
	net_test_deinit(&test);
}
