/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an opening that fails on one node ends for all nodes with that node's error, at once, and
 * none but that opening does: neither the next one, nor one that another word in the store is for.
 * Method: workers that are asked as daemons ask them, one for each opening of each node; and a
 * client of the store that writes what no node would.
 */
#include "daemon/worker/net/end.h"
#include "tests/unit/worker/net_fixture.h"

#define PATIENT_MS 3600000u
#define SHORT_MS   1000u

/* Workers: of the node of rank 0, which serves the store, and of the other node; each at its first
 * opening and at its second one. */
enum { FIRST_OF_0, FIRST_OF_1, SECOND_OF_0, SECOND_OF_1, WORKER_COUNT };

static struct net_test test;
static struct net_meet meets[NET_TEST_NODES_MAX];

static void begin(void)
{
	static_assert(WORKER_COUNT <= NET_TEST_NODES_MAX, "a worker each");
	net_test_skip_unless_built(&test);
	net_test_init(&test, WORKER_COUNT);
}

static void end_all(void)
{
	net_test_deinit(&test);
}

TestSuite(meet, .init = begin, .fini = end_all, .timeout = 120);

/* Worker @index comes to opening @opening of its node, of which @failed have failed there. */
static struct net_meet *prepare(uint32_t index, uint32_t opening, uint32_t failed)
{
	struct net_meet *meet = &meets[index];

	*meet = (struct net_meet){ .way = { .place = { .host = "127.0.0.1", .port = test.port },
		                            .job = "gpt",
		                            .incarnation = "run.0" },
		                   .ranks = 1u << index % 2,
		                   .world_size = 2,
		                   .opening = opening,
		                   .failed = failed,
		                   .error = failed ? -EDOM : 0,
		                   .timeout_ms = PATIENT_MS,
		                   .arena_bytes = 2 << 20,
		                   .asked_bytes = 1 << 20 };
	if (failed)
		zi_text_set(&meet->text, "opening %u failed on node %u", failed, index % 2);
	return meet;
}

static void ask(uint32_t index, struct net_meet *meet)
{
	struct net_node *node = &test.nodes[index];

	node->is_done = false;
	cr_assert_eq(net_worker_meet(node->worker, &node->request, meet), 0);
	test.pending_count++;
}

static void come(uint32_t index, uint32_t opening, uint32_t failed)
{
	ask(index, prepare(index, opening, failed));
}

/* Until @index is answered; others may be before. */
static void await(uint32_t index)
{
	uint32_t pending_count = test.pending_count;

	while (!test.nodes[index].is_done) {
		test.pending_count = 1; /* Each answer stops the loop. */
		cr_assert_eq(zi_loop_run(test.loop), 0);
		pending_count--;
	}
	test.pending_count = pending_count;
}

static void expect_error(uint32_t index, int error, const char *part)
{
	const struct net_request *request = &test.nodes[index].request;

	cr_expect_eq(request->error, error, "%u: %d: %s", index, request->error,
	             request->text.chars);
	cr_expect(strstr(request->text.chars, part), "%u: '%s' is not in: %s", index, part,
	          request->text.chars);
}

static void expect_met(uint32_t index)
{
	cr_expect_eq(test.nodes[index].request.error, 0, "%u: %s", index,
	             test.nodes[index].request.text.chars);
	cr_expect_eq(test.nodes[index].request.reply.node_count, 2);
}

/* As a daemon ends one, what it was asked or not. */
static void end_worker(uint32_t index)
{
	test.nodes[index].worker = net_worker_free(test.nodes[index].worker);
}

/* ---- who hears of it ---- */

Test(meet, who_waits_hears_why_the_other_node_does_not_come)
{
	come(FIRST_OF_0, 1, 0);
	come(FIRST_OF_1, 1, 1);
	await(FIRST_OF_0);
	expect_error(FIRST_OF_0, -EDOM, "opening 1 failed on node 1 (on ");
}

Test(meet, who_comes_late_hears_why_the_node_of_the_store_does_not_come)
{
	come(FIRST_OF_0, 1, 1);
	come(FIRST_OF_1, 1, 0);
	await(FIRST_OF_1);
	expect_error(FIRST_OF_1, -EDOM, "opening 1 failed on node 0 (on ");
}

/* The store's node has gone on to its next opening: the other one's first is as late as can be. */
Test(meet, who_comes_to_an_opening_that_is_over_hears_why_and_does_not_end_the_next_one)
{
	come(SECOND_OF_0, 2, 1);
	come(FIRST_OF_1, 1, 0);
	await(FIRST_OF_1);
	expect_error(FIRST_OF_1, -EDOM, "opening 1 failed on node 0 (on ");
	come(SECOND_OF_1, 2, 1);
	await(SECOND_OF_1);
	await(SECOND_OF_0);
	expect_met(SECOND_OF_0);
	expect_met(SECOND_OF_1);
}

/* What a node has to tell of its first opening is nothing to those who have gone on. */
Test(meet, a_refusal_of_an_older_opening_ends_no_newer_one)
{
	come(SECOND_OF_0, 2, 1);
	come(FIRST_OF_1, 1, 1);
	await(FIRST_OF_1);
	expect_error(FIRST_OF_1, -EDOM, "opening 1 failed on node 1");
	come(SECOND_OF_1, 2, 1);
	await(SECOND_OF_1);
	await(SECOND_OF_0);
	expect_met(SECOND_OF_0);
	expect_met(SECOND_OF_1);
}

/* Node 1's first opening failed before anybody was there to be told, and it comes again: node 0's
 * first one fails too, and the second ones meet, in the next store. */
Test(meet, who_comes_for_the_next_opening_tells_those_who_are_behind_and_waits_for_them)
{
	come(SECOND_OF_1, 2, 1);
	come(FIRST_OF_0, 1, 0);
	await(FIRST_OF_0);
	expect_error(FIRST_OF_0, -EDOM, "opening 1 failed on node 1 (on ");
	end_worker(FIRST_OF_0); /* The store's port is wanted. */
	come(SECOND_OF_0, 2, 1);
	await(SECOND_OF_0);
	await(SECOND_OF_1);
	expect_met(SECOND_OF_0);
	expect_met(SECOND_OF_1);
}

/* Node 1 has several in a row, faster than they are told: node 0 hears of each. */
Test(meet, a_refusal_is_told_in_each_store_that_is_for_an_opening_before_it)
{
	come(FIRST_OF_1, 2, 2);
	come(FIRST_OF_0, 1, 0);
	await(FIRST_OF_0);
	expect_error(FIRST_OF_0, -EDOM, "opening 2 failed on node 1");
	end_worker(FIRST_OF_0);
	come(SECOND_OF_0, 2, 1);
	await(SECOND_OF_0);
	expect_error(SECOND_OF_0, -EDOM, "opening 2 failed on node 1");
}

/* ---- why else ---- */

Test(meet, nodes_that_ask_for_other_arenas_are_named_on_both)
{
	prepare(FIRST_OF_0, 1, 0);
	prepare(FIRST_OF_1, 1, 0)->arena_bytes = 4 << 20;
	meets[FIRST_OF_1].asked_bytes = 3 << 20;
	ask(FIRST_OF_0, &meets[FIRST_OF_0]);
	ask(FIRST_OF_1, &meets[FIRST_OF_1]);
	net_test_run(&test);
	for (uint32_t i = 0; i < 2; i++) {
		expect_error(i, -EINVAL, "3145728");
		expect_error(i, -EINVAL, "1048576");
		expect_error(i, -EINVAL, "all ranks must ask for the same");
	}
}

/* Who has less time names who is missing, also to those who would wait longer. */
Test(meet, who_gives_up_waiting_ends_it_for_all)
{
	for (uint32_t i = 0; i < 2; i++)
		prepare(i, 1, 0)->world_size = 3;
	meets[FIRST_OF_1].timeout_ms = SHORT_MS;
	ask(FIRST_OF_0, &meets[FIRST_OF_0]);
	ask(FIRST_OF_1, &meets[FIRST_OF_1]);
	net_test_run(&test);
	for (uint32_t i = 0; i < 2; i++)
		expect_error(i, -ETIMEDOUT, "ranks 2 of job 'gpt' did not come on any node");
}

/* The ranks of the store's node do not come again. */
Test(meet, who_waits_for_the_next_store_in_vain_is_told_for_what)
{
	come(FIRST_OF_0, 1, 1);
	prepare(SECOND_OF_1, 2, 1)->timeout_ms = SHORT_MS;
	ask(SECOND_OF_1, &meets[SECOND_OF_1]);
	await(SECOND_OF_1);
	expect_error(SECOND_OF_1, -ETIMEDOUT, "the ranks of the first node did not come again");
}

/* ---- what no node writes ---- */

static struct store_client *stranger(void)
{
	struct store_client *client = NULL;
	struct zi_text text = { "" };

	cr_assert_eq(store_client_open(&(struct store_client_options){ .host = "127.0.0.1",
	                                                               .port = test.port,
	                                                               .job = "gpt",
	                                                               .incarnation = "run.0",
	                                                               .name = "stranger" },
	                               zi_clock_deadline_ns(NET_TEST_MS * ZI_NS_PER_MS), &text,
	                               &client),
	             0, "%s", text.chars);
	return client;
}

static void put(struct store_client *client, const char *key, const void *value, uint32_t bytes)
{
	cr_assert_eq(store_client_set(client, key, value, bytes,
	                              zi_clock_deadline_ns(NET_TEST_MS * ZI_NS_PER_MS), NULL),
	             0);
}

/* An end with neither NUL nor letters in its text, of an error that is none or far away. */
Test(meet, an_end_that_is_none_is_an_error_and_its_text_is_cleaned)
{
	static const int32_t errors[] = { 0, 5, INT32_MIN, -EDOM };
	const char *opening = "opening";
	struct store_client *client;
	struct nodes_end end;

	for (uint32_t i = 0; i <= ZI_COUNT_OF(errors); i++) {
		bool is_short = i == ZI_COUNT_OF(errors);

		come(FIRST_OF_0, 1, 0);
		client = stranger();
		cr_assert_eq(store_client_wait(client, &opening, 1,
		                               zi_clock_deadline_ns(NET_TEST_MS * ZI_NS_PER_MS),
		                               NULL),
		             0);
		memset(&end, 0x1b, sizeof(end));
		end.error = errors[i % ZI_COUNT_OF(errors)];
		end.opening = 1;
		put(client, "1/abort", &end, is_short ? 3 : sizeof(end));
		net_test_run(&test);
		if (is_short || end.error != -EDOM)
			expect_error(FIRST_OF_0, -EPROTO, "'1/abort' has ");
		else
			expect_error(FIRST_OF_0, -EDOM, "????????");
		cr_expect(!strchr(test.nodes[0].request.text.chars, 0x1b));
		store_client_close(client);
		end_worker(FIRST_OF_0);
		end_all();
		begin();
	}
}

/* What the store is for is no number, or that of a node which no node is at. */
Test(meet, an_opening_that_is_none_is_an_error)
{
	static const char garbage[] = "one";
	struct store_client *client;

	come(FIRST_OF_0, 1, 0);
	client = stranger();
	put(client, "opening", garbage, sizeof(garbage));
	come(FIRST_OF_1, 1, 0);
	await(FIRST_OF_1);
	expect_error(FIRST_OF_1, -EPROTO, "'opening' has 4 bytes");
	store_client_close(client);
}
