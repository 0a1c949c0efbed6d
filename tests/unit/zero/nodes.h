/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several nodes in one process: n zeros, each with catalog, store and loop of its own, whose
 * workers are doubles. What these would do over the network happens in nodes_turn(), one thing at
 * a time, in an order that is drawn; what one node sends to another keeps its own order. So a test
 * takes many ways through what may happen between nodes, from a seed, without a process or a
 * socket.
 *
 * A node is lost (nodes_lose()), a worker ends (nodes_crash()), a link is held (nodes_hold()).
 */
#pragma once

#include "tests/unit/zero/nodes_net.h"

/* So many turns without news, and the nodes wait for a disk or a deadline: they rest. */
#define NODES_STILL_TURNS 256u

/* One turn of each node's loop that is not lost, and some of what is on its way. */
static inline void nodes_turn(void)
{
	bool is_still = net.still_count++ >= NODES_STILL_TURNS;

	for (uint32_t i = net_draw(8); i > 0; i--)
		net_turn();
	for (uint32_t i = 0; i < net.count; i++) {
		if (!net.nodes[i].zero || net.lost >> i & 1)
			continue;
		if (is_still)
			node_rest(&net.nodes[i]);
		else
			node_turn(&net.nodes[i]);
	}
}

/* ---- nodes ---- */

static inline void nodes_init(uint32_t count, uint64_t seed)
{
	memset(&net, 0, sizeof(net));
	net.count = count;
	net.seed = seed;
	for (uint32_t i = 0; i < count; i++)
		node_init(&net.nodes[i]);
}

static inline void nodes_start(void)
{
	for (uint32_t i = 0; i < net.count; i++)
		node_start(&net.nodes[i]);
}

static inline bool nodes_are_quiet(void)
{
	for (uint32_t i = 0; i < net.count; i++)
		if (net.nodes[i].zero && !(net.lost >> i & 1) && !node_is_quiet(&net.nodes[i]))
			return false;
	return true;
}

/* Until nothing is in flight, and every worker that nobody needs has gone. */
static inline void nodes_settle(void)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);
	uint32_t quiet = 0;

	while (quiet < 16 * NODES_MAX) {
		nodes_turn();
		quiet = nodes_are_quiet() ? quiet + 1 : 0;
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "the nodes never come to rest");
	}
}

static inline void nodes_deinit(void)
{
	for (uint32_t i = 0; i < net.count; i++)
		if (net.nodes[i].zero)
			node_settle(&net.nodes[i]);
	for (uint32_t i = 0; i < net.count; i++)
		node_deinit(&net.nodes[i]);
	cr_assert_null(net.workers, "a worker is left");
}

/* A node's; NULL: it has none. */
static inline struct net_worker *nodes_worker(uint32_t place)
{
	struct net_worker *worker = net.workers;

	while (worker && worker->place != place)
		worker = worker->next;
	return worker;
}

/* What node @from would say to node @to. */
static inline void nodes_say(uint32_t from, uint32_t to, struct talk_entry entry)
{
	entry.node = (uint16_t)from;
	entry.slab = NET_SLAB_TALK;
	entry.tag = entry.tag ? entry.tag : 1;
	net_put(nodes_worker(to), from,
	        &(struct net_event){ .what = NET_EVENT_ENTRY, .entry = entry });
}

/* Its worker's process ends, by itself. */
static inline void nodes_crash(uint32_t place)
{
	static const struct zi_text text = { "zinf-net (pid 77) was killed by signal 9" };
	struct net_worker *worker = nodes_worker(place);

	cr_assert_not_null(worker);
	net_end(worker, -EPIPE, &text);
}

/* Nothing comes from node @from to node @to, until it is let go. */
static inline void nodes_hold(uint32_t from, uint32_t to, bool is_held)
{
	if (is_held)
		net.held[to] |= 1u << from;
	else
		net.held[to] &= ~(1u << from);
}

/* ---- ranks ---- */

struct nodes_ranks {
	struct actor actors[8];
	uint32_t world;
	uint8_t places[8]; /* the node of each */
};

static inline int nodes_wait(struct actor *actor, uint32_t slot)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);
	struct call *call = &actor->calls[slot];

	net.still_count = 0;
	while (!call->is_done) {
		nodes_turn();
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "the call of rank %u never ends",
		             actor->number);
	}
	actor->text = call->op.text;
	return call->op.result;
}

/* All ranks call it, in a drawn order; the first error. */
static inline int nodes_all(struct nodes_ranks *ranks, call_fn function,
                            const struct zero_op *filled)
{
	uint32_t first = net_draw(ranks->world);
	int error = 0;

	for (uint32_t i = 0; i < ranks->world; i++) {
		actor_start(&ranks->actors[(first + i) % ranks->world], 0, function, filled);
		if (net_draw(2))
			nodes_turn();
	}
	for (uint32_t i = 0; i < ranks->world; i++) {
		int r = nodes_wait(&ranks->actors[i], 0);

		error = error ? error : r;
	}
	return error;
}

static inline uint32_t nodes_local_size(const struct nodes_ranks *ranks, uint32_t place)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < ranks->world; i++)
		count += ranks->places[i] == place;
	return count;
}

/* @places: "0011": the node of each rank. */
static inline void nodes_attach(struct nodes_ranks *ranks, const char *places,
                                const struct attach_options *options)
{
	ranks->world = (uint32_t)strlen(places);
	for (uint32_t i = 0; i < ranks->world; i++)
		ranks->places[i] = (uint8_t)(places[i] - '0');
	for (uint32_t i = 0; i < ranks->world; i++) {
		struct attach_options mine = *options;
		int r;

		mine.rank = i;
		mine.world = ranks->world;
		mine.local = nodes_local_size(ranks, ranks->places[i]);
		r = actor_attach(&net.nodes[ranks->places[i]], &ranks->actors[i], &mine);
		cr_assert_eq(r, 0, "%s", ranks->actors[i].text.chars);
	}
}

static const struct zero_op nodes_place = {
	.rendezvous_host = "first", .rendezvous_port = 29501, .interface = "", .token = ""
};

/* Of ranks whose layout is there. */
static inline int nodes_materialize(struct nodes_ranks *ranks)
{
	int r = nodes_all(ranks, zero_materialize, &nodes_place);

	for (uint32_t i = 0; i < ranks->world && !r; i++)
		zero_materialized(ranks->actors[i].rank, &ranks->actors[i].memory);
	return r;
}

static inline void nodes_layout(struct nodes_ranks *ranks)
{
	for (uint32_t i = 0; i < ranks->world; i++)
		model_layout(&ranks->actors[i]);
}

static inline void nodes_leave(struct nodes_ranks *ranks, bool is_clean)
{
	uint32_t first = net_draw(ranks->world);

	for (uint32_t i = 0; i < ranks->world; i++) {
		struct actor *actor = &ranks->actors[(first + i) % ranks->world];

		if (actor->rank)
			actor_leave(actor, is_clean);
		if (net_draw(2))
			nodes_turn();
	}
}
