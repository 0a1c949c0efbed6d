/* SPDX-License-Identifier: Apache-2.0 */
/* A member's receive. Floor 2, private to pair.c. */
#pragma once

#include "libclient/coll/node/node.h"

/* @p2p, a receive in its turn. Return: 0, an error, ZI_NODE_E_WAITS. */
int zi_pair_poll_take(struct zi_node_group *group, struct zi_node_p2p *p2p,
                      struct zi_meet_wants *wants, struct zi_text *text);
