/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gloo in C: a mesh of TCP connections between the nodes of a job, and lanes over it, by which
 * memory goes to and comes from one peer. Floor 3, of zinf-net alone. Every exception of Gloo ends
 * here, as an errno and a text that names the peer.
 *
 * Why lanes, not Gloo's own collectives: those are over with one call, sum in ring order, and say
 * neither which peer they wait for nor may they overlap. A lane's transfers do, so that a piece of
 * the sum is finished while others are on their way, and whoever waits knows for whom.
 *
 * Life: net_mesh_new(), net_mesh_adopt() of a connection to each peer (links.h), lanes. After any
 * error but -EINVAL the mesh is broken: free it and make a new one.
 * Context: one thread makes, connects and frees it; lanes are their thread's, and net_mesh_abort()
 * is any thread's. While one thread waits for what a lane receives another may use that lane.
 * What is sent to a peer over any lanes, one send after the other, comes in that order, if its
 * receives had begun. Gloo's thread may begin it later: it lies still until net_lane_wait_sent().
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

struct net_mesh;
struct net_lane;

struct net_mesh_options {
	const char *address; /* numeric, of this node: of the interface that Gloo is to take */
	uint32_t node, node_count;
};

/* @ret_mesh: net_mesh_free(). Return: 0; -EADDRNOTAVAIL, -ENOMEM, -EIO, with @text. */
int net_mesh_new(const struct net_mesh_options *options, struct zi_text *text,
                 struct net_mesh **ret_mesh);
/* Closes all connections, which peers notice at once; lanes go before. NULL-safe. Return: NULL. */
struct net_mesh *net_mesh_free(struct net_mesh *mesh);

/* @fd: a TCP connection to @peer, the mesh's from now on, also after a failure. @name: of the peer,
 * for texts from now on. Return: 0; -EPIPE the connection is lost, -ENOMEM; with @text. */
int net_mesh_adopt(struct net_mesh *mesh, uint32_t peer, const char *name, int fd,
                   struct zi_text *text);

/* Any thread: whatever waits, or will, on a lane of this mesh returns -ECANCELED. */
void net_mesh_abort(struct net_mesh *mesh);

/* Until nothing waits for Gloo's thread to begin it. Return: 0; -ETIMEDOUT at @deadline_ns. */
int net_mesh_flush(struct net_mesh *mesh, uint64_t deadline_ns);

/* @memory: (bytes,), the caller's, and there until the lane is freed. Return: 0, -ENOMEM. */
int net_lane_new(struct net_mesh *mesh, uint32_t peer, void *memory, uint64_t bytes,
                 struct net_lane **ret_lane);
/* NULL-safe. Nothing under way of this lane touches its memory after this. Return: NULL. */
struct net_lane *net_lane_free(struct net_lane *lane);

/* Begin a transfer; the peer's transfers of the same @slot match in their order. Never wait.
 * Return: 0; -EPIPE with @text. */
int net_lane_send(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                  struct zi_text *text);
int net_lane_receive(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                     struct zi_text *text);
/* Until @count more have ended: what has by @deadline_ns counts, and what had when it broke.
 * Return: 0; -ETIMEDOUT; -EPIPE; -ECANCELED net_mesh_abort(). */
int net_lane_wait_sent(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                       struct zi_text *text);
int net_lane_wait_received(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                           struct zi_text *text);

#ifdef __cplusplus
}
#endif
