/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: of what nodes meet one after the other when an epoch ends the first is what all hear: a
 * connection that is lost because its other end gave up waiting names who that one waits for, and
 * a word that stands is kept to. Method: the blame of one node, made by hand, on a real store in
 * which the test is the other nodes.
 */
#include <stdio.h>

#include "daemon/worker/net/end.h"
#include "daemon/worker/net/nodes_private.h"
#include "tests/unit/worker/store_fixture.h"

/* Nobody else writes: nothing is waited for in vain. */
#define NO_MOMENT_NS 1u

static struct store_fixture store;
static struct store_client *others;
static struct nodes nodes;
static struct nodes_end end;

/* Double: that of nodes.c knows names by what they told. */
const char *nodes_name(const struct nodes *asked, uint32_t node)
{
	return asked->names[node];
}

static void begin(void)
{
	const struct store_server_options options = store_options();

	store_start(&store, &options);
	others = store_client_of(&store);
	nodes = (struct nodes){ .join = { .epoch = 7, .node = 0, .node_count = 4 } };
	nodes.client = store_client_of(&store);
	for (uint32_t i = 0; i < 4; i++)
		(void)snprintf(nodes.names[i], sizeof(nodes.names[i]), "node %u (here)", i);
	end = (struct nodes_end){ .error = 0 };
}

static void finish(void)
{
	nodes.client = store_client_close(nodes.client);
	others = store_client_close(others);
	if (store.loop)
		store_stop(&store);
}

TestSuite(blame, .init = begin, .fini = finish, .timeout = 120);

static void wait_for(uint32_t node, uint32_t other)
{
	struct nodes_key key = nodes_key(&nodes, "waits", node);

	cr_assert_eq(store_client_set(others, key.chars, &other, sizeof(other),
	                              zi_clock_deadline_ns(STORE_TEST_NS), NULL),
	             0);
}

static void blame(int error, uint32_t suspect, uint64_t moment_ns, const char *words)
{
	struct zi_text text;

	zi_text_set(&text, "%s", words);
	nodes_blame(&nodes, error, suspect, 3, moment_ns, &text, &end);
}

/* What the others read. */
static struct nodes_end stands(void)
{
	struct nodes_key key = nodes_key(&nodes, "abort", NET_CULPRIT_NONE);
	struct nodes_end read = { .error = 0 };
	struct zi_text text;

	cr_assert_eq(nodes_end_read(others, key.chars, zi_clock_deadline_ns(STORE_TEST_NS), &text,
	                            &read),
	             0, "%s", text.chars);
	return read;
}

static void expect(int error, uint32_t culprit, const char *words)
{
	struct nodes_end read = stands();

	cr_expect_eq(end.error, error, "%d: %s", end.error, end.text.chars);
	cr_expect_eq(end.culprit, culprit, "node %u", end.culprit);
	cr_expect_str_eq(end.text.chars, words);
	cr_expect_eq(read.error, error);
	cr_expect_eq(read.culprit, culprit);
	cr_expect_str_eq(read.text.chars, words);
}

Test(blame, connection_lost_to_one_who_waits_is_the_fault_of_who_is_waited_for)
{
	wait_for(1, 2);
	wait_for(2, 3);
	blame(-EPIPE, 1, NO_MOMENT_NS, "node 1 (here): Connection closed by peer");
	expect(-ETIMEDOUT, 3,
	       "node 1 (here): Connection closed by peer, which waits for node 3 (here)");
	cr_expect_eq(stands().done, 3);
}

Test(blame, connection_lost_to_one_who_waits_for_nobody_is_its_own)
{
	wait_for(2, 3);
	blame(-EPIPE, 1, NO_MOMENT_NS, "node 1 (here): Connection closed by peer");
	expect(-EPIPE, 1, "node 1 (here): Connection closed by peer");
}

/* It was slow, and gave nobody up. */
Test(blame, connection_lost_to_one_who_waits_for_this_node_is_its_own_fault)
{
	wait_for(1, 2);
	wait_for(2, 0);
	blame(-EPIPE, 1, NO_MOMENT_NS, "node 1 (here): Connection closed by peer");
	expect(-ETIMEDOUT, 0,
	       "node 1 (here): Connection closed by peer, which waits for node 0 (here)");
}

Test(blame, connection_lost_to_one_of_two_who_wait_for_each_other_is_that_ones)
{
	wait_for(1, 2);
	wait_for(2, 1);
	blame(-EPIPE, 1, NO_MOMENT_NS, "node 1 (here): Connection closed by peer");
	expect(-EPIPE, 1, "node 1 (here): Connection closed by peer");
}

Test(blame, who_waits_for_one_who_waits_names_the_last)
{
	wait_for(1, 3);
	blame(-ETIMEDOUT, 1, NO_MOMENT_NS, "node 1 (here): nothing came");
	expect(-ETIMEDOUT, 3, "node 1 (here): nothing came, which waits for node 3 (here)");
}

Test(blame, who_wait_for_each_other_are_told_of_their_link)
{
	wait_for(1, 0);
	blame(-ETIMEDOUT, 1, NO_MOMENT_NS, "node 1 (here): nothing came");
	expect(-ETIMEDOUT, 1,
	       "node 1 (here): nothing came; they wait for each other: look at the link");
}

/* What no node would write is nobody. */
Test(blame, chain_ends_where_a_word_is_none)
{
	struct nodes_key key = nodes_key(&nodes, "waits", 1);

	wait_for(2, 4);
	cr_assert_eq(store_client_set(others, key.chars, "no", 2,
	                              zi_clock_deadline_ns(STORE_TEST_NS), NULL),
	             0);
	blame(-EPIPE, 1, NO_MOMENT_NS, "lost");
	expect(-EPIPE, 1, "lost");
}

Test(blame, nobody_is_suspected_of_what_was_called_off)
{
	wait_for(1, 3);
	blame(-ECANCELED, NET_CULPRIT_NONE, NO_MOMENT_NS, "called off");
	expect(-ECANCELED, NET_CULPRIT_NONE, "called off");
}

static int blame_main(void *arg)
{
	(void)arg;
	blame(-EPIPE, 1, STORE_TEST_NS, "node 1 (here): Connection closed by peer");
	return 0;
}

/* However long it takes that one to say it. */
Test(blame, another_nodes_word_is_waited_for_and_kept_to)
{
	const struct nodes_end word = { .error = -ETIMEDOUT,
		                        .culprit = 3,
		                        .text = { "node 3 (here): nothing came" } };
	struct nodes_key key = nodes_key(&nodes, "abort", NET_CULPRIT_NONE);
	struct zi_thread thread = { 0 };
	bool is_present;

	cr_assert_eq(zi_thread_start(&thread, "blame", blame_main, NULL), 0);
	cr_assert_eq(nodes_end_tell(others, key.chars, &word, zi_clock_deadline_ns(STORE_TEST_NS),
	                            NULL, &is_present),
	             0);
	cr_assert_not(is_present);
	cr_assert_eq(zi_thread_join(&thread), 0);
	expect(-ETIMEDOUT, 3, "node 3 (here): nothing came");
}

static void lose_store(void)
{
	store_stop(&store);
	store.loop = NULL;
}

/* Node 1 has lost it as well, and closed its connections for that. */
Test(blame, store_that_is_gone_is_the_fault_of_who_served_it)
{
	nodes.join.node = 2;
	lose_store();
	blame(-EPIPE, 1, NO_MOMENT_NS, "node 1 (here): Connection closed by peer");
	cr_expect_eq(end.error, -EPIPE);
	cr_expect_eq(end.culprit, 0);
	cr_expect_eq(end.done, 3);
	cr_expect_str_eq(end.text.chars, "the store is gone, which node 0 (here) served: its "
	                                 "worker, its daemon or all of it ended");
}

/* Its own view is all there is: of who served it, and of nodes that go on without. */
Test(blame, store_that_is_gone_leaves_a_view_of_ones_own)
{
	nodes.join.flags = NET_JOIN_STORE_ELSEWHERE;
	nodes.join.node = 2;
	lose_store();
	blame(-EPIPE, 1, NO_MOMENT_NS, "node 1 (here): Connection closed by peer");
	cr_expect_eq(end.culprit, 1);
	nodes.join.flags = 0;
	nodes.join.node = 0;
	blame(-EPIPE, 1, NO_MOMENT_NS, "node 1 (here): Connection closed by peer");
	cr_expect_eq(end.error, -EPIPE);
	cr_expect_eq(end.culprit, 1);
	cr_expect_str_eq(end.text.chars, "node 1 (here): Connection closed by peer");
}
