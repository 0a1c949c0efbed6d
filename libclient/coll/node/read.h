/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call that only moves, whose data are read where they lie in their members' processes instead of
 * being staged: when that is worth it, its one step, and what is known of others then. How memory
 * of another process is read: cma.h. Floor 2, private to the engine.
 */
#pragma once

#include "libclient/coll/node/node.h"

/* Whether those who take of this member's source, which lies outside the arenas, had better read it
 * where it is. */
bool zi_node_is_read(const struct zi_node_group *group);
/* The step: reads what this member takes, or says that it cannot. */
void zi_node_read(struct zi_node_group *group);
/* Once all have made it: whether somebody could not, so that the call begins anew, in pieces. No
 * source has changed since. */
bool zi_node_is_any_unread(const struct zi_node_group *group);
/* Of a call in pieces: whose private memory this member would read another time. */
void zi_node_get_to_know(struct zi_node_group *group);
