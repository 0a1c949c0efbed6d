/* SPDX-License-Identifier: Apache-2.0 */
/* Who is in a group, on this node and on others. Floor 2, private to the engine and its callers. */
#pragma once

#include "libclient/coll/node/far.h"

/* Of the whole group, and which one this is. */
static inline uint32_t zi_node_members(const struct zi_node_group *group)
{
	return group->far ? group->far->shape.member_count : group->meet.member_count;
}

static inline uint32_t zi_node_self(const struct zi_node_group *group)
{
	return group->far ? group->far->self : group->meet.self;
}

/* Bitmaps of members. */
static inline uint64_t zi_node_everyone(const struct zi_node_group *group)
{
	return UINT64_MAX >> (64 - zi_node_members(group));
}

static inline bool zi_node_has(uint64_t members, uint32_t member)
{
	return members >> member & 1;
}
