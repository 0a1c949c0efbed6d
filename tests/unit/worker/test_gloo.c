/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what is sent to a peer comes in its order, whatever its size and lane: zinf-net's mail
 * counts on it (mail_link.h); and who waits for what Gloo's own thread could not send has Gloo's
 * words and the peer's name. Method: two meshes of Gloo's on loopback in one process; behind what
 * Gloo's own thread sends goes what the caller would send at once.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "daemon/worker/net/gloo.h"

#define NODES       2u
#define LARGE_BYTES (4u << 20)
#define SMALL_BYTES 1024u
#define ROUNDS      20
#define MESH_ROUNDS 40
#define SOON_NS     (20 * ZI_NS_PER_MS)
/* Gloo's own thread begins this one, and a socket takes it at once. */
#define FRAME_BYTES (64u << 10)
/* No limit of a test's own: what is under test ends by itself. */
#define LONG_NS (60 * ZI_NS_PER_S)

enum lane { LARGE, SMALL, LANE_COUNT };

struct node {
	struct net_mesh *mesh;
	struct net_lane *lanes[LANE_COUNT];
	char *memory[LANE_COUNT];
	char address[512]; /* of the peer, for this node */
	size_t address_bytes;
	uint32_t number;
	int result;
	struct zi_text text;
};

static struct node nodes[NODES];

static void *connect_main(void *arg)
{
	struct node *node = arg;

	node->result = net_mesh_connect(node->mesh, 1 - node->number, "the peer", node->address,
	                                node->address_bytes, &node->text);
	return NULL;
}

static void start(void)
{
	static const uint64_t bytes[LANE_COUNT] = { LARGE_BYTES, SMALL_BYTES };
	pthread_t threads[NODES];

	for (uint32_t i = 0; i < NODES; i++) {
		struct net_mesh_options options = { .address = "127.0.0.1",
			                            .node = i,
			                            .node_count = NODES,
			                            .connect_ns = LONG_NS };

		nodes[i] = (struct node){ .number = i };
		cr_assert_eq(net_mesh_new(&options, &nodes[i].text, &nodes[i].mesh), 0, "%s",
		             nodes[i].text.chars);
	}
	for (uint32_t i = 0; i < NODES; i++) {
		nodes[i].address_bytes = net_mesh_address(nodes[1 - i].mesh, i, nodes[i].address,
		                                          sizeof(nodes[i].address));
		cr_assert_gt(nodes[i].address_bytes, 0);
	}
	for (uint32_t i = 0; i < NODES; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, connect_main, &nodes[i]), 0);
	for (uint32_t i = 0; i < NODES; i++)
		cr_assert_eq(pthread_join(threads[i], NULL), 0);
	for (uint32_t i = 0; i < NODES; i++) {
		cr_assert_eq(nodes[i].result, 0, "%s", nodes[i].text.chars);
		for (uint32_t lane = 0; lane < LANE_COUNT; lane++) {
			nodes[i].memory[lane] = calloc(1, bytes[lane]);
			cr_assert_eq(net_lane_new(nodes[i].mesh, 1 - i, nodes[i].memory[lane],
			                          bytes[lane], &nodes[i].lanes[lane]),
			             0);
		}
	}
}

static void stop(void)
{
	for (uint32_t i = 0; i < NODES; i++)
		for (uint32_t lane = 0; lane < LANE_COUNT; lane++)
			nodes[i].lanes[lane] = net_lane_free(nodes[i].lanes[lane]);
	for (uint32_t i = 0; i < NODES; i++) {
		nodes[i].mesh = net_mesh_free(nodes[i].mesh);
		for (uint32_t lane = 0; lane < LANE_COUNT; lane++)
			free(nodes[i].memory[lane]);
	}
}

TestSuite(gloo, .init = start, .fini = stop, .timeout = 120);

static void begin_receive(uint32_t node, enum lane lane, uint64_t bytes)
{
	cr_assert_eq(net_lane_receive(nodes[node].lanes[lane], lane, 0, bytes, &nodes[node].text),
	             0, "%s", nodes[node].text.chars);
}

static void begin_send(uint32_t node, enum lane lane, uint64_t bytes)
{
	cr_assert_eq(net_lane_send(nodes[node].lanes[lane], lane, 0, bytes, &nodes[node].text), 0,
	             "%s", nodes[node].text.chars);
}

static void await_received(uint32_t node, enum lane lane)
{
	cr_assert_eq(net_lane_wait_received(nodes[node].lanes[lane], 1,
	                                    zi_clock_deadline_ns(LONG_NS), &nodes[node].text),
	             0, "%s", nodes[node].text.chars);
}

static void await_sent(uint32_t node, enum lane lane)
{
	cr_assert_eq(net_lane_wait_sent(nodes[node].lanes[lane], 1, zi_clock_deadline_ns(LONG_NS),
	                                &nodes[node].text),
	             0, "%s", nodes[node].text.chars);
}

Test(gloo, what_is_small_comes_behind_what_is_large)
{
	for (int round = 1; round <= ROUNDS; round++) {
		/* As the mail does: there is room, then the piece, then its frame. */
		begin_receive(0, SMALL, SMALL_BYTES);
		begin_receive(1, LARGE, LARGE_BYTES);
		begin_receive(1, SMALL, SMALL_BYTES);
		begin_send(1, SMALL, SMALL_BYTES);
		await_sent(1, SMALL);
		await_received(0, SMALL);
		memset(nodes[0].memory[LARGE], round, LARGE_BYTES);
		memset(nodes[0].memory[SMALL], round, SMALL_BYTES);
		begin_send(0, LARGE, LARGE_BYTES);
		begin_send(0, SMALL, SMALL_BYTES);
		await_received(1, SMALL);
		cr_assert_eq(nodes[1].memory[SMALL][0], round);
		cr_assert_eq(nodes[1].memory[LARGE][LARGE_BYTES - 1], round,
		             "round %d: all of the larger one has not come", round);
		await_received(1, LARGE);
		await_sent(0, LARGE);
		await_sent(0, SMALL);
	}
}

/* The connection is known to be lost before the send, which is its thread's to begin. */
Test(gloo, what_could_not_be_sent_is_told_to_who_waits)
{
	struct node *node = &nodes[0];

	begin_receive(0, SMALL, SMALL_BYTES);
	for (uint32_t lane = 0; lane < LANE_COUNT; lane++)
		nodes[1].lanes[lane] = net_lane_free(nodes[1].lanes[lane]);
	nodes[1].mesh = net_mesh_free(nodes[1].mesh);
	cr_assert_eq(net_lane_wait_received(node->lanes[SMALL], 1, zi_clock_deadline_ns(LONG_NS),
	                                    &node->text),
	             -EPIPE, "%s", node->text.chars);
	node->text.chars[0] = '\0';
	begin_send(0, LARGE, LARGE_BYTES);
	cr_expect_eq(net_lane_wait_sent(node->lanes[LARGE], 1, zi_clock_deadline_ns(LONG_NS),
	                                &node->text),
	             -EPIPE);
	cr_expect(!strncmp(node->text.chars, "the peer: ", 10) && strlen(node->text.chars) > 10,
	          "%s", node->text.chars);
}

/* Sends to the peer, which takes it, until the connection is closed. */
static void *send_main(void *arg)
{
	static const uint64_t bytes[] = { FRAME_BYTES, SMALL_BYTES, SMALL_BYTES };
	struct zi_text text = { "" };
	int *result = arg;

	for (uint32_t i = 0; !*result; i++) {
		uint64_t one = bytes[i % 3], deadline_ns = zi_clock_deadline_ns(LONG_NS);
		int r = net_lane_receive(nodes[1].lanes[LARGE], LARGE, 0, one, &text);

		r = r ? r : net_lane_send(nodes[0].lanes[LARGE], LARGE, 0, one, &text);
		r = r ? r : net_lane_wait_sent(nodes[0].lanes[LARGE], 1, deadline_ns, &text);
		*result = r ? r
		            : net_lane_wait_received(nodes[1].lanes[LARGE], 1, deadline_ns, &text);
	}
	return NULL;
}

/* Who times out closes the connection, while Gloo's own thread is about to send on it. */
Test(gloo, a_deadline_passes_while_another_lane_sends)
{
	for (int round = 0; round < MESH_ROUNDS; round++) {
		struct node *node = &nodes[0];
		pthread_t sender;
		int result = 0;

		begin_receive(0, SMALL, SMALL_BYTES);
		cr_assert_eq(pthread_create(&sender, NULL, send_main, &result), 0);
		cr_expect_eq(net_lane_wait_received(node->lanes[SMALL], 1,
		                                    zi_clock_deadline_ns(SOON_NS), &node->text),
		             -ETIMEDOUT);
		cr_expect_not_null(strstr(node->text.chars, "the peer: timed out after "), "%s",
		                   node->text.chars);
		cr_assert_eq(pthread_join(sender, NULL), 0);
		cr_expect_eq(result, -EPIPE, "%d", result);
		stop();
		start();
	}
}

/* A wait of no time is no more than a look, which breaks nothing where it finds something; and
 * that its time has passed is not said to a later one. */
Test(gloo, what_has_come_counts_past_the_deadline)
{
	struct node *node = &nodes[0];

	for (int round = 0; round < 10 * ROUNDS; round++) {
		begin_receive(0, LARGE, SMALL_BYTES);
		begin_receive(0, SMALL, SMALL_BYTES);
		begin_send(1, LARGE, SMALL_BYTES);
		begin_send(1, SMALL, SMALL_BYTES);
		await_received(0, SMALL);
		cr_assert_eq(net_lane_wait_received(node->lanes[LARGE], 1, 1, &node->text), 0,
		             "round %d: %s", round, node->text.chars);
		begin_receive(1, LARGE, FRAME_BYTES);
		begin_send(0, LARGE, FRAME_BYTES);
		await_received(1, LARGE);
		await_sent(0, LARGE);
		await_sent(1, LARGE);
		await_sent(1, SMALL);
	}
	begin_receive(0, LARGE, SMALL_BYTES);
	begin_receive(0, LARGE, SMALL_BYTES);
	begin_receive(0, SMALL, SMALL_BYTES);
	begin_send(1, LARGE, SMALL_BYTES);
	begin_send(1, SMALL, SMALL_BYTES);
	await_received(0, SMALL);
	/* One of two. */
	cr_expect_eq(net_lane_wait_received(node->lanes[LARGE], 2, 1, &node->text), -ETIMEDOUT);
}

/* The other one's last words come before its end, though something was sent to it since. */
Test(gloo, what_has_come_counts_before_what_could_not_be_sent)
{
	struct node *node = &nodes[0];
	uint64_t deadline_ns = zi_clock_deadline_ns(LONG_NS);

	begin_receive(0, LARGE, SMALL_BYTES);
	begin_receive(0, SMALL, SMALL_BYTES);
	begin_receive(1, LARGE, SMALL_BYTES);
	begin_send(0, LARGE, SMALL_BYTES);
	begin_send(1, LARGE, SMALL_BYTES);
	begin_send(1, SMALL, SMALL_BYTES);
	await_received(1, LARGE);
	await_received(0, SMALL);
	begin_receive(0, SMALL, SMALL_BYTES);
	for (uint32_t lane = 0; lane < LANE_COUNT; lane++)
		nodes[1].lanes[lane] = net_lane_free(nodes[1].lanes[lane]);
	nodes[1].mesh = net_mesh_free(nodes[1].mesh);
	cr_assert_eq(net_lane_wait_received(node->lanes[SMALL], 1, deadline_ns, &node->text),
	             -EPIPE);
	begin_send(0, LARGE, LARGE_BYTES);
	await_sent(0, LARGE);
	cr_expect_eq(net_lane_wait_sent(node->lanes[LARGE], 1, deadline_ns, &node->text), -EPIPE);
	await_received(0, LARGE);
}

Test(gloo, what_is_flushed_needs_its_lane_no_more)
{
	begin_receive(0, SMALL, SMALL_BYTES);
	begin_receive(1, LARGE, FRAME_BYTES);
	begin_send(1, SMALL, SMALL_BYTES);
	await_received(0, SMALL); /* So it is known that node 1 receives. */
	memset(nodes[0].memory[LARGE], 7, FRAME_BYTES);
	begin_send(0, LARGE, FRAME_BYTES);
	cr_assert_eq(net_mesh_flush(nodes[0].mesh, zi_clock_deadline_ns(LONG_NS)), 0);
	nodes[0].lanes[LARGE] = net_lane_free(nodes[0].lanes[LARGE]);
	await_received(1, LARGE);
	cr_expect_eq(nodes[1].memory[LARGE][FRAME_BYTES - 1], 7);
}
