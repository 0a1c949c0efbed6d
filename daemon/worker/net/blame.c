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

/* Follows who waits for whom from @suspect on. Return: one who waits for nobody; @suspect when they
 * wait for each other. */
static uint32_t follow(struct nodes *nodes, uint32_t suspect, bool *ret_is_cycle)
{
	uint64_t seen = 1ull << nodes->join.node;
	uint32_t node = suspect;

	*ret_is_cycle = false;
	for (;;) {
		struct nodes_key key = nodes_key(nodes, "waits", node);
		uint32_t next, bytes;

		if (seen & 1ull << node) {
			*ret_is_cycle = true;
			return suspect;
		}
		seen |= 1ull << node;
		if (store_client_get(nodes->client, key.chars, &next, sizeof(next),
		                     zi_clock_deadline_ns(NODES_ASK_NS), NULL, &bytes) ||
		    bytes != sizeof(next) || next >= nodes->join.node_count)
			return node;
		node = next;
	}
}

/* Who gives up waiting closes its connections: whoever loses one to a node that waits for a third
 * has met what that node met. */
static void compose(struct nodes *nodes, int error, uint32_t suspect, const struct zi_text *text,
                    struct nodes_end *end)
{
	bool is_cycle = false;

	*end = (struct nodes_end){ .error = error, .culprit = suspect, .text = *text };
	if (suspect == NET_CULPRIT_NONE)
		return;
	end->culprit = follow(nodes, suspect, &is_cycle);
	if (is_cycle) {
		zi_text_set(&end->text, "%.180s; they wait for each other: look at the link",
		            text->chars);
	} else if (end->culprit != suspect) {
		end->error = -ETIMEDOUT;
		zi_text_set(&end->text, "%.150s, which waits for %.80s", text->chars,
		            nodes_name(nodes, end->culprit));
	}
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
	if (!nodes_end_read(nodes->client, abort.chars, zi_clock_deadline_ns(NODES_ASK_NS), NULL,
	                    ret_end))
		return;
	compose(nodes, error, suspect, text, ret_end);
	ret_end->done = done;
	if (!nodes_end_tell(nodes->client, abort.chars, ret_end, zi_clock_deadline_ns(NODES_ASK_NS),
	                    NULL, &is_present) &&
	    is_present)
		(void)nodes_end_read(nodes->client, abort.chars, zi_clock_deadline_ns(NODES_ASK_NS),
		                     NULL, ret_end);
}
