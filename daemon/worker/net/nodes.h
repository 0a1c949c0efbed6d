/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a job as one of them sees them: found through the store, connected through Gloo, and
 * blamed by name when something goes wrong. Floor 3, of zinf-net. Owner: the operations' thread,
 * but for what says otherwise.
 *
 * Keys of the store, all below the epoch's number:
 *   node/I     who node I is, for people             address/I   how peers connect to it
 *   waits/I    for which node it waits in vain        abort       the end of this epoch: end.h
 *   asked/I    what node I's ranks do instead of coming to a call: struct net_asked
 * The first `abort` stands. It is node I's will, so that its death is known at once; and every node
 * watches for it, in a thread of its own, and for what it is asked. Who joins looks for it too: a
 * node that cannot, or that makes nothing though it had agreed (agree.h), says so there.
 */
#pragma once

#include <stdbool.h>

#include "common/base/loop.h"
#include "common/base/thread.h"
#include "daemon/worker/net.h"
#include "daemon/worker/net/end.h"
#include "daemon/worker/net/gloo.h"
#include "daemon/worker/store_client.h"

struct nodes;

/* What the watch sees. */
struct nodes_watcher {
	struct zi_loop *loop; /* is posted … */
	zi_post_fn ended; /* … this when the epoch ends by another's word: nodes_watch_end() */
	/* In the watch's thread, once at most: another node asks what ranks of this one do. */
	void (*asked)(void *arg, const struct net_asked *asked);
	void *arg;
};

/**
 * nodes_join() - meet all others, and connect to them
 *
 * Return: 0, or an error with @text, which the others hear: theirs, where one of them came to it
 * first. @ret_nodes: nodes_leave().
 */
int nodes_join(const struct net_join *join, const struct nodes_watcher *watcher,
               struct zi_text *text, struct nodes **ret_nodes);
/* A node that has joined cannot take part after all: the others hear why, and its watch ends. What
 * it posted is still to come; nodes_leave() after that. */
void nodes_refuse(struct nodes *nodes, int error, const struct zi_text *text);
/* Any thread: the watch posts no more; what it has posted is still to come. */
void nodes_stop_watch(struct nodes *nodes);
/* NULL-safe. The others see this node go. What the watch posted has run. Return: NULL. */
struct nodes *nodes_leave(struct nodes *nodes);

/* For lanes. It goes with @nodes. */
struct net_mesh *nodes_mesh(struct nodes *nodes);
/* "node 2 (10.0.0.3, host)". */
const char *nodes_name(const struct nodes *nodes, uint32_t node);

/* Context: the loop's thread, in the post. Whose it is; what the watch has seen. */
struct nodes *nodes_of_post(struct zi_post *post);
const struct nodes_end *nodes_watch_end(const struct nodes *nodes);

/* @node, of which nothing has come, is asked what its ranks do. Its daemon answers by ending the
 * epoch, with their names; nodes_blame() gives it the time. Where it does not, nobody hears of it.
 */
void nodes_ask(struct nodes *nodes, uint32_t node, const struct net_asked *asked);

/**
 * nodes_blame() - agree with the others why this epoch ends
 * @error, @text: what this node met; @suspect: the node that it waited for, or NET_CULPRIT_NONE;
 * @done: calls that it completed before; @moment_ns: for others to say whom they wait for, or who
 * died, before this node says its own: up to NODES_MOMENT_NS
 *
 * A node that waits in vain says for whom, gives the others a moment to say so too, and follows
 * that chain to one who waits for nobody; so does one that lost a connection, with twice the time,
 * for most often that is what others' waiting came to. The first to write has the last word:
 * @ret_end is what stands, everywhere alike, or this node's own view where the store does not
 * answer.
 * Takes NODES_BLAME_NS at most where the store answers or is gone.
 */
void nodes_blame(struct nodes *nodes, int error, uint32_t suspect, uint32_t done,
                 uint64_t moment_ns, const struct zi_text *text, struct nodes_end *ret_end);
#define NODES_MOMENT_NS (300 * ZI_NS_PER_MS)
#define NODES_BLAME_NS  (1800 * ZI_NS_PER_MS)
