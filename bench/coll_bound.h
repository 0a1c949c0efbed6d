/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory-bandwidth bound of a collective: how long one thread for each CPU needs to read and
 * write as many bytes, in as many streams, with nobody to wait for.
 *
 *   all_reduce       reads n × N, writes n × N     each line of n buffers, joined, to n places
 *   reduce_scatter   reads n × N, writes N
 *   all_gather       reads N, writes (n − 1) × N   each line of a block to n − 1 places
 *   broadcast        reads N, writes (n − 1) × N
 *   all_to_all       reads n × N, writes n × N     each line to one place
 *
 * n ranks; N as in struct coll_order; what is in place is not copied. The streams are plain loops,
 * with and without stores that pass by the cache, with and without prefetching, in place and from
 * other places: the best way is the bound.
 */
#pragma once

#include <stdbool.h>

#include "bench/coll_order.h"

struct coll_bound;

/* NULL after saying why. */
struct coll_bound *coll_bound_new(unsigned world);
/* Whether the streams are the fastest there can be: with AVX-512, or AVX2 where there is no wider
 * vector. Elsewhere they are a plain loop, which proves nothing. */
bool coll_bound_is_tight(void);
/* Tries all ways; the best is kept. */
void coll_bound_choose(struct coll_bound *bound, enum coll_operation operation, uint64_t bytes);
/* Of what was chosen. */
double coll_bound_seconds(struct coll_bound *bound);
const char *coll_bound_way(const struct coll_bound *bound);
struct coll_bound *coll_bound_free(struct coll_bound *bound);
