/* SPDX-License-Identifier: Apache-2.0 */
/* What the network of nodes.h is made of: doubles of workers, what is on its way between them, and
 * what is drawn. */
#pragma once

#include "daemon/worker/supervise.h"
#include "tests/harness/double.h"
#include "tests/harness/draw.h"
#include "tests/unit/zero/model.h"

#define NODES_MAX      4u
#define NET_EVENTS_MAX 512u /* on their way to one worker, from one */

/* Something that a worker's daemon will hear. */
struct net_event {
	enum { NET_EVENT_DONE, NET_EVENT_ENTRY } what;
	int error;
	struct zi_text text;
	struct talk_entry entry;
};

/* A double. */
struct net_worker {
	struct net_worker_options options;
	struct net_worker *next; /* of all */
	uint32_t place;          /* of whose node: the loop's */
	enum net_worker_state state;
	struct net_request *request;
	uint32_t type; /* of the request; NET_TALK: talks */
	struct net_meet meet;
	struct net_join join;
	bool has_joined, has_ended; /* ended: its mesh */
	bool is_refused;            /* an entry was; it can be written to again soon */
	/* by the other node: [n] of the mesh's node n; of its daemon's answers: [own] */
	struct {
		struct net_event *events;
		uint32_t put, taken;
	} from[NODES_MAX];
	char *slab; /* NET_SLAB_TALK */
	uint64_t slab_bytes;
	struct talk_entry asked[64]; /* its PULLs; kind 0: a free place */
};

DOUBLE struct {
	struct node nodes[NODES_MAX];
	uint32_t count;
	struct net_worker *workers;
	uint64_t seed;
	uint32_t lost;              /* nodes: bits */
	uint32_t held[NODES_MAX];   /* of each: from which nodes nothing comes: bits */
	uint32_t still_count;       /* turns of all nodes since something came to a worker */
	uint32_t worker_count, run; /* ever started; stores ever made */
	uint32_t room;              /* entries that a worker takes for one node; 0: all */
	uint64_t entry_count;       /* that came */
	uint64_t moved_bytes;       /* of what was pulled */
	int start_error;            /* of the next worker */
	/* A node that lies: it looks at all that comes to a worker from node @from, and may change
	 * it. Bytes of a CAME lie at worker->slab. */
	void (*spoil)(struct net_worker *worker, uint32_t from, struct talk_entry *entry);
	/* Whether that waits, with all that follows it from there: asked until it says no. */
	bool (*holds)(struct net_worker *worker, uint32_t from, const struct talk_entry *entry);
	/* What came from a node that lies (lies.h), as that one says it, or NULL; how often it says
	 * it: 0, 1 or 2. */
	uint32_t (*lie)(struct net_worker *worker, struct talk_entry *entry);
} net;

static inline uint32_t net_draw(uint32_t count)
{
	net.seed = net.seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(net.seed >> 33) % count;
}

static inline void net_put(struct net_worker *worker, uint32_t from, const struct net_event *event)
{
	cr_assert_lt(worker->from[from].put - worker->from[from].taken, NET_EVENTS_MAX);
	worker->from[from].events[worker->from[from].put++ % NET_EVENTS_MAX] = *event;
}
