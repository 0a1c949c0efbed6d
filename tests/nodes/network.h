/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Networks of several nodes on this machine: a namespace for each, joined by a bridge in one of
 * their own. They have no names: they are gone when the last descriptor and process is.
 *
 *   node 0 [eth0 10.99.0.1, fd99::1] ── port0 ┐
 *   node 1 [eth0 10.99.0.2, fd99::2] ── port1 ┼ bridge
 *   …                                         ┘
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define NETWORK_NODES_MAX 4u

struct network {
	int home;                     /* of this process */
	int hub;                      /* the bridge's */
	int nodes[NETWORK_NODES_MAX]; /* the nodes' */
	uint32_t node_count;
};

/* NULL, or why there can be no such networks here. */
const char *network_missing(void);
/* Descriptors to the caller, network_deinit(). Fails the test where a command fails. */
void network_init(struct network *network, uint32_t node_count);
void network_deinit(struct network *network);

/* Takes @node's cable out, or puts it in. */
void network_plug(const struct network *network, uint32_t node, bool is_in);
/* @node sends and receives no faster; 0: as fast as it can. */
void network_limit(const struct network *network, uint32_t node, uint32_t mbit_per_s);
/* The calling thread is in @namespace from now on. */
void network_enter(int namespace);
