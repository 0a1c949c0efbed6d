/* SPDX-License-Identifier: Apache-2.0 */
/* Joining the other nodes, and leaving them; see nodes.h. Floor 3, of zinf-net. Owner: the
 * operations' thread. */
#include "daemon/worker/net/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/worker/net/links.h"
#include "daemon/worker/net/nodes_private.h"
#include "daemon/worker/net/way.h"

/* All have met in the store: what is left is a connection through the network. */
#define NODES_CONNECT_NS (10 * ZI_NS_PER_S)
/* While others are waited for: how often the store is asked whether one of them makes nothing. */
#define NODES_LOOK_NS (100 * ZI_NS_PER_MS)
struct net_mesh *nodes_mesh(struct nodes *nodes)
{
	return nodes->mesh;
}

const char *nodes_name(const struct nodes *nodes, uint32_t node)
{
	return nodes->names[node];
}

/* Who has no memory says no more than that, and @text may still hold what was tried before. */
static int say_memory(const struct nodes *nodes, int error, struct zi_text *text)
{
	if (error != -ENOMEM)
		return error;
	return zi_text_error(text, error, "%s has no memory to join the others",
	                     nodes_name(nodes, nodes->join.node));
}

static int open_client(const struct nodes *nodes, uint64_t deadline_ns, struct zi_text *text,
                       struct store_client **ret_client)
{
	char name[ZI_NAME_BYTES];

	(void)snprintf(name, sizeof(name), "node %u", nodes->join.node); /* Fits. */
	return err_trace(way_open(&nodes->join.way, name, deadline_ns, text, ret_client));
}

/* Tells the others who this node is and how each of them connects to it. */
static int publish(struct nodes *nodes, const struct place_address *own, const struct links *links,
                   uint64_t deadline_ns, struct zi_text *text)
{
	struct way_host host = way_own_host();
	struct nodes_key key = nodes_key(nodes, "node", nodes->join.node);
	int r;

	(void)snprintf(nodes->names[nodes->join.node], sizeof(nodes->names[0]), "node %u (%s, %s)",
	               nodes->join.node, own->address, host.chars); /* For people: cut. */
	r = store_client_set(nodes->client, key.chars, nodes->names[nodes->join.node],
	                     (uint32_t)strlen(nodes->names[nodes->join.node]), deadline_ns, text);
	if (r)
		return err_trace(r);
	key = nodes_key(nodes, "address", nodes->join.node);
	return err_trace(store_client_set(
		nodes->client, key.chars, links_cards(links),
		nodes->join.node_count * (uint32_t)sizeof(struct links_card), deadline_ns, text));
}

/* The time is over. Return: -ETIMEDOUT with who did not come; the link's own error. */
static int name_missing(const struct nodes *nodes, const char *const *names, uint64_t started_ns,
                        struct zi_text *text)
{
	uint32_t count = nodes->join.node_count;

	for (uint32_t i = 0; i < count; i++) {
		int r = store_client_wait(nodes->client, &names[i], 1, 0, text);

		if (r && (r != -ETIMEDOUT || !store_client_is_connected(nodes->client)))
			return err_trace(r);
		if (r)
			return err_origin(zi_text_error(
				text, r,
				"node %u of %u did not come within %lu ms (%u before it did): "
				"%s",
				i, count,
				(unsigned long)((zi_clock_now_ns() - started_ns) / ZI_NS_PER_MS), i,
				way_say_why_missing(nodes->client).chars));
	}
	return err_origin(-ETIMEDOUT); /* It came a moment too late. */
}

/* Why one of the others will not come: the epoch is over before it began. Return: 0, it goes on;
 * what ended it; the link's own error. */
static int look_for_end(const struct nodes *nodes, uint64_t deadline_ns, struct zi_text *text)
{
	struct nodes_key key = nodes_key(nodes, "abort", NET_CULPRIT_NONE);
	struct nodes_end end;
	struct zi_text why = { "" };
	int r = nodes_end_read(nodes->client, key.chars,
	                       ZI_MAX(deadline_ns, zi_clock_deadline_ns(NODES_ASK_NS)), &why, &end);

	if (r == -ENOENT)
		return 0;
	if (r)
		return err_trace(zi_text_error(text, r, "%s", why.chars));
	return err_origin(zi_text_error(text, end.error, "%s", end.text.chars));
}

/* Until all have published. A store that is slow once, or a packet lost, costs its time and no
 * more: until the deadline nothing gives the link up. */
static int await_all(struct nodes *nodes, uint64_t deadline_ns, struct zi_text *text)
{
	struct nodes_key keys[SUBTREE_NODES_MAX];
	const char *names[SUBTREE_NODES_MAX];
	uint64_t started_ns = zi_clock_now_ns();

	for (uint32_t i = 0; i < nodes->join.node_count; i++) {
		keys[i] = nodes_key(nodes, "address", i);
		names[i] = keys[i].chars;
	}
	for (;;) {
		uint64_t now_ns = zi_clock_now_ns();
		uint64_t look_ns = ZI_MIN(now_ns + NODES_LOOK_NS, deadline_ns);
		int r = store_client_wait_until(nodes->client, names, nodes->join.node_count,
		                                look_ns, deadline_ns, text);

		if (r != -ETIMEDOUT || !store_client_is_connected(nodes->client))
			return err_trace(r);
		r = look_for_end(nodes, deadline_ns, text);
		if (r)
			return err_trace(r);
		if (now_ns >= deadline_ns)
			return err_trace(name_missing(nodes, names, started_ns, text));
	}
}

/* What @peer published: its name, and how this node connects to it. */
static int read_peer(struct nodes *nodes, uint32_t peer, uint64_t deadline_ns, struct zi_text *text,
                     struct links_card *ret_card)
{
	struct links_card cards[SUBTREE_NODES_MAX];
	struct links_card *card = &cards[nodes->join.node];
	struct nodes_key key = nodes_key(nodes, "node", peer);
	uint32_t bytes;
	int r;

	r = store_client_get(nodes->client, key.chars, nodes->names[peer],
	                     sizeof(nodes->names[0]) - 1, deadline_ns, text, &bytes);
	if (r)
		return err_trace(r);
	nodes->names[peer][bytes] = '\0';
	key = nodes_key(nodes, "address", peer);
	r = store_client_get(nodes->client, key.chars, cards, sizeof(cards), deadline_ns, text,
	                     &bytes);
	if (r)
		return err_trace(r);
	if (bytes != nodes->join.node_count * sizeof(cards[0]))
		return err_origin(zi_text_error(text, -EPROTO,
		                                "%s reports another number of nodes for the job "
		                                "than %u",
		                                nodes_name(nodes, peer), nodes->join.node_count));
	card->address[sizeof(card->address) - 1] = '\0';
	*ret_card = *card;
	explicit_bzero(cards, sizeof(cards));
	return 0;
}

/* Gloo takes over @fds, which are closed where it does not. */
static int adopt_all(struct nodes *nodes, int *fds, struct zi_text *text)
{
	int r = 0;

	for (uint32_t i = 0; i < nodes->join.node_count; i++) {
		if (i == nodes->join.node)
			continue;
		if (r)
			fds[i] = zi_close(fds[i]);
		else
			r = net_mesh_adopt(nodes->mesh, i, nodes_name(nodes, i),
			                   zi_steal_fd(fds[i]), text);
	}
	return err_trace(say_memory(nodes, r, text));
}

static int connect_all(struct nodes *nodes, struct links *links, uint64_t deadline_ns,
                       struct zi_text *text)
{
	struct links_card cards[SUBTREE_NODES_MAX];
	int fds[SUBTREE_NODES_MAX];
	struct zi_text why = { "" };
	uint32_t missing;
	int r = 0;

	for (uint32_t i = 0; i < nodes->join.node_count && !r; i++)
		if (i != nodes->join.node)
			r = read_peer(nodes, i, deadline_ns, text, &cards[i]);
	if (r)
		return err_trace(r);
	r = links_connect(links, cards,
	                  zi_clock_deadline_ns(
				  ZI_MIN(nodes->join.timeout_ms * ZI_NS_PER_MS, NODES_CONNECT_NS)),
	                  &why, fds, &missing);
	explicit_bzero(cards, sizeof(cards));
	if (r)
		return err_trace(zi_text_error(text, r, "connecting to %s: %s",
		                               nodes_name(nodes, missing), why.chars));
	return err_trace(adopt_all(nodes, fds, text));
}

/* Some on loopback, some not: those cannot meet, and Gloo would only say that it waited. */
static int check_own(const struct nodes *nodes, const struct place_address *own,
                     struct zi_text *text)
{
	static const char *const kinds[] = { "network", "loopback" };
	struct nodes_key key = nodes_key(nodes, "reach", NET_CULPRIT_NONE);
	uint64_t deadline_ns = zi_clock_deadline_ns(NODES_CONNECT_NS);
	const char *kind = kinds[own->is_loopback];
	char stands[16];
	uint32_t bytes;
	bool is_present;
	int r;

	r = store_client_set_new(nodes->client, key.chars, kind, (uint32_t)strlen(kind) + 1,
	                         deadline_ns, text, &is_present);
	if (r || !is_present)
		return err_trace(r);
	r = store_client_get(nodes->client, key.chars, stands, sizeof(stands), deadline_ns, text,
	                     &bytes);
	if (r)
		return err_trace(r);
	if (bytes == strlen(kind) + 1 && !memcmp(stands, kind, bytes))
		return 0;
	return err_origin(zi_text_error(
		text, -EADDRNOTAVAIL,
		"node %u would use %s, an address of %s; others of the job do the contrary: set "
		"ZINF_NET_INTERFACE, or MASTER_ADDR to an address that all nodes reach",
		nodes->join.node, own->address,
		own->is_loopback ? "this machine alone" : "the network"));
}

static int join_all(struct nodes *nodes, uint64_t deadline_ns, struct zi_text *text)
{
	_cleanup_(links_freep) struct links *links = NULL;
	struct place_address own;
	int r;

	r = open_client(nodes, deadline_ns, text, &nodes->client);
	r = r ? r : open_client(nodes, deadline_ns, text, &nodes->watch);
	/* No other is opened. */
	explicit_bzero(nodes->join.way.token, sizeof(nodes->join.way.token));
	if (r)
		return err_trace(r);
	r = place_own_address(&nodes->join.way.place, nodes->join.way.interface, text, &own);
	if (r)
		return err_trace(r);
	r = check_own(nodes, &own, text);
	if (r)
		return err_trace(r);
	r = net_mesh_new(&(struct net_mesh_options){ .address = own.address,
	                                             .node = nodes->join.node,
	                                             .node_count = nodes->join.node_count },
	                 text, &nodes->mesh);
	r = r ? r : links_new(own.address, nodes->join.node, nodes->join.node_count, text, &links);
	r = say_memory(nodes, r, text);
	r = r ? r : publish(nodes, &own, links, deadline_ns, text);
	r = r ? r : await_all(nodes, deadline_ns, text);
	r = r ? r : connect_all(nodes, links, deadline_ns, text);
	return r ? err_trace(r) : err_trace(nodes_start_watch(nodes, deadline_ns, text));
}

/* The others, which wait for this node, hear why it does not come. What stands already stands. */
static void tell_end(struct nodes *nodes, int error, const struct zi_text *text)
{
	struct nodes_key key = nodes_key(nodes, "abort", NET_CULPRIT_NONE);
	struct store_client *client = nodes->client;
	struct nodes_end end = { .error = error,
		                 .culprit = nodes->join.node,
		                 .done = NODES_DONE_UNKNOWN,
		                 .text = *text };
	bool is_present;

	/* Without a store they have their deadlines. Where this link is why it ends, that of the
	 * watch, on which nothing waits yet, may live. */
	if (client && !store_client_is_connected(client))
		client = nodes->watch;
	if (client)
		(void)nodes_end_tell(client, key.chars, &end, zi_clock_deadline_ns(NODES_ASK_NS),
		                     NULL, &is_present);
}

/* Documented in the header. */
int nodes_join(const struct net_join *join, const struct nodes_watcher *watcher,
               struct zi_text *text, struct nodes **ret_nodes)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(join->timeout_ms * ZI_NS_PER_MS);
	struct nodes *nodes = calloc(1, sizeof(*nodes));
	int r;

	static_assert(sizeof(struct links_card) * SUBTREE_NODES_MAX <= STORE_VALUE_BYTES_MAX,
	              "the cards of all are one value");
	if (!nodes)
		return err_origin(
			zi_text_error(text, -ENOMEM, "node %u has no memory to join", join->node));
	nodes->join = *join;
	nodes->watcher = *watcher;
	for (uint32_t i = 0; i < join->node_count; i++)
		(void)snprintf(nodes->names[i], sizeof(nodes->names[i]), "node %u", i); /* Fits. */
	r = join_all(nodes, deadline_ns, text);
	if (r) {
		if (!text->chars[0])
			zi_text_set(text, "%s cannot join: %s", nodes_name(nodes, join->node),
			            strerror(-r));
		tell_end(nodes, r, text);
		(void)nodes_leave(nodes);
		return err_trace(r);
	}
	*ret_nodes = nodes;
	return 0;
}

void nodes_refuse(struct nodes *nodes, int error, const struct zi_text *text)
{
	tell_end(nodes, error, text); /* First: what stands then is not this node's will. */
	nodes_stop_watch(nodes);
}

struct nodes *nodes_leave(struct nodes *nodes)
{
	if (!nodes)
		return NULL;
	nodes_stop_watch(nodes);
	nodes->mesh = net_mesh_free(nodes->mesh);
	nodes->watch = store_client_close(nodes->watch);
	nodes->client = store_client_close(nodes->client);
	free(nodes);
	return NULL;
}
