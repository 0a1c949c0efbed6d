/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks at the door: a node, and calls of zero_attach() with an incarnation, a rank and a world. */
#pragma once

#include "tests/unit/zero/plain.h"

static struct node node;
static struct actor actors[6];

static void begin(void)
{
	node_init(&node);
	node_start(&node);
}

static struct attach_options as(const char *incarnation, uint32_t rank, uint32_t world)
{
	return (struct attach_options){
		.incarnation = incarnation,
		.rank = rank,
		.world = world,
		.config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
	};
}

static int attach(uint32_t index, struct attach_options options)
{
	return actor_attach(&node, &actors[index], &options);
}

static void leave_all(void)
{
	actors_leave(actors, ZI_COUNT_OF(actors), true);
}
