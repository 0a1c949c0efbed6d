/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Networks of several nodes on this machine, for tests and benches: a namespace for each, joined by
 * a bridge in one of their own, or two by one cable. They have no names: they are gone when the
 * last descriptor and process is.
 *
 *   node 0 [eth0 10.99.0.1, fd99::1] ── port0 ┐          node 0 [eth0 as there] ┐
 *   node 1 [eth0 10.99.0.2, fd99::2] ── port1 ┼ bridge   node 1 [eth0 as there] ┘
 *   …                                         ┘
 *
 * Functions that return an int return 0, or -1 after saying what failed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define NETWORK_NODES_MAX 4u

struct network {
	int home;                     /* of this process */
	int hub;                      /* the bridge's; -1: there is none */
	int nodes[NETWORK_NODES_MAX]; /* the nodes' */
	uint32_t node_count;
};

/* NULL, or why there can be no such networks here. */
const char *network_missing(void);
/* Descriptors to the caller, network_deinit(), also of one that failed. */
int network_init(struct network *network, uint32_t node_count);
/* Two nodes without a bridge between them, which takes CPU time. */
int network_init_pair(struct network *network);
void network_deinit(struct network *network);

/* Takes @node's cable out of the bridge, or puts it in. */
int network_plug(const struct network *network, uint32_t node, bool is_in);
/* @node sends and receives no faster; 0: as fast as it can. */
int network_limit(const struct network *network, uint32_t node, uint32_t mbit_per_s);
/* The calling thread is in @namespace from now on. */
void network_enter(int namespace);
