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
	expect_told(&test, -EPIPE, "is gone: zinf-net of the first node ended");
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

/* ---- whose fault it is that nobody comes ---- */

/* Enough for what comes before the gap on a busy machine. */
enum { GAP_MS = 1000 };

/* What happens to which request, and what is to be said of it; no rank and no node has a part. */
struct gap {
	const char *key;
	uint32_t skip_count;
	uint64_t keep_ns;
	int error;
	const char *says;
};

static void open_gap(const struct net_test *test, const struct gap *gap)
{
	store_relay_open(&relay, test);
	relay.type = STORE_WAIT;
	relay.key = gap->key;
	relay.skip_count = gap->skip_count;
	relay.keep_ns = gap->keep_ns;
}

static void expect_gap(const struct net_test *test, uint32_t index, const struct gap *gap)
{
	const struct net_request *request = &test->nodes[index].request;

	cr_expect_eq(request->error, gap->error, "%d: %s", request->error, request->text.chars);
	cr_expect(strstr(request->text.chars, gap->says), "%s", request->text.chars);
	cr_expect(!strstr(request->text.chars, "did not"), "%s", request->text.chars);
}

static struct net_way way_to(uint16_t port)
{
	return (struct net_way){ .place = { .host = "127.0.0.1", .port = port },
		                 .job = "gpt",
		                 .incarnation = "run.0" };
}

static void meet(struct net_test *test, uint32_t index, uint32_t world_size, uint16_t port,
                 uint64_t timeout_ms)
{
	struct net_meet meet = { .way = way_to(port),
		                 .ranks = 1u << index,
		                 .world_size = world_size,
		                 .opening = 1,
		                 .timeout_ms = timeout_ms };
	struct net_node *node = &test->nodes[index];

	node->is_done = false;
	cr_assert_eq(net_worker_meet(node->worker, &node->request, &meet), 0);
	test->pending_count++;
}

/* Of three ranks the third does not come: what the node with the gap sees is another thing. */
Test(store_slow, a_store_that_is_lost_while_ranks_are_waited_for_is_blamed_and_no_rank)
{
	static const struct gap gaps[] = {
		{ "1/abort", 0, NET_TEST_MS * ZI_NS_PER_MS, -ETIMEDOUT, "does not answer" },
		{ "rank/0", 0, NET_TEST_MS * ZI_NS_PER_MS, -ETIMEDOUT, "does not answer" },
		{ "rank/0", 0, 0, -EPIPE, "is gone" },
	};
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	for (uint32_t i = 0; i < ZI_COUNT_OF(gaps); i++) {
		net_test_init(&test, 2);
		open_gap(&test, &gaps[i]);
		meet(&test, 0, 3, test.port, NET_TEST_MS);
		meet(&test, 1, 3, relay.port, GAP_MS);
		while (!test.nodes[1].is_done) {
			test.pending_count = 1; /* Each answer stops the loop. */
			cr_assert_eq(zi_loop_run(test.loop), 0);
		}
		expect_gap(&test, 1, &gaps[i]);
		store_relay_close(&relay);
		net_test_deinit(&test);
	}
}

static void agree(struct net_test *test, uint16_t port)
{
	struct net_node *node = &test->nodes[1];
	struct net_agree message = { .way = way_to(port),
		                     .node = 1,
		                     .node_count = 2,
		                     .epoch = 2,
		                     .members = 3,
		                     .world_size = 2,
		                     .timeout_ms = GAP_MS,
		                     .nodes = { 0, 1 } };

	message.way.run = node->request.reply.run;
	node->is_done = false;
	cr_assert_eq(net_worker_agree(node->worker, &node->request, &message), 0);
	test->pending_count++;
}

/* Node 0 does not come to make a group, but that is not what node 1 sees. */
Test(store_slow, a_store_that_is_lost_while_nodes_agree_is_blamed_and_no_node)
{
	static const struct gap gaps[] = {
		{ "2/agree/0", 0, NET_TEST_MS * ZI_NS_PER_MS, -ETIMEDOUT, "does not answer" },
		{ "2/agree/0", 1, NET_TEST_MS * ZI_NS_PER_MS, -ETIMEDOUT, "does not answer" },
		{ "2/agree/0", 1, 0, -EPIPE, "is gone" },
	};
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	for (uint32_t i = 0; i < ZI_COUNT_OF(gaps); i++) {
		net_test_init(&test, 2);
		meet(&test, 0, 2, test.port, NET_TEST_MS);
		meet(&test, 1, 2, test.port, NET_TEST_MS);
		net_test_run(&test);
		cr_assert_eq(test.nodes[1].request.error, 0, "%s",
		             test.nodes[1].request.text.chars);
		open_gap(&test, &gaps[i]);
		agree(&test, relay.port);
		net_test_run(&test);
		expect_gap(&test, 1, &gaps[i]);
		store_relay_close(&relay);
		net_test_deinit(&test);
	}
}
