/* SPDX-License-Identifier: Apache-2.0 */
/* Members in one thread (world.h), polled in the order that a case needs, and their small calls.
 * For Criterion. */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>

#include "libclient/coll/node/call.h"
#include "tests/unit/node/world.h"

#define RANKS 3u

static struct world world;
static struct rank ranks[WORLD_RANKS_MAX];

static inline void world_of(uint32_t count)
{
	world_init(&world, count, 1);
	for (uint32_t i = 0; i < count; i++)
		rank_init(&ranks[i], &world, i);
}

static inline void world_end(void)
{
	for (uint32_t i = 0; i < world.ranks; i++)
		rank_deinit(&ranks[i]);
	world_deinit(&world);
}

static inline struct zi_node_call small(uint32_t member, enum zi_coll_operation operation,
                                        uint32_t root)
{
	return (struct zi_node_call){ .operation = operation,
		                      .dtype = ZI_DTYPE_I32,
		                      .reduce_op = operation == ZI_COLL_REDUCE ||
		                                                   operation == ZI_COLL_ALL_REDUCE
		                                           ? ZI_REDUCE_SUM
		                                           : 0,
		                      .root = root,
		                      .element_count = 64,
		                      .source = ranks[member].outside[0],
		                      .target = ranks[member].outside[1],
		                      .deadline_ns = ZI_DEADLINE_NEVER };
}

/* A broadcast from @root whose elements are @value. */
static inline void begin_broadcast(uint32_t member, uint32_t root, int32_t value)
{
	struct zi_node_call call = small(member, ZI_COLL_BROADCAST, root);

	for (uint32_t i = 0; i < 64; i++)
		((int32_t *)ranks[member].outside[0])[i] = member == root ? value : -1;
	zi_node_begin(&ranks[member].group, &call);
}

static inline void begin_barrier(uint32_t member)
{
	zi_node_begin(&ranks[member].group,
	              &(struct zi_node_call){ .operation = ZI_COLL_BARRIER,
	                                      .deadline_ns = ZI_DEADLINE_NEVER });
}

static inline int poll(uint32_t member)
{
	struct zi_meet_wants wants = { .count = 0 };

	return zi_node_poll(&ranks[member].group, &wants, &ranks[member].text);
}

static inline bool has_got(uint32_t member, int32_t value)
{
	const int32_t *data = (const int32_t *)ranks[member].outside[1];

	return data[0] == value && data[63] == value;
}

static inline void begin_refused(uint32_t member, enum zi_coll_operation operation)
{
	struct zi_node_call call = small(member, operation, 0);

	call.refused = -EACCES;
	call.reason = "the target is not writable";
	zi_node_begin(&ranks[member].group, &call);
}

/* All have a barrier, which looks at all posts before. */
static inline void meet_all(void)
{
	int results[RANKS];

	for (uint32_t i = 0; i < world.ranks; i++)
		begin_barrier(i);
	for (uint32_t round = 0; round < 2; round++)
		for (uint32_t i = 0; i < world.ranks; i++)
			results[i] = poll(i);
	for (uint32_t i = 0; i < world.ranks; i++)
		cr_assert_eq(results[i], 0, "member %u: %d %s", i, results[i], ranks[i].text.chars);
}
