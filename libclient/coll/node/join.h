/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce, reduce, reduce_scatter inside a node. Floor 2, private to the engine. */
#pragma once

#include "libclient/coll/node/node.h"

/* This member's part of a call that is not in pieces. */
void zi_node_join(const struct zi_node_group *group);
/* Of a piece: what others need of the own source; the work; what others have for the own target. */
void zi_node_join_stage(const struct zi_node_group *group, uint32_t piece);
void zi_node_join_work(const struct zi_node_group *group, uint32_t piece);
void zi_node_join_take(const struct zi_node_group *group, uint32_t piece);
