/* SPDX-License-Identifier: Apache-2.0 */
/* One collective as a state machine. Floor 2, private to the engine. */
#pragma once

#include "libclient/coll/node/node.h"

/* @call is the group's from here on; nothing is posted yet. */
void zi_node_begin(struct zi_node_group *group, const struct zi_node_call *call);
/* Until it may be posted: it can be given up so long, for another one. Return: 0, an error,
 * ZI_NODE_E_WAITS. */
int zi_node_ready(struct zi_node_group *group, struct zi_meet_wants *wants, struct zi_text *text);
/* Return: 0, an error, ZI_NODE_E_WAITS. */
int zi_node_poll(struct zi_node_group *group, struct zi_meet_wants *wants, struct zi_text *text);
