/* SPDX-License-Identifier: Apache-2.0 */
/* The way to a job's store. Floor 3, of zinf-net. Any thread. */
#pragma once

#include "daemon/worker/net.h"
#include "daemon/worker/store_client.h"

/* @name: of the client, for people. Otherwise as store_client_open(). */
int way_open(const struct net_way *way, const char *name, uint64_t deadline_ns,
             struct zi_text *text, struct store_client **ret_client);
/* Whether all that is to end in it does. */
bool way_is_whole(const struct net_way *way);

/* This node, for people; "?" where it has no name. */
struct way_host {
	char chars[ZI_NAME_BYTES];
};
struct way_host way_own_host(void);
/* Why a node may be missing: what the store tells of clients that it refused or that lost their
 * places, else what to look at. Asks the store, for half a second at most. */
struct zi_text way_say_why_missing(struct store_client *client);
/* "2, 3", at most as many as fit into a part of a text. */
struct zi_text way_say_ranks(uint64_t ranks);
