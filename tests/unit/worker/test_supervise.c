/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever happens to a worker (killed, stopped, talking nonsense, not there) fails its own
 * operations with the reason, on all nodes with the same culprit by name, and never hangs; then it
 * is started anew and works. Method: real workers on loopback, killed and stopped while operations
 * run.
 */
#include <signal.h>
#include <sys/stat.h>

#include "daemon/worker/store_client.h"
#include "tests/guard/guard.h"
#include "tests/unit/worker/net_fixture.h"

#define PATIENCE_MS 1500u
/* A deadline that passes; long enough that those who do come, come before it. */
#define SHORT_MS 1000u

static void exchange_of(struct net_test *test, uint64_t elements)
{
	for (uint32_t i = 0; i < test->node_count; i++) {
		test->nodes[i].exchange = (struct net_exchange){ .kind = NET_REDUCE,
			                                         .mode = NET_ALL,
			                                         .dtype = ZI_DTYPE_F32,
			                                         .op = ZI_REDUCE_SUM,
			                                         .rank_count = test->node_count,
			                                         .element_count = elements,
			                                         .result_offset_bytes = 16u << 20 };
		for (uint32_t k = 0; k < test->node_count; k++)
			test->nodes[i].exchange.nodes[k] = (uint8_t)k;
	}
}

/* A barrier that all but @absent begin: it cannot end well. */
static void barrier_without(struct net_test *test, uint32_t absent, uint64_t timeout_ms)
{
	test->sequence++;
	for (uint32_t i = 0; i < test->node_count; i++) {
		test->nodes[i].exchange = (struct net_exchange){ .kind = NET_MOVE };
		if (i != absent)
			net_test_exchange_one(test, i, timeout_ms);
	}
}

static void expect_blamed(const struct net_test *test, uint32_t culprit, uint32_t but, int error,
                          const char *says)
{
	for (uint32_t i = 0; i < test->node_count; i++) {
		const struct net_request *request = &test->nodes[i].request;

		if (i == but)
			continue;
		cr_expect_eq(request->error, error, "node %u: %d, %s", i, request->error,
		             request->text.chars);
		cr_expect_eq(request->culprit, culprit, "node %u: %u, %s", i, request->culprit,
		             request->text.chars);
		cr_expect(strstr(request->text.chars, says), "node %u: %s", i, request->text.chars);
	}
}

static void expect_works(struct net_test *test)
{
	for (uint32_t i = 0; i < test->node_count; i++)
		if (net_worker_state(test->nodes[i].worker) == NET_WORKER_DOWN)
			net_test_start_node(test, i);
	net_test_join(test);
	exchange_of(test, 100000);
	net_test_exchange(test);
	for (uint32_t i = 0; i < test->node_count; i++)
		cr_expect_eq(test->nodes[i].request.error, 0, "%s",
		             test->nodes[i].request.text.chars);
}

Test(supervise, a_killed_worker_is_named_everywhere_at_once_and_made_anew)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 3);
	for (uint32_t victim = 0; victim < 3; victim++) {
		uint64_t started_ns;

		expect_works(&test);
		started_ns = zi_clock_now_ns();
		barrier_without(&test, victim, NET_TEST_MS);
		net_test_kill(&test, victim, SIGKILL);
		net_test_run(&test);
		expect_blamed(&test, victim, victim, -EPIPE, "node ");
		net_test_await_down(&test, victim);
		cr_expect_lt(zi_clock_now_ns() - started_ns, NET_TEST_MS / 2 * ZI_NS_PER_MS);
	}
	net_test_deinit(&test);
}

Test(supervise, a_workers_own_requests_fail_with_how_it_ended)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 2);
	net_test_join(&test);
	barrier_without(&test, 1, NET_TEST_MS);
	net_test_kill(&test, 0, SIGABRT); /* as an uncaught exception does */
	net_test_run(&test);
	cr_expect_eq(test.nodes[0].request.error, -EPIPE);
	cr_expect(strstr(test.nodes[0].request.text.chars, "was killed by signal 6"), "%s",
	          test.nodes[0].request.text.chars);
	cr_expect(strstr(test.nodes[0].ended.chars, "was killed by signal 6"));
	cr_expect_eq(net_worker_state(test.nodes[0].worker), NET_WORKER_DOWN);
	cr_expect_eq(net_worker_exchange(test.nodes[0].worker, &test.nodes[0].request,
	                                 &test.nodes[0].exchange),
	             -ENOTCONN);
	expect_works(&test);
	net_test_deinit(&test);
}

/* A test double that says HELLO in the words of another release, and waits. */
Test(supervise, a_worker_of_another_release_is_ended_and_both_are_named)
{
	static const char lines[] =
		"#!/bin/sh\n"
		"printf '\\001\\0\\0\\0\\020\\0\\0\\0\\007\\0\\0\\0\\0\\0\\0\\0' >&3\n"
		"exec cat <&3 >/dev/null\n";
	struct net_test test = { .host = NULL };
	char path[128];
	int fd;

	cr_assert_not_null(guard_path(path, sizeof(path), "worker"));
	fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, lines, sizeof(lines) - 1), sizeof(lines) - 1);
	cr_assert_eq(fchmod(fd, 0700), 0);
	zi_close(fd);
	(void)snprintf(test.program, sizeof(test.program), "%s", path);
	net_test_init(&test, 1);
	net_test_await_down(&test, 0);
	cr_expect(strstr(test.nodes[0].ended.chars, "makes collectives by version 7, zinfd"), "%s",
	          test.nodes[0].ended.chars);
	net_test_deinit(&test);
	cr_assert_eq(unlink(path), 0);
}

Test(supervise, a_node_that_does_not_come_is_named_at_the_deadline)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 4);
	net_test_join(&test);
	barrier_without(&test, 2, SHORT_MS);
	net_test_run(&test);
	expect_blamed(&test, 2, 2, -ETIMEDOUT, "node 2 (127.0.0.1");
	expect_works(&test);
	net_test_deinit(&test);
}

Test(supervise, a_stopped_peer_is_named_though_it_answers_nothing)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 3);
	net_test_join(&test);
	net_test_kill(&test, 1, SIGSTOP);
	exchange_of(&test, 2000000);
	test.sequence++;
	net_test_exchange_one(&test, 0, SHORT_MS);
	net_test_exchange_one(&test, 2, SHORT_MS);
	net_test_run(&test);
	expect_blamed(&test, 1, 1, -ETIMEDOUT, "node 1 (127.0.0.1");
	net_worker_kill(test.nodes[1].worker, &(struct zi_text){ "stopped" });
	expect_works(&test);
	net_test_deinit(&test);
}

Test(supervise, a_worker_that_hangs_is_killed_and_its_requests_fail)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 1);
	net_test_join(&test);
	test.nodes[0].worker = net_worker_free(test.nodes[0].worker);
	cr_assert_eq(
		net_worker_new(test.loop,
	                       &(struct net_worker_options){ .program = test.program,
	                                                     .ping_ns = 20 * ZI_NS_PER_MS,
	                                                     .pong_ns = PATIENCE_MS * ZI_NS_PER_MS,
	                                                     .ended = net_test_ended,
	                                                     .arg = &test.nodes[0] },
	                       &test.nodes[0].worker),
		0);
	net_test_start_node(&test, 0);
	net_test_join(&test);
	net_test_kill(&test, 0, SIGSTOP);
	barrier_without(&test, 9, NET_TEST_MS);
	net_test_run(&test);
	cr_expect_eq(test.nodes[0].request.error, -ETIMEDOUT);
	cr_expect(strstr(test.nodes[0].request.text.chars, "hung: it did not answer"), "%s",
	          test.nodes[0].request.text.chars);
	expect_works(&test);
	net_test_deinit(&test);
}

Test(supervise, an_abort_reaches_all_nodes_with_its_text)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 3);
	net_test_join(&test);
	barrier_without(&test, 1, NET_TEST_MS);
	/* On the one that waits, and on the one that does nothing. */
	net_worker_abort(test.nodes[1].worker, -ECANCELED,
	                 &(struct zi_text){ "rank 5 (pid 7) died" });
	net_test_run(&test);
	expect_blamed(&test, NET_CULPRIT_NONE, 1, -ECANCELED, "rank 5 (pid 7) died");
	expect_works(&test);
	barrier_without(&test, 1, NET_TEST_MS);
	net_worker_abort(test.nodes[0].worker, -ECANCELED, &(struct zi_text){ "rank 1 left" });
	net_test_run(&test);
	expect_blamed(&test, NET_CULPRIT_NONE, 1, -ECANCELED, "rank 1 left");
	net_test_deinit(&test);
}

/* Nodes ask each other through the store, in which any of them may write anything. */
Test(supervise, what_a_node_is_asked_is_told_once_and_nonsense_is_not)
{
	const struct store_client_options options = {
		.host = "127.0.0.1", .job = "gpt", .incarnation = "run.0", .name = "test"
	};
	const struct net_asked asked = { .sequence = 7, .operation = 3, .silent = 5 };
	struct store_client_options way = options;
	uint64_t deadline_ns = zi_clock_deadline_ns(NET_TEST_MS * ZI_NS_PER_MS);
	struct net_test test = { .host = NULL };
	char more[sizeof(asked) + 1] = "";
	struct store_client *client;
	struct zi_text text = { "" };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 3);
	net_test_join(&test);
	way.port = test.port;
	cr_assert_eq(store_client_open(&way, deadline_ns, &text, &client), 0, "%s", text.chars);
	cr_assert_eq(store_client_set(client, "1/asked/0", "abc", 3, deadline_ns, &text), 0);
	cr_assert_eq(store_client_set(client, "1/asked/2", more, sizeof(more), deadline_ns, &text),
	             0);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(store_client_set(client, "1/asked/1", &asked, sizeof(asked),
		                              deadline_ns, &text),
		             0);
	test.is_awaiting_question = true;
	while (!test.nodes[1].asked_count)
		cr_assert_eq(zi_loop_run(test.loop), 0);
	test.is_awaiting_question = false;
	cr_expect_eq(test.nodes[1].asked.header.type, NET_ASKED);
	cr_expect_eq(test.nodes[1].asked.sequence, 7);
	cr_expect_eq(test.nodes[1].asked.operation, 3);
	cr_expect_eq(test.nodes[1].asked.silent, 5);
	store_client_close(client);
	/* The end is heard all the same. */
	barrier_without(&test, 1, NET_TEST_MS);
	net_worker_abort(test.nodes[1].worker, -ECANCELED, &(struct zi_text){ "rank 1 left" });
	net_test_run(&test);
	expect_blamed(&test, NET_CULPRIT_NONE, 1, -ECANCELED, "rank 1 left");
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(test.nodes[i].asked_count, i == 1, "node %u", i);
	expect_works(&test);
	net_test_deinit(&test);
}

Test(supervise, a_node_that_never_joins_is_named_and_counted)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 3);
	test.epoch = 1;
	net_test_join_one(&test, 0, 400);
	net_test_join_one(&test, 2, 400);
	net_test_run(&test);
	cr_expect_eq(test.nodes[0].request.error, -ETIMEDOUT);
	cr_expect(strstr(test.nodes[0].request.text.chars, "node 1 of 3 did not come within"), "%s",
	          test.nodes[0].request.text.chars);
	cr_expect_eq(test.nodes[2].request.error, -ETIMEDOUT);
	net_test_exchange_one(&test, 0, 400);
	net_test_run(&test);
	cr_expect_eq(test.nodes[0].request.error, -ENOTCONN);
	expect_works(&test);
	net_test_deinit(&test);
}

Test(supervise, joins_and_slabs_that_cannot_be_are_refused)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 1);
	net_test_join_one(&test, 0, 0);
	net_test_run(&test);
	cr_expect_eq(test.nodes[0].request.error, -EINVAL);
	cr_assert_eq(net_worker_map(test.nodes[0].worker, &test.nodes[0].request, 0,
	                            test.nodes[0].slab_fd, NET_TEST_SLAB_BYTES + 1),
	             0);
	test.pending_count++;
	net_test_run(&test);
	cr_expect_eq(test.nodes[0].request.error, -EINVAL);
	cr_expect(strstr(test.nodes[0].request.text.chars, "fewer than"));
	cr_assert_eq(net_worker_map(test.nodes[0].worker, &test.nodes[0].request, NET_SLABS_MAX,
	                            test.nodes[0].slab_fd, NET_TEST_SLAB_BYTES),
	             0);
	test.pending_count++;
	net_test_run(&test);
	cr_expect_eq(test.nodes[0].request.error, -EINVAL);
	expect_works(&test);
	net_test_deinit(&test);
}

static uint32_t ignored_count;

static void count_done(struct net_request *request)
{
	ignored_count += request->error == -ETIMEDOUT || request->error == -ESHUTDOWN;
}

Test(supervise, more_requests_than_it_takes_are_refused_and_the_others_answered)
{
	static struct net_request requests[NET_QUEUE_MAX + 1];
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 2);
	net_test_join(&test);
	barrier_without(&test, 1, 300);
	for (uint32_t i = 1; i <= NET_QUEUE_MAX; i++) {
		int r;

		requests[i] = (struct net_request){ .done = count_done };
		if (i < NET_QUEUE_MAX) {
			test.nodes[0].exchange.sequence++;
			r = net_worker_exchange(test.nodes[0].worker, &requests[i],
			                        &test.nodes[0].exchange);
			cr_assert_eq(r, 0);
		} else {
			cr_expect_eq(net_worker_exchange(test.nodes[0].worker, &requests[i],
			                                 &test.nodes[0].exchange),
			             -EBUSY);
		}
	}
	net_test_run(&test);
	cr_expect_eq(test.nodes[0].request.error, -ETIMEDOUT);
	net_test_deinit(&test);
	cr_expect_eq(ignored_count, NET_QUEUE_MAX - 1);
}
