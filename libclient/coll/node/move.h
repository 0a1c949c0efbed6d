/* SPDX-License-Identifier: Apache-2.0 */
/* What only moves elements, inside a node. Floor 2, private to the engine. */
#pragma once

#include "libclient/coll/node/node.h"

/* This member's part of a call that is not in pieces. */
void zi_node_move(const struct zi_node_group *group);
/* The same where sources are in their members' processes. Return: whether all of them could be
 * read; if not, the own target is undefined. */
bool zi_node_move_read(struct zi_node_group *group);
/* Of a piece: what others need of the own source; what the own target needs of theirs. */
void zi_node_move_stage(const struct zi_node_group *group, uint32_t piece);
void zi_node_move_work(const struct zi_node_group *group, uint32_t piece);
