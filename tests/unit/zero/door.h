/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks at the door: a node, and calls of zero_attach() with an incarnation, a rank and a world. */
#pragma once

#include "tests/unit/zero/plain.h"

static struct node node;
static struct actor actors[6];

static inline void begin(void)
{
	node_init(&node);
	node_start(&node);
}

static inline struct attach_options as(const char *incarnation, uint32_t rank, uint32_t world)
{
	return (struct attach_options){
		.incarnation = incarnation,
		.rank = rank,
		.world = world,
		.config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
	};
}

static inline int attach(uint32_t index, struct attach_options options)
{
	return actor_attach(&node, &actors[index], &options);
}

static inline void leave_all(void)
{
	actors_leave(actors, ZI_COUNT_OF(actors), true);
}

static inline void materialize_refused(const struct zi_job_config *config, int error,
                                       const char *word)
{
	uint64_t cpu_bytes = node.cpu.used_bytes;

	cr_assert_eq(attach(0, (struct attach_options){ .world = 1, .config = *config }), 0);
	cr_assert_eq(model_materialize(actors, 1), error, "%s", actors[0].text.chars);
	cr_assert_not_null(strstr(actors[0].text.chars, word), "'%s'", actors[0].text.chars);
	cr_assert_eq(node.cpu.used_bytes, cpu_bytes + actors[0].rank->stream_charge.bytes,
	             "everything is undone, but for the layout, which the rank has again");
	cr_assert_eq(node.nvme.used_bytes, 0);
	cr_assert_not(actors[0].is_broken, "it may try again");
}
