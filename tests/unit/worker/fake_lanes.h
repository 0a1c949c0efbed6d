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

#include "daemon/worker/net/gloo.h"
#include "daemon/worker/net/nodes.h"

#define TRANSFERS 256u

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
};

struct net_mesh {
	uint32_t node;
	bool is_aborted, is_held; /* what this node sends stays */
	struct net_lane *lanes[2];
	uint32_t lane_count;
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

/* Under the lock. Return: whether the oldest of @mesh's went. */
static bool deliver_one(struct net_mesh *mesh)
{
	struct net_lane *lane = mesh->wire_lanes[0];
	struct transfer *send = &mesh->wire[0];
	struct net_lane *peer;

	if (!mesh->wire_count || mesh->is_held)
		return false;
	peer = both[1 - mesh->node].mesh.lanes[lane->index];
	for (uint32_t i = 0; peer && i < peer->receive_count; i++) {
		struct transfer *receive = &peer->receives[i];

		if (receive->slot != send->slot)
			continue;
		torn_count += memcmp(lane->memory + send->offset, send->copy, send->bytes) != 0;
		memcpy(peer->memory + receive->offset, send->copy, send->bytes);
		free(send->copy);
		memmove(receive, receive + 1, (--peer->receive_count - i) * sizeof(*receive));
		memmove(send, send + 1, --mesh->wire_count * sizeof(*send));
		memmove(mesh->wire_lanes, mesh->wire_lanes + 1,
		        mesh->wire_count * sizeof(mesh->wire_lanes[0]));
		lane->sent++;
		peer->received++;
		return true;
	}
	return false;
}

static void deliver(void)
{
	while (deliver_one(&both[0].mesh) || deliver_one(&both[1].mesh))
		;
	(void)pthread_cond_broadcast(&changed);
}

static void hold(uint32_t node, bool is_held)
{
	(void)pthread_mutex_lock(&lock);
	both[node].mesh.is_held = is_held;
	deliver();
	(void)pthread_mutex_unlock(&lock);
}

int net_lane_new(struct net_mesh *mesh, uint32_t peer, void *memory, uint64_t bytes,
                 struct net_lane **ret_lane)
{
	struct net_lane *lane = calloc(1, sizeof(*lane));

	(void)peer;
	(void)bytes;
	cr_assert(lane && mesh->lane_count < 2);
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
	char *copy = malloc(bytes);

	(void)text;
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
	(void)text;
	(void)pthread_mutex_lock(&lock);
	cr_assert_lt(lane->receive_count, TRANSFERS);
	lane->receives[lane->receive_count++] =
		(struct transfer){ slot, offset_bytes, bytes, NULL };
	deliver();
	(void)pthread_mutex_unlock(&lock);
	return 0;
}

static int await_count(struct net_lane *lane, uint32_t *count, uint32_t wanted)
{
	(void)pthread_mutex_lock(&lock);
	while (*count < wanted && !lane->mesh->is_aborted)
		(void)pthread_cond_wait(&changed, &lock);
	*count -= *count < wanted ? 0 : wanted;
	(void)pthread_mutex_unlock(&lock);
	return lane->mesh->is_aborted ? -ECANCELED : 0;
}

int net_lane_wait_sent(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                       struct zi_text *text)
{
	(void)deadline_ns;
	(void)text;
	return await_count(lane, &lane->sent, count);
}

int net_lane_wait_received(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                           struct zi_text *text)
{
	(void)deadline_ns;
	(void)text;
	return await_count(lane, &lane->received, count);
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
