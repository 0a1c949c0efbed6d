/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: collectives inside a node give what a plain model of them gives, on both paths, for any
 * number of ranks, type, operation and size, also when calls follow each other without a pause.
 * Method: threads as ranks over a board and arenas in plain memory; seeded random calls, which
 * every rank draws alike; each rank compares its own target with the model.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "kernels/combine.h"
#include "libclient/coll/node.h"
#include "tests/kernels/data.h"

#define RANKS_MAX   9u
#define ARENA_BYTES (1u << 20)
#define CALLS       400u

struct world {
	struct zi_board_member *board;
	char *arenas;
	struct zi_line verdict, spin_us;
	uint32_t ranks;
	uint64_t seed;
	uint32_t call_count;
};

struct rank {
	struct world *world;
	uint32_t number;
	pthread_t thread;
	struct zi_node_group group;
	char *source, *target; /* in its arena */
	char *expected;
	int failed_call; /* -1: none */
	int result;
	struct zi_text text;
};

static void world_init(struct world *world, uint32_t ranks)
{
	*world = (struct world){ .ranks = ranks, .call_count = CALLS };
	world->board = aligned_alloc(4096, ranks * sizeof(*world->board));
	world->arenas = aligned_alloc(4096, (size_t)ranks * ARENA_BYTES);
	cr_assert(world->board && world->arenas);
	memset(world->board, 0, ranks * sizeof(*world->board));
	world->spin_us.value = 0; /* ranks outnumber CPUs here */
}

static void world_deinit(struct world *world)
{
	free(world->board);
	free(world->arenas);
}

static void rank_init(struct rank *rank, struct world *world, uint32_t number)
{
	*rank = (struct rank){ .world = world, .number = number, .failed_call = -1 };
	rank->group = (struct zi_node_group){
		.meet = { .members = world->board,
		          .verdict = &world->verdict,
		          .spin_us = &world->spin_us,
		          .member_count = world->ranks,
		          .self = number },
		.arenas = world->arenas,
		.arenas_bytes = (uint64_t)world->ranks * ARENA_BYTES,
		.own = world->arenas + (size_t)number * ARENA_BYTES,
		.own_bytes = ARENA_BYTES,
		.streaming_bytes = 65536,
	};
	rank->source = world->arenas + (size_t)number * ARENA_BYTES;
	rank->target = rank->source + ARENA_BYTES / 2;
	rank->expected = malloc(ARENA_BYTES / 2);
	cr_assert(rank->expected);
}

/* What rank @number contributes to call @index: any bits, so that NaNs are moved unchanged; small
 * numbers where floats are joined, of which the kernels' own tests know more. */
static void contribution(char *target, uint64_t bytes, uint64_t seed, uint32_t index,
                         uint32_t number)
{
	uint64_t state = seed * 1000003 + index * 64u + number + 1;

	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t word = data_random(&state) & 0x3f7f3f7f3f7f3f7full;

		memcpy(target + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

static struct zi_node_call draw(uint64_t *state, uint32_t ranks)
{
	static const uint64_t sizes[] = { 0, 1, 3, 17, 100, 1000, 5000, 20000 };
	struct zi_node_call call = { .operation = 1 + data_random(state) % ZI_COLL_ALL_TO_ALL,
		                     .dtype = 1 + data_random(state) % (_ZI_DTYPE_COUNT - 1),
		                     .root = (uint32_t)(data_random(state) % ranks),
		                     .element_count =
		                             sizes[data_random(state) % ZI_COUNT_OF(sizes)],
		                     .deadline_ns = ZI_DEADLINE_NEVER };

	if (call.dtype == _ZI_DTYPE_FLOAT_COUNT)
		call.dtype = ZI_DTYPE_I8;
	while (call.element_count * zi_dtype_bytes(call.dtype) * ranks > ARENA_BYTES / 2)
		call.element_count /= 2;
	if (call.operation >= ZI_COLL_ALL_REDUCE && call.operation <= ZI_COLL_REDUCE_SCATTER)
		do
			call.reduce_op = 1 + data_random(state) % (_ZI_REDUCE_COUNT - 1);
		while (!zi_reduce_op_is_for(call.reduce_op, call.dtype));
	return call;
}

/* Fills @rank's expected target; returns its bytes, 0 when it has none. */
static uint64_t model(const struct rank *rank, const struct zi_node_call *call, uint32_t index)
{
	uint32_t ranks = rank->world->ranks, self = rank->number;
	uint64_t block = call->element_count * zi_dtype_bytes(call->dtype);
	uint64_t all = block * ranks;
	char *sources[RANKS_MAX];
	void *target = rank->expected;
	uint64_t bytes = block;

	for (uint32_t i = 0; i < ranks; i++) {
		sources[i] = malloc(all + 8);
		contribution(sources[i], all, rank->world->seed, index, i);
	}
	switch (call->operation) {
	case ZI_COLL_ALL_REDUCE:
	case ZI_COLL_REDUCE:
	case ZI_COLL_REDUCE_SCATTER:
		if (call->operation == ZI_COLL_REDUCE && self != call->root)
			bytes = 0;
		for (uint32_t i = 0; i < ranks && call->operation == ZI_COLL_REDUCE_SCATTER; i++)
			memmove(sources[i], sources[i] + self * block, block);
		kern_combine(&(struct kern_combine_run){
			&target, (const void *const *)sources, 1, ranks, call->element_count,
			call->dtype, call->dtype, call->reduce_op, (float)(1.0 / ranks), false });
		break;
	case ZI_COLL_ALL_GATHER:
	case ZI_COLL_GATHER:
		bytes = call->operation == ZI_COLL_GATHER && self != call->root ? 0 : all;
		for (uint32_t i = 0; i < ranks; i++)
			memcpy(rank->expected + i * block, sources[i], block);
		break;
	case ZI_COLL_BROADCAST:
		memcpy(target, sources[call->root], block);
		break;
	case ZI_COLL_SCATTER:
		memcpy(target, sources[call->root] + self * block, block);
		break;
	case ZI_COLL_ALL_TO_ALL:
		bytes = all;
		for (uint32_t i = 0; i < ranks; i++)
			memcpy(rank->expected + i * block, sources[i] + self * block, block);
		break;
	default:
		bytes = 0;
	}
	for (uint32_t i = 0; i < ranks; i++)
		free(sources[i]);
	return bytes;
}

static void *rank_main(void *arg)
{
	struct rank *rank = arg;
	struct world *world = rank->world;
	uint64_t state = world->seed * 2 + 1;

	for (uint32_t i = 0; i < world->call_count && rank->failed_call < 0; i++) {
		struct zi_node_call call = draw(&state, world->ranks);
		uint64_t bytes = model(rank, &call, i);

		contribution(rank->source,
		             call.element_count * zi_dtype_bytes(call.dtype) * world->ranks,
		             world->seed, i, rank->number);
		call.source = rank->source;
		call.target = rank->target;
		rank->result = zi_node_call(&rank->group, &call, &rank->text);
		if (rank->result || memcmp(rank->target, rank->expected, bytes))
			rank->failed_call = (int)i;
	}
	return NULL;
}

static void run(struct world *world, struct rank *ranks)
{
	for (uint32_t i = 0; i < world->ranks; i++)
		cr_assert_eq(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
	for (uint32_t i = 0; i < world->ranks; i++)
		cr_assert_eq(pthread_join(ranks[i].thread, NULL), 0);
}

Test(node, random_calls_of_1_to_9_ranks_are_what_the_model_says)
{
	for (uint32_t count = 1; count <= RANKS_MAX; count++) {
		struct rank ranks[RANKS_MAX];
		struct world world;

		world_init(&world, count);
		world.seed = 17 + count;
		for (uint32_t i = 0; i < count; i++)
			rank_init(&ranks[i], &world, i);
		run(&world, ranks);
		for (uint32_t i = 0; i < count; i++) {
			cr_assert_eq(ranks[i].failed_call, -1,
			             "%u ranks: call %d of rank %u: %d %s", count,
			             ranks[i].failed_call, i, ranks[i].result, ranks[i].text.chars);
			free(ranks[i].expected);
		}
		world_deinit(&world);
	}
}
