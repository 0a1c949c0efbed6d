/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unit's parameters as one rank has written them, on the nodes where that rank is not: pulled
 * from its node, piece by piece, into the plane. Floor 5, shard thread.
 */
#pragma once

#include <stdint.h>

#include "daemon/zero/job/gather.h"

struct zero_job;

/* All nodes have come to param_write_end(): it is their n-th. Return: n. */
uint32_t written_count(struct zero_job *job);
/* Pulls unit @unit from the node of rank @root; then @go_on, from the loop, also when the group has
 * broken: then it is not whole. */
void written_pull(struct zero_job *job, uint32_t unit, uint32_t root, gather_go_fn go_on);
/* What was written has its place here, on the root's node: others may have it. */
void written_serve(struct zero_job *job);
