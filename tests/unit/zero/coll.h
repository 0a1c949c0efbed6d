/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture of the tests of collectives: ranks that open them and make groups. */
#pragma once

#include "daemon/coll/coll.h"
#include "tests/unit/zero/model.h"

static struct node node;
static struct actor actors[4];

#define ARENA (3 * MIB)

static inline void attach(uint32_t world, const char *incarnation)
{
	for (uint32_t i = 0; i < world; i++)
		cr_assert_eq(
			actor_attach(&node, &actors[i],
		                     &(struct attach_options){
					     .incarnation = incarnation,
					     .rank = i,
					     .world = world,
					     .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
				     }),
			0, "%s", actors[i].text.chars);
}

static inline void begin(uint32_t world)
{
	node_init(&node);
	node_start(&node);
	attach(world, "run.0");
}

static inline void end(void)
{
	actors_leave(actors, ZI_COUNT_OF(actors), true);
	node_deinit(&node);
}

static inline int open_all(uint32_t world)
{
	return all_call(actors, world, zero_coll_open, &(struct zero_op){ .bytes = ARENA });
}

static inline int group_all(uint32_t world, uint64_t mask)
{
	return all_call(actors, world, zero_coll_group, &(struct zero_op){ .members = { mask } });
}

static inline struct zero_coll_opened opened_of(struct actor *actor)
{
	struct zero_coll_opened opened;

	cr_assert(zero_coll_opened(actor->rank, &opened));
	return opened;
}

static inline uint32_t verdict(struct actor *actor, uint32_t group)
{
	const struct zi_verdicts *verdicts = opened_of(actor).verdicts->region.base;

	return zi_line_load(&verdicts->groups[group]);
}

static inline void says(struct actor *actor, const char *word)
{
	cr_assert_not_null(strstr(actor->text.chars, word), "'%s' not in '%s'", word,
	                   actor->text.chars);
}

static inline int fail(struct actor *actor, uint32_t group, uint32_t sequence, int error)
{
	return zero_coll_fail(actor->rank,
	                      &(struct zi_coll_fail){ .group = group,
	                                              .sequence = sequence,
	                                              .error = error,
	                                              .culprit = UINT32_MAX,
	                                              .timeout_ms = 100 },
	                      &actor->text);
}
