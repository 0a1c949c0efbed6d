/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of messages between members share. */
#pragma once

#include "tests/unit/node/world.h"

#define MESSAGE(send, type, member, count, memory)                                              \
	{                                                                                       \
		.is_send = (send), .dtype = (type), .peer = (member), .element_count = (count), \
		.buffer = (memory)                                                              \
	}

static inline void pair_world(struct world *world, struct rank *ranks, uint32_t count)
{
	world_init(world, count, 99 + count);
	for (uint32_t i = 0; i < count; i++)
		rank_init(&ranks[i], world, i);
}

static inline void pair_world_end(struct world *world, struct rank *ranks)
{
	for (uint32_t i = 0; i < world->ranks; i++)
		rank_deinit(&ranks[i]);
	world_deinit(world);
}
