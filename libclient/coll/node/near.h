/* SPDX-License-Identifier: Apache-2.0 */
/* all_gather and broadcast where members are on several NUMA nodes (numa.h). Floor 2, private to
 * the engine. */
#pragma once

#include "libclient/coll/node/node.h"

/* This member's part of a call by ZI_NODE_NEAR. */
void zi_near_move(const struct zi_node_group *group);
