/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of the store (store.h): one socket, one table, one loop, whose thread owns all of it.
 * Floor 3.
 *
 *   store_server.c   the socket, connections: bytes in, bytes out, limits of time
 *   store_request.c  what a message asks for, and who waits for what
 *   store_table.c    keys and values
 *
 * What a client may do to others: fill the table, which is bounded. It cannot block the loop: no
 * call here waits, and a turn takes one message of a connection.
 */
#pragma once

#include <stdint.h>

#include "common/base/loop.h"
#include "common/base/text.h"

struct store_server;

/* Somebody came with another token or version: who, and from where. May come very often. */
typedef void (*store_refused_fn)(const struct zi_text *text);

struct store_server_options {
	const char *host; /* to listen at: a numeric address or a name; NULL: all of this node's */
	uint16_t port;    /* 0: any free one, which store_server_port() tells */
	const char *job, *incarnation;
	const char *token; /* NULL or "": none is asked for */
	uint64_t stall_ns; /* half a message, or an unread reply, may take so long; 0: 10 s */
	uint64_t hello_ns; /* a connection may take so long to greet; 0: 1 s, at most stall_ns */
	uint32_t connections_max; /* 0: STORE_CONNECTIONS_MAX */
	store_refused_fn refused; /* NULL: nobody's business */
};

/**
 * store_server_open() - listen and serve, from the loop's next turn on
 * @ret_server: store_server_close(), before the loop ends
 *
 * Return: 0; -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -ENOENT (the name is not resolved), each with
 * @text; -EMFILE, -ENOMEM. Context: the loop's thread, as all of these. A name is looked up here,
 * which waits for as long as the node's resolver does.
 */
int store_server_open(struct zi_loop *loop, const struct store_server_options *options,
                      struct zi_text *text, struct store_server **ret_server);
uint16_t store_server_port(const struct store_server *server);
uint32_t store_server_connection_count(const struct store_server *server);
/* Deletes every key that begins with @prefix. */
void store_server_forget(struct store_server *server, const char *prefix);
/* Ends all connections, without wills. NULL-safe. Return: NULL. */
struct store_server *store_server_close(struct store_server *server);
