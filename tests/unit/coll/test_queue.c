/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: asynchronous calls give what synchronous ones give, in the order in which they were made,
 * also mixed with synchronous ones and with messages; they end by their deadline, by a verdict, by
 * cancel and by the end of their queue, each exactly once.
 * Method: threads as ranks (world.h), each with a queue of its own.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "libclient/coll/queue.h"
#include "tests/unit/coll/world.h"

#define ROUNDS    60u
#define IN_FLIGHT 5u

struct flight {
	struct zi_node_op op;
	struct world_call drawn;
	uint64_t source_counts[WORLD_RANKS_MAX], target_counts[WORLD_RANKS_MAX];
	int32_t words[64];
};

/* All_reduces of words that end in order, then a call of any kind, waited for at once. */
static void *rank_main(void *arg)
{
	struct rank *rank = arg;
	uint32_t ranks = rank->world->ranks;
	struct zi_node_queue *queue = NULL;
	struct flight *flights = calloc(IN_FLIGHT + 1, sizeof(*flights));

	rank->result = zi_node_queue_new(&queue);
	for (uint32_t i = 0; i < ROUNDS && !rank->result && rank->failed_call < 0; i++) {
		struct flight *last = &flights[IN_FLIGHT];
		int32_t expected = 0;

		memset(flights, 0, (IN_FLIGHT + 1) * sizeof(*flights));
		for (uint32_t k = 0; k < IN_FLIGHT; k++) {
			struct flight *flight = &flights[k];
			/* The second one waits for the results of the first. */
			int32_t *words = flights[k / 2].words;

			if (k % 2 == 0)
				words[0] = (int32_t)(rank->number + i + k);
			flight->op.group = &rank->group;
			flight->op.call = (struct zi_node_call){ .operation = ZI_COLL_ALL_REDUCE,
				                                 .dtype = ZI_DTYPE_I32,
				                                 .reduce_op = ZI_REDUCE_SUM,
				                                 .element_count = 64,
				                                 .source = words,
				                                 .target = words,
				                                 .deadline_ns = ZI_DEADLINE_NEVER };
			rank->result |= zi_node_queue_submit(queue, &flight->op);
		}
		last->drawn = world_draw(rank->world, i);
		last->op.group = &rank->group;
		last->op.call =
			world_place(rank, &last->drawn, last->source_counts, last->target_counts);
		rank->result |= zi_node_queue_run(queue, &last->op);
		if (rank->result || !world_check(rank, &last->drawn, &last->op.call))
			rank->failed_call = (int)i;
		for (uint32_t k = 0; k < IN_FLIGHT; k++) {
			cr_assert(zi_node_op_is_done(&flights[k].op), "those before are over");
			rank->result |= flights[k].op.result;
		}
		for (uint32_t r = 0; r < ranks; r++)
			expected += (int32_t)(r + i);
		if (flights[0].words[0] != expected * (int32_t)ranks)
			rank->failed_call = (int)i;
	}
	if (rank->result || rank->failed_call >= 0)
		zi_line_store(&rank->world->verdict, EPIPE);
	queue = zi_node_queue_free(queue);
	free(flights);
	return NULL;
}

Test(queue, calls_end_in_the_order_in_which_they_were_made)
{
	for (uint32_t count = 1; count <= 4; count++) {
		struct rank ranks[WORLD_RANKS_MAX];
		struct world world;

		world_init(&world, count, 5 + count);
		for (uint32_t i = 0; i < count; i++)
			rank_init(&ranks[i], &world, i);
		world_run(ranks, rank_main);
		for (uint32_t i = 0; i < count; i++) {
			cr_assert_eq(ranks[i].result, 0, "%u ranks: rank %u: %d", count, i,
			             ranks[i].result);
			cr_assert_eq(ranks[i].failed_call, -1, "%u ranks: round %d of rank %u",
			             count, ranks[i].failed_call, i);
			rank_deinit(&ranks[i]);
		}
		world_deinit(&world);
	}
}
