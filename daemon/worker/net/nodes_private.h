/* SPDX-License-Identifier: Apache-2.0 */
/* Private to nodes.c, watch.c and blame.c. Floor 3, of zinf-net. */
#pragma once

#include "common/base/clock.h"
#include "daemon/worker/net/nodes.h"

/* One question to a store that may be cut off. */
#define NODES_ASK_NS (300 * ZI_NS_PER_MS)

struct nodes {
	struct net_join join;
	struct net_mesh *mesh;
	struct store_client *client; /* the operations' thread's */
	struct store_client *watch;  /* the watch's; its connection carries the will */
	struct zi_thread thread;     /* the watch */
	struct nodes_watcher watcher;
	struct zi_post post;
	struct nodes_end end; /* what the watch saw: written before it posts */
	char names[SUBTREE_NODES_MAX][ZI_NAME_BYTES * 2];
};

/* "EPOCH/what" or "EPOCH/what/I". */
struct nodes_key {
	char chars[ZI_NAME_BYTES];
};

/* @node: NET_CULPRIT_NONE for a key that is no node's. */
struct nodes_key nodes_key(const struct nodes *nodes, const char *what, uint32_t node);
/* What is to be said when the store is gone: node 0 is. */
void nodes_end_of_store(const struct nodes *nodes, struct nodes_end *ret_end);

/* This node's will, and a thread that waits for the end: nodes_stop_watch(). Return: 0, or an error
 * with @text. */
int nodes_start_watch(struct nodes *nodes, uint64_t deadline_ns, struct zi_text *text);
