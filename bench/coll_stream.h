/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the network gives: a plain TCP connection between two nodes, over which each sends what it
 * must in a collective at least, in both directions at once, without looking at it.
 *
 *   all_reduce       N each way            of n ranks, half of them on each node; N as in
 *   reduce_scatter   N / 2                 struct coll_order
 *   all_gather       N / 2
 *   broadcast        N one way
 *   all_to_all       n / 2 × N / 2 each way
 *
 * A thread for each node, on a CPU of its own. Less of a bound than it looks: others may move
 * larger pieces between their system calls and so do better.
 */
#pragma once

#include "bench/coll_order.h"
#include "tests/harness/network.h"

struct coll_stream;

/* NULL after saying why. */
struct coll_stream *coll_stream_new(const struct network *network, unsigned world);
void coll_stream_choose(struct coll_stream *stream, enum coll_operation operation, uint64_t bytes);
/* Of what was chosen; negative: the connection is gone. */
double coll_stream_seconds(struct coll_stream *stream);
struct coll_stream *coll_stream_free(struct coll_stream *stream);
