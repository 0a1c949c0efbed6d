/* SPDX-License-Identifier: Apache-2.0 */
/* Whose fault it is; see nodes.h. Floor 3, of zinf-net. Owner: the operations' thread. */
#include <stdio.h>

#include "common/base/err.h"
#include "daemon/worker/net/nodes_private.h"

/* Documented in nodes_private.h. */
struct nodes_key nodes_key(const struct nodes *nodes, const char *what, uint32_t node)
{
	struct nodes_key key;

	if (node == NET_CULPRIT_NONE)
		(void)snprintf(key.chars, sizeof(key.chars), "%lu/%s",
		               (unsigned long)nodes->join.epoch, what); /* Fits. */
	else
		(void)snprintf(key.chars, sizeof(key.chars), "%lu/%s/%u",
		               (unsigned long)nodes->join.epoch, what, node);
	return key;
}

/* Follows who waits for whom from @suspect on. @is_waiting: this node waits for that one, and has
 * not just lost its connection. Return: one who waits for nobody, which may be this node where it
 * does not; @suspect where they wait in a circle. */
static uint32_t follow(struct nodes *nodes, uint32_t suspect, bool is_waiting, bool *ret_is_cycle)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(NODES_ASK_NS);
	uint64_t seen = is_waiting ? 1ull << nodes->join.node : 0;
	uint32_t node = suspect;

	*ret_is_cycle = false;
	for (;;) {
		struct nodes_key key = nodes_key(nodes, "waits", node);
		uint32_t next, bytes;

		if (seen & 1ull << node) {
			*ret_is_cycle = true;
			return suspect;
		}
		if (node == nodes->join.node)
			return node;
		seen |= 1ull << node;
		if (store_client_get(nodes->client, key.chars, &next, sizeof(next), deadline_ns,
		                     NULL, &bytes) ||
		    bytes != sizeof(next) || next >= nodes->join.node_count)
			return node;
		node = next;
	}
}

/* Who gives up waiting closes its connections: whoever loses one to a node that waits for another,
 * were it this one, has met what that node met. */
static void compose(struct nodes *nodes, int error, uint32_t suspect, const struct zi_text *text,
                    struct nodes_end *end)
{
	bool is_waiting = error == -ETIMEDOUT, is_cycle = false;

	*end = (struct nodes_end){ .error = error, .culprit = suspect, .text = *text };
	if (suspect == NET_CULPRIT_NONE)
		return;
	end->culprit = follow(nodes, suspect, is_waiting, &is_cycle);
	if (is_cycle && is_waiting) {
		zi_text_set(&end->text, "%.180s; they wait for each other: look at the link",
		            text->chars);
	} else if (end->culprit != suspect) {
		end->error = -ETIMEDOUT;
		zi_text_set(&end->text, "%.150s, which waits for %.80s", text->chars,
		            nodes_name(nodes, end->culprit));
	}
}

/* Documented in nodes_private.h. */
void nodes_end_of_store(const struct nodes *nodes, struct nodes_end *ret_end)
{
	*ret_end = (struct nodes_end){ .error = -EPIPE, .done = NODES_DONE_UNKNOWN };
	zi_text_set(&ret_end->text,
	            "the store is gone, which %s served: its worker, its daemon or all of it ended",
	            nodes_name(nodes, 0));
}

/* @r: of reading there. Who lost the store as well has closed its connections for that. */
static bool is_store_to_blame(const struct nodes *nodes, int error, uint32_t suspect, int r)
{
	bool is_gone = r != -ENOENT && r != -ETIMEDOUT && r != -EPROTO;

	return is_gone && error == -EPIPE && suspect != NET_CULPRIT_NONE && suspect &&
	       nodes->join.node && !(nodes->join.flags & NET_JOIN_STORE_ELSEWHERE);
}

/* Documented in the header, as is the other. */
void nodes_ask(struct nodes *nodes, uint32_t node, const struct net_asked *asked)
{
	struct nodes_key key = nodes_key(nodes, "asked", node);

	(void)store_client_set(nodes->client, key.chars, asked, sizeof(*asked),
	                       zi_clock_deadline_ns(NODES_ASK_NS), NULL);
}

void nodes_blame(struct nodes *nodes, int error, uint32_t suspect, uint32_t done,
                 uint64_t moment_ns, const struct zi_text *text, struct nodes_end *ret_end)
{
	struct nodes_key abort = nodes_key(nodes, "abort", NET_CULPRIT_NONE);
	struct nodes_key waits = nodes_key(nodes, "waits", nodes->join.node);
	const char *keys[] = { abort.chars };
	bool is_present;
	int r;

	if (suspect != NET_CULPRIT_NONE && error == -ETIMEDOUT)
		(void)store_client_set(nodes->client, waits.chars, &suspect, sizeof(suspect),
		                       zi_clock_deadline_ns(NODES_ASK_NS), NULL);
	/* A lost connection is most often the second thing that happened: the first is told, also
	 * by one that gave up waiting, and itself gives the others a moment. */
	if (error != -ETIMEDOUT)
		moment_ns *= 2;
	if (suspect != NET_CULPRIT_NONE)
		(void)store_client_wait(nodes->client, keys, 1, zi_clock_deadline_ns(moment_ns),
		                        NULL);
	r = nodes_end_read(nodes->client, abort.chars, zi_clock_deadline_ns(NODES_ASK_NS), NULL,
	                   ret_end);
	if (!r)
		return;
	if (is_store_to_blame(nodes, error, suspect, r)) {
		nodes_end_of_store(nodes, ret_end);
		ret_end->done = done;
		return;
	}
	compose(nodes, error, suspect, text, ret_end);
	ret_end->done = done;
	if (!nodes_end_tell(nodes->client, abort.chars, ret_end, zi_clock_deadline_ns(NODES_ASK_NS),
	                    NULL, &is_present) &&
	    is_present)
		(void)nodes_end_read(nodes->client, abort.chars, zi_clock_deadline_ns(NODES_ASK_NS),
		                     NULL, ret_end);
}
