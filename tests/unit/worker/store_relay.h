/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test double of the network between a node and the store: a relay on the test's own loop that
 * passes everything on, but does one thing with the reply to one request: it keeps it for a while,
 * or closes that connection.
 */
#pragma once

#include <sys/epoll.h>

#include "daemon/worker/store.h"
#include "tests/unit/worker/net_fixture.h"

#define STORE_RELAY_LINKS_MAX 8u

struct store_relay;

struct store_relay_link {
	struct store_relay *relay; /* NULL: unused */
	struct zi_source node, store;
	size_t request_bytes;
	struct {
		struct store_header header;
		char payload[STORE_MESSAGE_BYTES_MAX];
	} request;
};

struct store_relay {
	struct zi_loop *loop;
	struct zi_source listener;
	struct zi_timer timer;
	struct store_relay_link links[STORE_RELAY_LINKS_MAX];
	uint16_t port, store_port;
	/* What is kept: the reply to a GET of @key, or to a WAIT for it and perhaps others. */
	const char *key;      /* NULL: nothing (more) */
	enum store_type type; /* 0: GET */
	uint32_t skip_count;  /* so many of them are passed on first */
	uint64_t keep_ns;     /* 0: the connection is closed instead */
	struct store_relay_link *kept;
	bool is_over; /* It has been kept for so long; who waits for it still has it. */
};

static inline void store_relay_close_link(struct store_relay_link *link)
{
	if (link->relay->kept == link)
		link->relay->kept = NULL;
	zi_loop_remove(&link->node);
	zi_loop_remove(&link->store);
	zi_close(link->node.fd);
	zi_close(link->store.fd);
	link->relay = NULL;
}

/* Return: false, the link is closed. */
static inline bool store_relay_pass(struct store_relay_link *link, int fd, const void *bytes,
                                    size_t count)
{
	if (send(fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count)
		return true;
	store_relay_close_link(link);
	return false;
}

static inline void store_relay_reply(struct zi_source *source, uint32_t events)
{
	struct store_relay_link *link = container_of(source, struct store_relay_link, store);
	char bytes[4096];
	ssize_t count = recv(source->fd, bytes, sizeof(bytes), 0);

	(void)events;
	if (count <= 0)
		store_relay_close_link(link);
	else
		(void)store_relay_pass(link, link->node.fd, bytes, (size_t)count);
}

static inline void store_relay_due(struct zi_timer *timer)
{
	struct store_relay *relay = container_of(timer, struct store_relay, timer);
	struct store_relay_link *link = relay->kept;

	if (link)
		cr_assert_eq(zi_loop_add(relay->loop, &link->store, link->store.fd, EPOLLIN,
		                         store_relay_reply),
		             0);
	relay->kept = NULL;
	relay->is_over = true;
	zi_loop_stop(relay->loop);
}

/* A whole request is there. */
static inline void store_relay_take(struct store_relay_link *link)
{
	struct store_relay *relay = link->relay;
	size_t bytes = link->request_bytes;
	uint32_t type = relay->type ? relay->type : STORE_GET;
	bool is_meant = relay->key && link->request.header.type == type &&
	                !strcmp(link->request.payload, relay->key);

	if (is_meant && relay->skip_count) {
		relay->skip_count--;
		is_meant = false;
	}
	link->request_bytes = 0;
	if (is_meant && !relay->keep_ns) {
		relay->key = NULL;
		store_relay_close_link(link);
		return;
	}
	if (!store_relay_pass(link, link->store.fd, &link->request, bytes) || !is_meant)
		return;
	relay->key = NULL;
	relay->kept = link;
	zi_loop_remove(&link->store);
	zi_loop_arm(relay->loop, &relay->timer, zi_clock_deadline_ns(relay->keep_ns),
	            store_relay_due);
}

/* One request at a time is under way on a connection. */
static inline void store_relay_request(struct zi_source *source, uint32_t events)
{
	struct store_relay_link *link = container_of(source, struct store_relay_link, node);
	char *target = (char *)&link->request;
	ssize_t count = recv(source->fd, target + link->request_bytes,
	                     sizeof(link->request) - link->request_bytes, 0);

	(void)events;
	if (count <= 0) {
		store_relay_close_link(link);
		return;
	}
	link->request_bytes += (size_t)count;
	if (link->request_bytes >= sizeof(link->request.header) &&
	    link->request_bytes == sizeof(link->request.header) + link->request.header.bytes)
		store_relay_take(link);
}

/* Where no store listens yet the node is closed to, and tries again. */
static inline void store_relay_accept(struct zi_source *source, uint32_t events)
{
	struct store_relay *relay = container_of(source, struct store_relay, listener);
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_port = htons(relay->store_port),
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int node = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC);
	int store = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct store_relay_link *link = relay->links;

	(void)events;
	cr_assert_geq(node, 0);
	cr_assert_geq(store, 0);
	if (connect(store, (struct sockaddr *)&address, sizeof(address))) {
		zi_close(store);
		zi_close(node);
		return;
	}
	while (link->relay)
		cr_assert_lt(++link - relay->links, STORE_RELAY_LINKS_MAX);
	*link = (struct store_relay_link){ .relay = relay };
	cr_assert_eq(zi_loop_add(relay->loop, &link->node, node, EPOLLIN, store_relay_request), 0);
	cr_assert_eq(zi_loop_add(relay->loop, &link->store, store, EPOLLIN, store_relay_reply), 0);
}

/* To the store of @test; nothing is kept yet. */
static inline void store_relay_open(struct store_relay *relay, const struct net_test *test)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memset(relay, 0, sizeof(*relay));
	relay->loop = test->loop;
	relay->store_port = test->port;
	cr_assert_geq(fd, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
	cr_assert_eq(listen(fd, STORE_RELAY_LINKS_MAX), 0);
	relay->port = ntohs(address.sin_port);
	cr_assert_eq(zi_loop_add(relay->loop, &relay->listener, fd, EPOLLIN, store_relay_accept),
	             0);
}

static inline void store_relay_close(struct store_relay *relay)
{
	for (uint32_t i = 0; i < STORE_RELAY_LINKS_MAX; i++)
		if (relay->links[i].relay)
			store_relay_close_link(&relay->links[i]);
	zi_loop_disarm(&relay->timer);
	zi_loop_remove(&relay->listener);
	zi_close(relay->listener.fd);
}
