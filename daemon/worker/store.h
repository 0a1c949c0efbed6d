/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: where the nodes of one job find each other. One node serves a small table of keys and
 * values over TCP; the others set, get, add and wait. Rendezvous and blame alone: data between
 * nodes never pass here. Floor 3. Here: what goes over the wire (docs/PROTOCOL.md) and its limits.
 *
 *   client                                   server
 *   HELLO job, incarnation, run, token ───▶  another job's or run's client is refused and told so
 *   SET GET ADD WAIT DELETE WILL …    ────▶  one request at a time; each has one REPLY
 *
 * Integers are little-endian. A message is a header and header.bytes of payload:
 *   HELLO           struct store_hello
 *   SET, WILL       key, NUL, value           GET, ADD, DELETE   key, NUL
 *   WAIT            key, NUL, key, NUL, …     REPLY              the value, or the error's text
 *
 * The token is a shared secret in the clear. It keeps strays and other jobs out. The connections
 * that carry data are proven by keys that nodes give each other here (net/links.h). Neither
 * protects from a program that can read the network: nodes of a job belong on a trusted network.
 */
#pragma once

#include <assert.h>
#include <stdint.h>

#include "common/base/types.h"

#define STORE_MAGIC   0x54535a4eu /* "NZST" */
#define STORE_VERSION 6u

#define STORE_KEY_BYTES       128u /* NUL included */
#define STORE_VALUE_BYTES_MAX 65536u
#define STORE_TOKEN_BYTES     64u /* NUL included; "" is none */
#define STORE_WAIT_KEYS_MAX   65u /* of all ranks, and one that ends it */
#define STORE_KEYS_MAX        8192u
#define STORE_TABLE_BYTES_MAX (16u << 20) /* keys and values together */
/* Of each of 64 nodes two for each of 64 groups, one that holds its ranks, one that asks. */
#define STORE_CONNECTIONS_MAX   (64u * (2 * 64 + 2))
#define STORE_MESSAGE_BYTES_MAX (STORE_KEY_BYTES + STORE_VALUE_BYTES_MAX)

enum store_type {
	STORE_HELLO = 1,
	STORE_SET = 2,  /* STORE_NEW: unless it is there; REPLY has what stands then. STORE_OWNED:
	                 * it goes when this connection ends */
	STORE_GET = 3,  /* -ENOENT */
	STORE_ADD = 4,  /* header.number to an 8-byte integer, 0 if not there; REPLY has the sum */
	STORE_WAIT = 5, /* until all keys are there; header.number: ms, then -ETIMEDOUT. STORE_ANY:
	                 * until one of them is. STORE_UNLESS: or until the first one is, which is
	                 * not waited for: REPLY then has its value, and number 1 */
	STORE_DELETE = 6, /* -ENOENT; STORE_PREFIX: all keys that begin with this one */
	STORE_WILL = 7,   /* set (STORE_NEW) by the server when this connection ends; "": no more */
	STORE_REPLY = 8,
	_STORE_COUNT,
};

#define STORE_NEW    (1u << 0)
#define STORE_OWNED  (1u << 1)
#define STORE_PREFIX (1u << 2)
#define STORE_ANY    (1u << 3)
#define STORE_UNLESS (1u << 4)
#define STORE_FLAGS  (STORE_NEW | STORE_OWNED | STORE_PREFIX | STORE_ANY | STORE_UNLESS)

/* Set when all who are to meet have met: who comes without the run's number from then on is of
 * another run, and is refused. */
#define STORE_MET_KEY "met"
/* Set by who sees that the group of all ranks has broken, or that it cannot be made (net/end.h):
 * whether its processes end or not, it does not go on. */
#define STORE_ENDED_KEY "1/abort"
/* The server's own: who was refused last for its token or its version, for people. */
#define STORE_REFUSED_KEY "refused"
/* The server's own: how many connections lost their place before they greeted, for people. */
#define STORE_STRANGERS_KEY "strangers"

struct store_header {
	uint32_t magic;
	uint16_t type;  /* enum store_type */
	uint16_t flags; /* unknown ones are refused */
	uint32_t bytes; /* of the payload; at most STORE_MESSAGE_BYTES_MAX */
	int32_t error;  /* REPLY: 0 or -errno; else 0 */
	int64_t number;
};
static_assert(sizeof(struct store_header) == 24, "store header");

struct store_hello {
	uint32_t version;
	uint32_t run;          /* what the REPLY of the first HELLO gave; 0: it is to give it */
	uint32_t coll_version; /* ZI_COLL_VERSION: of what goes between nodes beside the store */
	uint32_t reserved;     /* 0 */
	char job[ZI_NAME_BYTES];
	char incarnation[ZI_NAME_BYTES];
	char token[STORE_TOKEN_BYTES];
	char name[ZI_NAME_BYTES]; /* of the client, for people: "node 2" */
};
static_assert(sizeof(struct store_hello) == 272, "store hello");
