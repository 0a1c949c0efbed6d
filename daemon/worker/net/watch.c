/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching the other nodes, from a thread of its own, until one ends the epoch; see nodes.h.
 * Floor 3, of zinf-net.
 *
 * No call of it has a deadline: a store that is slow is not gone, and to give the link up would
 * make this node's will known. store_client_cancel() ends whatever it waits for.
 */
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/worker/net/nodes_private.h"

/* What this node is asked goes to its daemon. Return: 0; -ENOENT it is asked nothing. */
static int pass_question(struct nodes *nodes, const char *key)
{
	struct net_asked asked;
	uint32_t bytes;
	int r = store_client_get(nodes->watch, key, &asked, sizeof(asked), ZI_DEADLINE_NEVER, NULL,
	                         &bytes);

	if (r == -ENOSPC)
		return 0; /* It is no question. */
	if (!r && bytes == sizeof(asked))
		nodes->watcher.asked(nodes->watcher.arg, &asked);
	return err_trace(r);
}

/* Until @abort is there. Who asks gives up soon after, so there is one question. */
static int await_end(struct nodes *nodes, const char *abort)
{
	struct nodes_key asked = nodes_key(nodes, "asked", nodes->join.node);
	const char *keys[] = { abort, asked.chars };
	uint32_t key_count = ZI_COUNT_OF(keys);
	int r;

	for (;;) {
		r = store_client_wait_any(nodes->watch, keys, key_count, ZI_DEADLINE_NEVER,
		                          &nodes->end.text);
		if (r == -ETIMEDOUT)
			continue; /* The store has a longest time of its own. */
		if (r || key_count == 1)
			return err_trace(r);
		r = pass_question(nodes, asked.chars);
		if (r)
			return r == -ENOENT ? 0 : err_trace(r);
		key_count = 1;
	}
}

static int watch_main(void *arg)
{
	struct nodes *nodes = arg;
	struct nodes_key key = nodes_key(nodes, "abort", NET_CULPRIT_NONE);
	int r = await_end(nodes, key.chars);

	if (r == -ECANCELED)
		return 0; /* nodes_leave() */
	/* These nodes go on. Who is gone shows by its connections from now on. */
	if (r && nodes->join.flags & NET_JOIN_STORE_ELSEWHERE)
		return 0;
	if (!r)
		r = nodes_end_read(nodes->watch, key.chars, ZI_DEADLINE_NEVER, NULL, &nodes->end);
	if (r)
		nodes_end_of_store(nodes, &nodes->end);
	zi_loop_post(nodes->watcher.loop, &nodes->post, nodes->watcher.ended);
	return 0;
}

/* Documented in nodes_private.h. */
int nodes_start_watch(struct nodes *nodes, uint64_t deadline_ns, struct zi_text *text)
{
	struct nodes_end will = { .error = -EPIPE,
		                  .culprit = nodes->join.node,
		                  .done = NODES_DONE_UNKNOWN };
	struct nodes_key key = nodes_key(nodes, "abort", NET_CULPRIT_NONE);
	int r;

	zi_text_set(&will.text, "%s is gone: its worker, its daemon or all of it ended",
	            nodes_name(nodes, nodes->join.node));
	r = store_client_will(nodes->watch, key.chars, &will, sizeof(will), deadline_ns, text);
	if (r)
		return err_trace(r);
	r = zi_thread_start(&nodes->thread, "watch", watch_main, nodes);
	if (r)
		return err_trace(zi_text_error(text, r, "%s has no room for a thread: %s",
		                               nodes_name(nodes, nodes->join.node), strerror(-r)));
	return 0;
}

/* Documented in nodes.h, as are the others. */
void nodes_stop_watch(struct nodes *nodes)
{
	if (nodes->watch)
		store_client_cancel(nodes->watch);
	(void)zi_thread_join(&nodes->thread); /* Its result is in `end`. */
}

struct nodes *nodes_of_post(struct zi_post *post)
{
	return container_of(post, struct nodes, post);
}

const struct nodes_end *nodes_watch_end(const struct nodes *nodes)
{
	return &nodes->end;
}
