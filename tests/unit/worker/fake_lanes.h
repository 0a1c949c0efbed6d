/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doubles of daemon/worker/net/gloo.h and nodes.h, of two nodes in one process: lanes keep what is
 * sent until the test lets it go on, and notice what is written over meanwhile.
 */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "daemon/worker/net/gloo.h"
#include "daemon/worker/net/nodes.h"

#define TRANSFERS  1024u
#define FAKE_LANES 3u

struct transfer {
	uint64_t slot, offset, bytes;
	char *copy; /* of a send: as it was then */
};

struct net_lane {
	struct net_mesh *mesh;
	uint32_t index; /* of its mesh */
	char *memory;
	struct transfer receives[TRANSFERS]; /* that wait, in no order */
	uint32_t receive_count, sent, received;
	uint32_t come_count; /* as `received`, whoever counted them */
};

struct net_mesh {
	uint32_t node;
	bool is_aborted, is_held; /* what this node sends stays */
	bool is_lost;             /* waits say so once there is nothing left to count */
	bool is_cut;              /* nothing can be begun any more; so where it is lost */
	bool is_hurried;          /* waits that have a deadline are over at once */
	struct net_lane *lanes[FAKE_LANES];
	uint32_t lane_count, lane_max; /* 0: FAKE_LANES; beyond it there is no memory */
	uint32_t late_count; /* waits with a deadline that did not find what they waited for */
	/* On their way, oldest first: lanes share one connection. */
	struct transfer wire[TRANSFERS];
	struct net_lane *wire_lanes[TRANSFERS];
	uint32_t wire_count;
};

struct nodes {
	struct net_mesh mesh;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct nodes both[2];
static uint32_t torn_count;

/* Under the lock. Return: what @mesh began to receive as @slot, first; NULL: nothing yet. */
static struct transfer *find_receive(struct net_mesh *mesh, uint64_t slot,
                                     struct net_lane **ret_lane)
{
	for (uint32_t i = 0; i < mesh->lane_count; i++) {
		struct net_lane *lane = *ret_lane = mesh->lanes[i];

		for (uint32_t k = 0; lane && k < lane->receive_count; k++)
			if (lane->receives[k].slot == slot)
				return &lane->receives[k];
	}
	return NULL;
}

/* Under the lock. Return: whether the oldest of @mesh's went. */
static bool deliver_oldest(struct net_mesh *mesh)
{
	struct net_lane *lane = mesh->wire_lanes[0], *peer;
	struct transfer *send = &mesh->wire[0], *receive;

	if (!mesh->wire_count)
		return false;
	receive = find_receive(&both[1 - mesh->node].mesh, send->slot, &peer);
	if (!receive)
		return false;
	torn_count += memcmp(lane->memory + send->offset, send->copy, send->bytes) != 0;
	memcpy(peer->memory + receive->offset, send->copy, send->bytes);
	free(send->copy);
	peer->receive_count--;
	memmove(receive, receive + 1,
	        (size_t)(&peer->receives[peer->receive_count] - receive) * sizeof(*receive));
	memmove(send, send + 1, --mesh->wire_count * sizeof(*send));
	memmove(mesh->wire_lanes, mesh->wire_lanes + 1,
	        mesh->wire_count * sizeof(mesh->wire_lanes[0]));
	lane->sent++;
	peer->received++;
	peer->come_count++;
	return true;
}

static bool deliver_one(struct net_mesh *mesh)
{
	return !mesh->is_held && deliver_oldest(mesh);
}

static void deliver(void)
{
	while (deliver_one(&both[0].mesh) || deliver_one(&both[1].mesh))
		;
	(void)pthread_cond_broadcast(&changed);
}

static inline void hold(uint32_t node, bool is_held)
{
	(void)pthread_mutex_lock(&lock);
	both[node].mesh.is_held = is_held;
	deliver();
	(void)pthread_mutex_unlock(&lock);
}

/* Of a node that is held. Return: whether there was something that could. */
static inline bool let_one_go(uint32_t node)
{
	bool has_gone;

	(void)pthread_mutex_lock(&lock);
	has_gone = deliver_oldest(&both[node].mesh);
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
	return has_gone;
}

int net_lane_new(struct net_mesh *mesh, uint32_t peer, void *memory, uint64_t bytes,
                 struct net_lane **ret_lane)
{
	struct net_lane *lane;

	(void)peer;
	(void)bytes;
	if (mesh->lane_max && mesh->lane_count == mesh->lane_max)
		return -ENOMEM;
	lane = calloc(1, sizeof(*lane));
	cr_assert(lane && mesh->lane_count < FAKE_LANES);
	lane->mesh = mesh;
	lane->memory = memory;
	(void)pthread_mutex_lock(&lock);
	lane->index = mesh->lane_count++;
	mesh->lanes[lane->index] = lane;
	(void)pthread_mutex_unlock(&lock);
	*ret_lane = lane;
	return 0;
}

struct net_lane *net_lane_free(struct net_lane *lane)
{
	struct net_mesh *mesh = lane ? lane->mesh : NULL;

	if (!lane)
		return NULL;
	(void)pthread_mutex_lock(&lock);
	mesh->lanes[lane->index] = NULL;
	for (; mesh->wire_count; mesh->wire_count--)
		free(mesh->wire[mesh->wire_count - 1].copy);
	(void)pthread_mutex_unlock(&lock);
	free(lane);
	return NULL;
}

int net_lane_send(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                  struct zi_text *text)
{
	struct net_mesh *mesh = lane->mesh;
	char *copy;

	if (mesh->is_cut || mesh->is_lost)
		return zi_text_error(text, -EPIPE, "the other node: cut");
	copy = malloc(bytes);
	cr_assert(copy);
	memcpy(copy, lane->memory + offset_bytes, bytes);
	(void)pthread_mutex_lock(&lock);
	cr_assert_lt(mesh->wire_count, TRANSFERS);
	mesh->wire_lanes[mesh->wire_count] = lane;
	mesh->wire[mesh->wire_count++] = (struct transfer){ slot, offset_bytes, bytes, copy };
	deliver();
	(void)pthread_mutex_unlock(&lock);
	return 0;
}

int net_lane_receive(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                     struct zi_text *text)
{
	if (lane->mesh->is_cut || lane->mesh->is_lost)
		return zi_text_error(text, -EPIPE, "the other node: cut");
	(void)pthread_mutex_lock(&lock);
	cr_assert_lt(lane->receive_count, TRANSFERS);
	lane->receives[lane->receive_count++] =
		(struct transfer){ slot, offset_bytes, bytes, NULL };
	deliver();
	(void)pthread_mutex_unlock(&lock);
	return 0;
}

static int await_count(struct net_lane *lane, uint32_t *count, uint32_t wanted,
                       uint64_t deadline_ns, struct zi_text *text)
{
	struct net_mesh *mesh = lane->mesh;
	bool is_hurried = mesh->is_hurried && deadline_ns != ZI_DEADLINE_NEVER;
	int r = 0;

	(void)pthread_mutex_lock(&lock);
	mesh->late_count += *count < wanted && deadline_ns != ZI_DEADLINE_NEVER;
	while (*count < wanted && !mesh->is_aborted && !mesh->is_lost && !is_hurried)
		(void)pthread_cond_wait(&changed, &lock);
	if (mesh->is_aborted)
		r = -ECANCELED;
	else if (*count < wanted)
		r = zi_text_error(text, mesh->is_lost ? -EPIPE : -ETIMEDOUT, "the other node: %s",
		                  mesh->is_lost ? "lost" : "timed out");
	else
		*count -= wanted;
	(void)pthread_mutex_unlock(&lock);
	return r;
}

/* The connection of @node is. */
static inline void lose(uint32_t node)
{
	(void)pthread_mutex_lock(&lock);
	both[node].mesh.is_lost = true;
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
}

int net_lane_wait_sent(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                       struct zi_text *text)
{
	return await_count(lane, &lane->sent, count, deadline_ns, text);
}

int net_lane_wait_received(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                           struct zi_text *text)
{
	return await_count(lane, &lane->received, count, deadline_ns, text);
}

int net_mesh_flush(struct net_mesh *mesh, uint64_t deadline_ns)
{
	(void)mesh;
	(void)deadline_ns;
	return 0;
}

void net_mesh_abort(struct net_mesh *mesh)
{
	(void)pthread_mutex_lock(&lock);
	mesh->is_aborted = true;
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
}

struct net_mesh *nodes_mesh(struct nodes *nodes)
{
	return &nodes->mesh;
}

const char *nodes_name(const struct nodes *nodes, uint32_t node)
{
	(void)nodes;
	return node ? "node 1" : "node 0";
}
