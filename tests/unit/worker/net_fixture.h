/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of zinf-net share: several workers of one job on one loop, with a slab each. */
#pragma once

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "daemon/worker/finish.h"
#include "daemon/worker/shares.h"
#include "daemon/worker/supervise.h"
#include "tests/harness/port.h"

#define NET_TEST_NODES_MAX  4u
#define NET_TEST_SLAB_BYTES (32u << 20)
/* No limit of a test's own: what is under test ends by itself. */
#define NET_TEST_MS 60000u

struct net_node {
	struct net_worker *worker;
	struct net_request request;
	struct net_join join;
	struct net_exchange exchange;
	struct net_test *test;
	char *slab;
	int slab_fd;
	bool is_done;
	struct zi_text ended;
	struct net_asked asked; /* what it was asked last */
	uint32_t asked_count;
};

struct net_test {
	struct zi_loop *loop;
	struct net_node nodes[NET_TEST_NODES_MAX];
	uint32_t node_count, pending_count;
	bool is_awaiting_end, is_awaiting_question;
	uint64_t sequence, epoch;
	char program[512];
	uint16_t port;
	uid_t uid;             /* of the job: the workers', where this process is root */
	const char *interface; /* NULL: found */
	const char *host;      /* NULL: loopback */
	net_talked_fn talked;  /* NULL: nobody talks; so the next */
	net_writable_fn writable;
	int namespaces[NET_TEST_NODES_MAX]; /* of the nodes' networks; 0: this process's own */
	int home;
};

/* Whether there is a zinf-net; where there is not, who needs it is skipped with the reason. */
static inline bool net_test_is_built(struct net_test *test)
{
	const char *build = getenv("ZINF_BUILD");

	(void)snprintf(test->program, sizeof(test->program), "%s/bin/zinf-net",
	               build ? build : "build/release");
	return !access(test->program, X_OK);
}

#define net_test_skip_unless_built(test)                                                \
	do {                                                                            \
		if (!net_test_is_built(test))                                           \
			cr_skip_test("%s is not built (libgloo-dev)", (test)->program); \
	} while (0)

static inline void net_test_done(struct net_request *request)
{
	struct net_node *node = container_of(request, struct net_node, request);

	node->is_done = true;
	if (!--node->test->pending_count)
		zi_loop_stop(node->test->loop);
}

static inline void net_test_ended(void *arg, const struct zi_text *text)
{
	struct net_node *node = arg;

	node->ended = *text;
	if (node->test->is_awaiting_end)
		zi_loop_stop(node->test->loop);
}

static inline void net_test_asked(void *arg, const struct net_asked *asked)
{
	struct net_node *node = arg;

	node->asked = *asked;
	node->asked_count++;
	if (node->test->is_awaiting_question)
		zi_loop_stop(node->test->loop);
}

/* Kills a worker, and lets its end be noticed, or not yet. */
static inline void net_test_kill(struct net_test *test, uint32_t index, int number)
{
	cr_assert_eq(kill(net_worker_pid(test->nodes[index].worker), number), 0);
}

static inline void net_test_await_down(struct net_test *test, uint32_t index)
{
	test->is_awaiting_end = true;
	while (net_worker_state(test->nodes[index].worker) != NET_WORKER_DOWN)
		cr_assert_eq(zi_loop_run(test->loop), 0);
	test->is_awaiting_end = false;
}

/* Until every request that was made is answered. */
static inline void net_test_run(struct net_test *test)
{
	if (test->pending_count)
		cr_assert_eq(zi_loop_run(test->loop), 0);
}

static inline void net_test_start_node(struct net_test *test, uint32_t index)
{
	struct net_node *node = &test->nodes[index];
	struct zi_text text = { "" };

	/* A program starts in the network of the thread that starts it. */
	if (test->namespaces[index])
		cr_assert_eq(setns(test->namespaces[index], CLONE_NEWNET), 0);
	cr_assert_eq(net_worker_start(node->worker, &text), 0, "%s", text.chars);
	if (test->namespaces[index])
		cr_assert_eq(setns(test->home, CLONE_NEWNET), 0);
}

static inline void net_test_init(struct net_test *test, uint32_t node_count)
{
	test->loop = NULL;
	test->is_awaiting_end = test->is_awaiting_question = false;
	test->node_count = node_count;
	test->pending_count = 0;
	test->sequence = test->epoch = 0;
	test->port = harness_free_port();
	cr_assert_eq(zi_loop_new(&test->loop), 0);
	for (uint32_t i = 0; i < node_count; i++) {
		struct net_node *node = &test->nodes[i];

		*node = (struct net_node){ .test = test, .request.done = net_test_done };
		node->slab_fd = memfd_create("slab", MFD_CLOEXEC);
		cr_assert_eq(ftruncate(node->slab_fd, NET_TEST_SLAB_BYTES), 0);
		node->slab = mmap(NULL, NET_TEST_SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		                  node->slab_fd, 0);
		cr_assert_neq(node->slab, MAP_FAILED);
		cr_assert_eq(
			net_worker_new(test->loop,
		                       &(struct net_worker_options){ .program = test->program,
		                                                     .uid = test->uid,
		                                                     .ended = net_test_ended,
		                                                     .asked = net_test_asked,
		                                                     .talked = test->talked,
		                                                     .writable = test->writable,
		                                                     .arg = node },
		                       &node->worker),
			0);
		net_test_start_node(test, i);
	}
}

static inline void net_test_deinit(struct net_test *test)
{
	for (uint32_t i = 0; i < test->node_count; i++) {
		test->nodes[i].worker = net_worker_free(test->nodes[i].worker);
		cr_assert_eq(munmap(test->nodes[i].slab, NET_TEST_SLAB_BYTES), 0);
		zi_close(test->nodes[i].slab_fd);
	}
	test->loop = zi_loop_free(test->loop);
}

static inline void net_test_fill_join(struct net_test *test, uint32_t index, uint64_t timeout_ms)
{
	struct net_node *node = &test->nodes[index];

	node->join = (struct net_join){
		.way = { .place.port = test->port, .job = "gpt", .incarnation = "run.0" },
		.node = index,
		.node_count = test->node_count,
		.epoch = test->epoch,
		.timeout_ms = timeout_ms
	};
	(void)snprintf(node->join.way.place.host, sizeof(node->join.way.place.host), "%s",
	               test->host ? test->host : "127.0.0.1");
	(void)snprintf(node->join.way.interface, sizeof(node->join.way.interface), "%s",
	               test->interface ? test->interface : "");
	node->is_done = false;
}

static inline void net_test_join_one(struct net_test *test, uint32_t index, uint64_t timeout_ms)
{
	struct net_node *node = &test->nodes[index];

	net_test_fill_join(test, index, timeout_ms);
	cr_assert_eq(net_worker_join(node->worker, &node->request, &node->join), 0);
	test->pending_count++;
}

/* All meet, and have their slabs mapped. */
static inline void net_test_join(struct net_test *test)
{
	test->epoch++;
	test->sequence = 0;
	for (uint32_t i = 0; i < test->node_count; i++)
		net_test_join_one(test, i, NET_TEST_MS);
	net_test_run(test);
	for (uint32_t i = 0; i < test->node_count; i++)
		cr_assert_eq(test->nodes[i].request.error, 0, "node %u: %s", i,
		             test->nodes[i].request.text.chars);
	for (uint32_t i = 0; i < test->node_count; i++) {
		cr_assert_eq(net_worker_map(test->nodes[i].worker, &test->nodes[i].request, 0,
		                            test->nodes[i].slab_fd, NET_TEST_SLAB_BYTES),
		             0);
		test->pending_count++;
	}
	net_test_run(test);
	for (uint32_t i = 0; i < test->node_count; i++)
		cr_assert_eq(test->nodes[i].request.error, 0);
}

/* Node @index makes its exchange, as filled in; sequence and time are set here. */
static inline void net_test_exchange_one(struct net_test *test, uint32_t index, uint64_t timeout_ms)
{
	struct net_node *node = &test->nodes[index];

	node->exchange.sequence = test->sequence;
	node->exchange.timeout_ms = timeout_ms;
	node->is_done = false;
	cr_assert_eq(net_worker_exchange(node->worker, &node->request, &node->exchange), 0);
	test->pending_count++;
}

static inline void net_test_exchange(struct net_test *test)
{
	test->sequence++;
	for (uint32_t i = 0; i < test->node_count; i++)
		net_test_exchange_one(test, i, NET_TEST_MS);
	net_test_run(test);
}
