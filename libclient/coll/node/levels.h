/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce, reduce, reduce_scatter where members are on several NUMA nodes (numa.h): in pieces,
 * as levels.c says. Floor 2. */
#pragma once

#include "libclient/coll/node/node.h"

/* Bytes of an element of a partial: floats are joined, and stay, in f32. */
uint32_t zi_levels_width(enum zi_dtype dtype);
/* Of a block, in a piece. 0: slots are too small for this group. */
uint64_t zi_levels_piece_elements(const struct zi_node_group *group);
/* Steps of a call of so many pieces, counted as run->step_count is. */
uint32_t zi_levels_step_count(const struct zi_node_group *group);
void zi_levels_step(const struct zi_node_group *group);
