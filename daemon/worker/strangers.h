/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to a port of zinf-net that have not greeted yet. Anybody who reaches the port can
 * make such connections, so their number is bounded, for each address and in all. At a limit a new
 * connection takes the place of the oldest one: silence keeps no place from a member, who greets at
 * once. A member that loses its place all the same connects again until its deadline. Floor 3. The
 * thread of the port's owner.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/base/list.h"

#define STRANGERS_MAX      64u
#define STRANGERS_HERE_MAX 8u    /* from one address */
#define STRANGERS_HELLO_MS 1000u /* so long a connection has to greet */

/* IPv4's last four bytes behind zeros; of IPv6 the network's eight, as a host has all of one. */
struct stranger_address {
	uint8_t bytes[8];
};

/* Embedded in a connection. */
struct stranger {
	struct zi_list link;
	struct stranger_address address;
};

/* Embedded in the server. */
struct strangers {
	struct zi_list list; /* the oldest first */
	uint32_t count;
	uint64_t displaced_count; /* that lost their place to another one, so far */
};

void strangers_init(struct strangers *strangers);
void strangers_add(struct strangers *strangers, struct stranger *stranger,
                   const struct sockaddr_storage *from);
/* It has greeted, or ends. Nothing for one that is not there. */
void strangers_remove(struct strangers *strangers, struct stranger *stranger);
/* Return: whose place a new connection from @from takes; NULL: there is room. */
struct stranger *strangers_displaced(const struct strangers *strangers,
                                     const struct sockaddr_storage *from);
