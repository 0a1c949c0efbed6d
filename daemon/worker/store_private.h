/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the store's server: its objects, and what its files need of each other. Floor 3. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>

#include "common/base/loop.h"
#include "daemon/worker/store.h"
#include "daemon/worker/store_server.h"
#include "daemon/worker/store_table.h"
#include "daemon/worker/strangers.h"

/*
 *            HELLO              request             not there yet
 *  STRANGER ───────▶ READY ◀──────────────▶ (reply) ◀───────── WAITING
 *     │                 │                                         │
 *     └── refused ──────┴──▶ LEAVING: the error goes out, then the client closes
 */
enum store_state {
	STORE_STRANGER,
	STORE_READY,
	STORE_WAITING,
	STORE_LEAVING,
};

struct store_connection {
	struct store_server *server;
	struct zi_source source;
	struct zi_timer timer;    /* of a stall; WAITING: of the request */
	struct zi_list link;      /* server->connections */
	struct stranger stranger; /* until it has greeted */
	enum store_state state;
	bool is_broken; /* ends when its timer is due, at once */
	bool has_owned; /* keys that go with it */
	char name[ZI_NAME_BYTES];

	/* The message that comes in; WAITING: the request that waits. */
	struct store_header header;
	uint32_t header_bytes, payload_bytes; /* that are there */
	char *payload;                        /* header.bytes, and a NUL */

	/* The reply that goes out. */
	char *reply;
	uint32_t reply_bytes, sent_bytes;

	uint64_t asked_ns; /* WAITING: since when */
	char *will;        /* key, NUL, value; NULL: none */
	uint32_t will_bytes;
};

struct store_server {
	struct zi_loop *loop;
	struct zi_source listener;
	struct zi_timer pause; /* of accepting, while there are no descriptors */
	struct zi_list connections;
	struct strangers strangers; /* of the connections */
	uint32_t connection_count, connections_max;
	store_refused_fn refused;
	uint64_t stall_ns, hello_ns;
	uint16_t port;
	uint32_t run;  /* not 0 */
	bool has_lost; /* after all had met one who claimed something went: it will be over soon */
	char job[ZI_NAME_BYTES], incarnation[ZI_NAME_BYTES], token[STORE_TOKEN_BYTES];
	struct store_table table;
};

/* ---- store_server.c ---- */

/* One reply to the message that is there. Never ends the connection, so that anyone may be
 * answered from anywhere. @payload is copied. */
void store_answer(struct store_connection *connection, int error, int64_t number,
                  const void *payload, uint32_t bytes);
/* An error's; nothing else is listened to. */
void store_refuse(struct store_connection *connection, int error, const struct zi_text *text);

/* ---- store_listen.c ---- */

/* A listening socket and its port. Return: as store_server_open(). */
int store_listen(const struct store_server_options *options, struct zi_text *text,
                 uint16_t *ret_port, int *ret_fd);

/* ---- store_request.c ---- */

/* Sets @key; requests that wait for it go on. The only way to a key: no waiter is forgotten.
 * Return: as store_table_set(). */
int store_set_key(struct store_server *server, const char *key, const void *value,
                  uint32_t value_bytes, struct zi_text *text);
/* "10.0.0.7", for people. */
struct store_peer {
	char chars[INET6_ADDRSTRLEN];
};
struct store_peer store_peer_of(const struct store_connection *connection);
/* A whole message is there. */
void store_handle(struct store_connection *connection);
/* Sets what @connection, which ends, left behind for this case. */
void store_run_will(struct store_connection *connection);
