/* SPDX-License-Identifier: Apache-2.0 */
/* Small calls of a group that spans nodes: everybody's source is at hand, and each member makes its
 * own result; see common/wire/frame.h. Floor 2, private to this folder. */
#pragma once

#include <stdbool.h>

#include "libclient/coll/node/node.h"

/* Whether the newest call, checked, is one. @ret_source_bytes: of a member's source. */
bool zi_node_is_small(const struct zi_node_group *group, uint32_t *ret_source_bytes);
/* All nodes' frames are there: this member's target. */
void zi_node_take_small(const struct zi_node_group *group);
