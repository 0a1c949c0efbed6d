/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what is sent to a peer comes in its order, whatever its size and lane: zinf-net's mail
 * counts on it (mail_link.h); and who waits for what Gloo's own thread could not send has Gloo's
 * words and the peer's name. Method: two meshes of Gloo's on loopback in one process; behind what
 * Gloo's own thread sends goes what the caller would send at once.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
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
	uint32_t number;
	struct zi_text text;
};

static struct node nodes[NODES];

/* Both ends of a connection on loopback. */
static void connection(int ends[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(listener, 1), 0);
	cr_assert_eq(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
	ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(connect(ends[0], (struct sockaddr *)&address, sizeof(address)), 0);
	ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	cr_assert_geq(ends[1], 0);
	zi_close(listener);
}

static void start(void)
{
	static const uint64_t bytes[LANE_COUNT] = { LARGE_BYTES, SMALL_BYTES };
	int ends[NODES];

	connection(ends);
	for (uint32_t i = 0; i < NODES; i++) {
		struct net_mesh_options options = { .address = "127.0.0.1",
			                            .node = i,
			                            .node_count = NODES };

		nodes[i] = (struct node){ .number = i };
		cr_assert_eq(net_mesh_new(&options, &nodes[i].text, &nodes[i].mesh), 0, "%s",
		             nodes[i].text.chars);
	}
	for (uint32_t i = 0; i < NODES; i++) {
		cr_assert_eq(
			net_mesh_adopt(nodes[i].mesh, 1 - i, "the peer", ends[i], &nodes[i].text),
			0, "%s", nodes[i].text.chars);
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

/* ---- a peer that lies ---- */

/* Gloo's message: its length, what it is, and where to (transport/tcp/pair.h, Op::preamble). */
struct gloo_message {
	uint64_t bytes, opcode, slot, offset, length, remote_offset;
};

/* A peer that is a plain socket. Return: it; @node is a mesh with a lane to it. */
static int connect_liar(struct node *node)
{
	struct net_mesh_options options = { .address = "127.0.0.1", .node_count = NODES };
	int ends[2];

	*node = (struct node){ .number = 0 };
	connection(ends);
	cr_assert_eq(net_mesh_new(&options, &node->text, &node->mesh), 0, "%s", node->text.chars);
	cr_assert_eq(net_mesh_adopt(node->mesh, 1, "the liar", ends[0], &node->text), 0, "%s",
	             node->text.chars);
	node->memory[LARGE] = calloc(1, SMALL_BYTES);
	cr_assert_eq(
		net_lane_new(node->mesh, 1, node->memory[LARGE], SMALL_BYTES, &node->lanes[LARGE]),
		0);
	return ends[1];
}

/* Gloo throws in its own thread at each of these. */
Test(gloo, a_peer_that_lies_loses_its_connection_and_ends_no_process)
{
	static const struct gloo_message lies[] = {
		/* To a slot at which nothing is received; and longer than what is. */
		{ sizeof(lies[0]) + 8, 1, 77, 0, 8, 0 },
		{ sizeof(lies[0]) + 2 * SMALL_BYTES, 1, LARGE, 0, 2 * SMALL_BYTES, 0 },
		/* Asks for what nobody sends. */
		{ sizeof(lies[0]), 3, 77, 0, 8, 0 },
	};

	for (uint32_t i = 0; i < ZI_COUNT_OF(lies); i++) {
		struct node node;
		int liar = connect_liar(&node);

		cr_assert_eq(net_lane_receive(node.lanes[LARGE], LARGE, 0, SMALL_BYTES, &node.text),
		             0);
		cr_assert_eq(send(liar, &lies[i], sizeof(lies[i]), MSG_NOSIGNAL), sizeof(lies[i]));
		(void)shutdown(liar, SHUT_WR);
		/* Gloo forgets whom to tell of the second one: that wait ends by its time. */
		cr_expect_lt(net_lane_wait_received(node.lanes[LARGE], 1,
		                                    zi_clock_deadline_ns(10 * SOON_NS), &node.text),
		             0, "lie %u", i);
		cr_expect(strstr(node.text.chars, "the liar: "), "%s", node.text.chars);
		node.lanes[LARGE] = net_lane_free(node.lanes[LARGE]);
		node.mesh = net_mesh_free(node.mesh);
		free(node.memory[LARGE]);
		zi_close(liar);
	}
}

/* It is gone before Gloo has asked the socket for its name. */
Test(gloo, a_connection_that_is_reset_is_an_error_of_its_adoption)
{
	struct net_mesh_options options = { .address = "127.0.0.1", .node_count = NODES };
	static const struct linger at_once = { .l_onoff = 1 };
	struct net_mesh *mesh;
	struct zi_text text;
	int ends[2];

	connection(ends);
	cr_assert_eq(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
	zi_close(ends[1]);
	cr_assert_eq(net_mesh_new(&options, &text, &mesh), 0, "%s", text.chars);
	cr_expect_eq(net_mesh_adopt(mesh, 1, "the peer", ends[0], &text), -EPIPE);
	cr_expect(strstr(text.chars, "connecting to the peer: "), "%s", text.chars);
	net_mesh_free(mesh);
}
