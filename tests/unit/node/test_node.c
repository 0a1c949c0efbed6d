/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: collectives inside a node give what a plain model of them gives, on every path, for any
 * number of ranks, type, operation and size, wherever the buffers lie, also when calls follow each
 * other without a pause.
 * Method: threads as ranks (world.h); calls that every rank draws alike, with places that each rank
 * may draw by itself; each rank compares its own target with the model.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "tests/unit/node/world.h"

/* Operations × places × types, several times each. */
#define CALLS (ZI_COLL_ALL_TO_ALLV * WORLD_WHERE_COUNT * (_ZI_DTYPE_COUNT - 1) * 3u)

/* Whoever asks who is behind finds that this member has left the call. */
static bool has_told(const struct rank *rank)
{
	const struct zi_node_group *group = &rank->group;

	return group->run.path == ZI_NODE_INLINE ||
	       group->meet.members[rank->number].finished.value == group->sequence;
}

static void *rank_main(void *arg)
{
	struct rank *rank = arg;

	for (uint32_t i = 0; i < CALLS && rank->failed_call < 0; i++) {
		struct world_call drawn = world_draw(rank->world, i);
		uint64_t source_counts[WORLD_RANKS_MAX], target_counts[WORLD_RANKS_MAX];
		struct zi_node_call call = world_place(rank, &drawn, source_counts, target_counts);

		rank->result = zi_node_call(&rank->group, &call, &rank->text);
		if (rank->result || !world_check(rank, &drawn, &call) || !has_told(rank)) {
			rank->failed_call = (int)i;
			/* The others need not wait for ever. */
			zi_line_store(&rank->world->verdict, EPIPE);
		}
	}
	return NULL;
}

static struct zi_text describe(const struct rank *rank)
{
	struct world_call drawn = world_draw(rank->world, (uint32_t)rank->failed_call);
	struct zi_text text;

	zi_text_set(&text, "%s of %llu × %s, where %d, in place %d, root %u",
	            zi_coll_operation_name(drawn.operation),
	            (unsigned long long)drawn.element_count, zi_dtype_name(drawn.dtype),
	            (int)drawn.where, drawn.is_in_place, drawn.root);
	return text;
}

Test(node, calls_of_1_to_9_ranks_are_what_the_model_says)
{
	for (uint32_t count = 1; count <= WORLD_RANKS_MAX; count++) {
		struct rank ranks[WORLD_RANKS_MAX];
		struct world world;

		world_open(&world, ranks, count, 17 + count);
		world_run(ranks, rank_main);
		for (uint32_t i = 0; i < count; i++) {
			cr_assert(ranks[i].failed_call < 0 || ranks[i].result == -EPIPE,
			          "%u ranks: call %d of rank %u, %s: %d %s", count,
			          ranks[i].failed_call, i, describe(&ranks[i]).chars,
			          ranks[i].result, ranks[i].text.chars);
			cr_assert_eq(ranks[i].failed_call, -1);
		}
		world_close(&world, ranks);
	}
}
