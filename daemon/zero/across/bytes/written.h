/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unit's parameters as one rank has written them, on the nodes where that rank is not: pulled
 * from its node, piece by piece. Floor 5, shard thread.
 *
 * Into the plane, from that node's own plane; all end by themselves. Where nodes have pools (there
 * is no plane) each pulls its own subgroups alone, from what the rank has written: so the rank's
 * call ends when all nodes have said that they have theirs.
 */
#pragma once

#include <stdint.h>

#include "daemon/zero/job/gather.h"

struct tier_segment;
struct zero_job;

/* All nodes have come to param_write_end(): it is their n-th. Return: n. */
uint32_t written_count(struct zero_job *job);
/* Pulls unit @unit from the node of rank @root; then @go_on, also when the group has broken: then
 * it is not whole. @base: with a pool, where its parameters are to be; NULL: where they stay. From
 * the loop, or at once where there is nothing to pull. */
void written_pull(struct zero_job *job, uint32_t unit, uint32_t root, void *base,
                  gather_go_fn go_on);
/* What was written has its place here, on the root's node: others may have it. */
void written_serve(struct zero_job *job);
/* With a pool: others may have it from there. @source: what was written; kept until all have. */
void written_serve_from(struct zero_job *job, struct tier_segment *source);
/* With a pool: this node has its part, or @error and @text; when all have, the ranks hear of it. */
void written_vote(struct zero_job *job, int error, const struct zi_text *text);
