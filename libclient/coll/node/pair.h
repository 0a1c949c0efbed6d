/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives. Floor 2, private to the engine. */
#pragma once

#include "libclient/coll/node/node.h"

/* One message in its turn; of one that is refused the peer is told. @deadline_ns: as ranks of this
 * node wait. Return: 0, an error, ZI_NODE_E_WAITS. */
int zi_node_poll_message(struct zi_node_group *group, struct zi_node_p2p *p2p, uint64_t deadline_ns,
                         struct zi_meet_wants *wants, struct zi_text *text);
