/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two nodes on this machine for suite `coll`: a network namespace and a zinfd in each, joined by
 * one cable (tests/harness/network.h). Nothing has a name outside, and everything ends with this
 * process, however that ends.
 */
#pragma once

#include "bench/coll_side.h"
#include "tests/harness/network.h"

struct coll_nodes;

/* @world ranks, half of them on each node, with buffers of up to @bytes_max. NULL after saying why,
 * which may be that this is no place for it (*ret_is_skipped). */
struct coll_nodes *coll_nodes_new(unsigned world, uint64_t bytes_max, bool *ret_is_skipped);
/* 0; -1: a daemon did not end well. */
int coll_nodes_free(struct coll_nodes *nodes);

const struct network *coll_nodes_network(const struct coll_nodes *nodes);
/* For struct coll_side_options: the calling process is @rank, on its node, from now on. */
void coll_nodes_enter(void *nodes, unsigned rank);
/* Of our side, once it is ready: the daemons' CPU time, and their workers', is its own. */
void coll_nodes_add_helpers(const struct coll_nodes *nodes, struct coll_side *side);
