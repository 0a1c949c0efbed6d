/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of a node as threads, over a board and arenas in plain memory; calls of every kind with
 * their buffers in arenas and elsewhere, in place and not; and a plain model of what each rank has
 * afterwards. For unit tests and for the stress program, which has no Criterion.
 */
#pragma once

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "kernels/table.h"
#include "libclient/coll/node/node.h"
#include "tests/kernels/data.h"

#define WORLD_RANKS_MAX     9u
#define WORLD_STAGING_BYTES (64u << 10)
#define WORLD_BUFFER_BYTES  (256u << 10)
#define WORLD_ARENA_BYTES   (WORLD_STAGING_BYTES + 2 * WORLD_BUFFER_BYTES)

struct world {
	struct zi_board_member *board;
	char *arenas;
	struct zi_line verdict, spin_us;
	/* NUMA node of each arena as the engine is told, a double: memory lies where it lies. */
	uint8_t places[WORLD_RANKS_MAX];
	uint32_t ranks;
	uint64_t seed;
};

struct rank {
	struct world *world;
	uint32_t number;
	pthread_t thread;
	struct zi_node_group group;
	char *inside[2], *outside[2]; /* (WORLD_BUFFER_BYTES,) each */
	char *expected;
	int result;
	int failed_call; /* -1: none */
	struct zi_text text;
};

static inline void *world_memory(uint64_t bytes)
{
	uint64_t all = zi_align_up(bytes, 4096);
	void *memory = aligned_alloc(4096, all);

	if (!memory)
		abort();
	memset(memory, 0, all);
	return memory;
}

static inline void world_init(struct world *world, uint32_t ranks, uint64_t seed)
{
	*world = (struct world){ .ranks = ranks, .seed = seed };
	world->board = world_memory(ranks * sizeof(*world->board));
	world->arenas = world_memory((uint64_t)ranks * WORLD_ARENA_BYTES);
	world->spin_us.value = 0; /* ranks outnumber CPUs here */
}

static inline void world_deinit(struct world *world)
{
	free(world->board);
	free(world->arenas);
}

static inline void rank_init(struct rank *rank, struct world *world, uint32_t number)
{
	char *own = world->arenas + (uint64_t)number * WORLD_ARENA_BYTES;

	*rank = (struct rank){ .world = world, .number = number, .failed_call = -1 };
	rank->group = (struct zi_node_group){
		.meet = { .members = world->board,
		          .verdict = &world->verdict,
		          .spin_us = &world->spin_us,
		          .member_count = world->ranks,
		          .self = number },
		.arenas = world->arenas,
		.arenas_bytes = (uint64_t)world->ranks * WORLD_ARENA_BYTES,
		.own = own,
		.own_bytes = WORLD_ARENA_BYTES,
		.staging = own,
		.staging_bytes = WORLD_STAGING_BYTES,
		.streaming_bytes = 32768,
	};
	zi_numa_init(&rank->group.numa, world->places, world->ranks);
	for (uint32_t i = 0; i < 2; i++) {
		rank->inside[i] = own + WORLD_STAGING_BYTES + i * WORLD_BUFFER_BYTES;
		rank->outside[i] = world_memory(WORLD_BUFFER_BYTES);
	}
	rank->expected = world_memory(WORLD_BUFFER_BYTES);
}

static inline void rank_deinit(struct rank *rank)
{
	free(rank->outside[0]);
	free(rank->outside[1]);
	free(rank->expected);
}

/* A world and all @count ranks of it. */
static inline void world_open(struct world *world, struct rank *ranks, uint32_t count,
                              uint64_t seed)
{
	world_init(world, count, seed);
	for (uint32_t i = 0; i < count; i++)
		rank_init(&ranks[i], world, i);
}

static inline void world_close(struct world *world, struct rank *ranks)
{
	for (uint32_t i = 0; i < world->ranks; i++)
		rank_deinit(&ranks[i]);
	world_deinit(world);
}

/* Runs @entry for every rank, each in its thread, until all have ended. */
static inline void world_run(struct rank *ranks, void *(*entry)(void *))
{
	uint32_t count = ranks->world->ranks;

	for (uint32_t i = 0; i < count; i++)
		if (pthread_create(&ranks[i].thread, NULL, entry, &ranks[i]))
			abort();
	for (uint32_t i = 0; i < count; i++)
		(void)pthread_join(ranks[i].thread, NULL);
}

/* ---- calls ---- */

/* Where a rank's buffers lie. */
enum world_where { WORLD_INSIDE, WORLD_OUTSIDE, WORLD_SOURCE, WORLD_TARGET, WORLD_MIXED };
#define WORLD_WHERE_COUNT 5u

struct world_call {
	enum zi_coll_operation operation;
	enum zi_dtype dtype;
	enum zi_reduce_op reduce_op;
	uint32_t root;
	uint64_t element_count;
	enum world_where where; /* SOURCE, TARGET: that is inside, the other not; MIXED: drawn */
	bool is_in_place;
	uint32_t index;
	uint64_t counts[WORLD_RANKS_MAX][WORLD_RANKS_MAX]; /* from, to */
};

static inline uint64_t world_random(const struct world *world, uint32_t index, uint32_t what)
{
	uint64_t state = (world->seed * 1000003u + index) * 1000003u + what + 1u;

	(void)data_random(&state);
	return data_random(&state) >> 16;
}

/* The same on every rank. Every operation comes with every place and type; the rest is drawn. */
static inline struct world_call world_draw(const struct world *world, uint32_t index)
{
	static const uint64_t sizes[] = { 0, 1, 3, 17, 100, 1000, 2500, 5000, 20000 };
	struct world_call call = {
		.operation = 1 + index % ZI_COLL_ALL_TO_ALLV,
		.where = index / ZI_COLL_ALL_TO_ALLV % WORLD_WHERE_COUNT,
		.dtype =
			1 + index / ZI_COLL_ALL_TO_ALLV / WORLD_WHERE_COUNT % (_ZI_DTYPE_COUNT - 1),
		.root = (uint32_t)(world_random(world, index, 1) % world->ranks),
		.element_count = sizes[world_random(world, index, 2) % ZI_COUNT_OF(sizes)],
		.is_in_place = world_random(world, index, 3) % 2,
		.index = index,
	};

	while (call.element_count * zi_dtype_bytes(call.dtype) * world->ranks > WORLD_BUFFER_BYTES)
		call.element_count /= 2;
	if (call.operation >= ZI_COLL_ALL_REDUCE && call.operation <= ZI_COLL_REDUCE_SCATTER)
		for (uint32_t i = 4; !call.reduce_op; i++) {
			enum zi_reduce_op op =
				1 + world_random(world, index, i) % (_ZI_REDUCE_COUNT - 1);

			if (zi_reduce_op_is_for(op, call.dtype))
				call.reduce_op = op;
		}
	for (uint32_t i = 0; i < world->ranks * world->ranks; i++)
		call.counts[i / world->ranks][i % world->ranks] =
			world_random(world, index, 100 + i) % (call.element_count + 1);
	return call;
}

/* What rank @number contributes: any bits, so that NaNs are moved unchanged; small numbers where
 * floats are joined, of which the kernels' own tests know more. */
static inline void world_contribute(char *target, uint64_t bytes, uint64_t seed, uint32_t index,
                                    uint32_t number)
{
	uint64_t state = seed * 1000003 + index * 64u + number + 1;

	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t word = data_random(&state) & 0x3f7f3f7f3f7f3f7full;

		memcpy(target + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

/* ---- the model ---- */

static inline uint64_t world_sum(const struct world_call *call, uint32_t first, uint32_t count,
                                 bool is_source, uint32_t self)
{
	uint64_t sum = 0;

	for (uint32_t i = first; i < first + count; i++)
		sum += is_source ? call->counts[self][i] : call->counts[i][self];
	return sum;
}

static inline void world_join(const struct rank *rank, const struct world_call *call,
                              char *const *sources, uint64_t block)
{
	uint32_t ranks = rank->world->ranks;
	const void *places[WORLD_RANKS_MAX];
	void *target = rank->expected;

	for (uint32_t i = 0; i < ranks; i++)
		places[i] = sources[i] +
		            (call->operation == ZI_COLL_REDUCE_SCATTER ? rank->number * block : 0);
	kern_combine_ref(&(struct kern_combine_run){ &target, places, 1, ranks, call->element_count,
	                                             call->dtype, call->dtype, call->reduce_op,
	                                             1.0 / ranks, false });
}

/* Fills @rank's expected target; returns its bytes, 0 when it has none. */
static inline uint64_t world_model(const struct rank *rank, const struct world_call *call)
{
	uint32_t ranks = rank->world->ranks, self = rank->number;
	uint64_t width = zi_dtype_bytes(call->dtype), block = call->element_count * width;
	char *sources[WORLD_RANKS_MAX] = { NULL }, *target = rank->expected;
	uint64_t bytes = block * ranks;
	bool is_root = self == call->root;

	for (uint32_t i = 0; i < ranks; i++) {
		sources[i] = malloc(bytes + 8);
		if (!sources[i])
			abort();
		world_contribute(sources[i], bytes, rank->world->seed, call->index, i);
	}
	switch (call->operation) {
	case ZI_COLL_ALL_REDUCE:
	case ZI_COLL_REDUCE:
	case ZI_COLL_REDUCE_SCATTER:
		world_join(rank, call, sources, block);
		bytes = call->operation == ZI_COLL_REDUCE && !is_root ? 0 : block;
		break;
	case ZI_COLL_ALL_GATHER:
	case ZI_COLL_GATHER:
		for (uint32_t i = 0; i < ranks; i++)
			memcpy(target + i * block, sources[i], block);
		bytes = call->operation == ZI_COLL_GATHER && !is_root ? 0 : bytes;
		break;
	case ZI_COLL_BROADCAST:
		memcpy(target, sources[call->root], block);
		bytes = is_root ? 0 : block;
		break;
	case ZI_COLL_SCATTER:
		memcpy(target, sources[call->root] + self * block, block);
		bytes = block;
		break;
	case ZI_COLL_ALL_TO_ALL:
		for (uint32_t i = 0; i < ranks; i++)
			memcpy(target + i * block, sources[i] + self * block, block);
		break;
	case ZI_COLL_ALL_TO_ALLV:
		bytes = 0;
		for (uint32_t i = 0; i < ranks; i++) {
			memcpy(target + bytes,
			       sources[i] + world_sum(call, 0, self, true, i) * width,
			       call->counts[i][self] * width);
			bytes += call->counts[i][self] * width;
		}
		break;
	default:
		bytes = 0;
	}
	for (uint32_t i = 0; i < ranks; i++)
		free(sources[i]);
	return bytes;
}

/* ---- making one ---- */

/* Buffers of this rank for @call, its source filled. */
static inline struct zi_node_call world_place(struct rank *rank, const struct world_call *drawn,
                                              uint64_t *source_counts, uint64_t *target_counts)
{
	struct world *world = rank->world;
	uint64_t block = drawn->element_count * zi_dtype_bytes(drawn->dtype);
	uint64_t mix = world_random(world, drawn->index, 10000 + rank->number);
	bool is_mixed = drawn->where == WORLD_MIXED;
	bool is_source_inside =
		is_mixed ? mix & 1 : drawn->where == WORLD_INSIDE || drawn->where == WORLD_SOURCE;
	bool is_target_inside =
		is_mixed ? mix & 2 : drawn->where == WORLD_INSIDE || drawn->where == WORLD_TARGET;
	char *source = is_source_inside ? rank->inside[0] : rank->outside[0];
	char *target = is_target_inside ? rank->inside[1] : rank->outside[1];
	bool is_in_place = is_mixed ? mix & 4 : drawn->is_in_place;

	if (is_in_place && drawn->operation != ZI_COLL_ALL_TO_ALLV) {
		bool is_source_long = drawn->operation == ZI_COLL_REDUCE_SCATTER ||
		                      drawn->operation == ZI_COLL_SCATTER;
		bool is_target_long = drawn->operation == ZI_COLL_ALL_GATHER ||
		                      drawn->operation == ZI_COLL_GATHER;

		target = source;
		if (is_source_long)
			target = source + rank->number * block;
		else if (is_target_long)
			source = target + rank->number * block;
	}
	for (uint32_t i = 0; i < world->ranks; i++) {
		source_counts[i] = drawn->counts[rank->number][i];
		target_counts[i] = drawn->counts[i][rank->number];
	}
	if (drawn->operation == ZI_COLL_ALL_GATHER || drawn->operation == ZI_COLL_GATHER ||
	    drawn->operation == ZI_COLL_ALL_REDUCE || drawn->operation == ZI_COLL_REDUCE ||
	    drawn->operation == ZI_COLL_BROADCAST)
		world_contribute(source, block, world->seed, drawn->index, rank->number);
	else
		world_contribute(source, block * world->ranks, world->seed, drawn->index,
		                 rank->number);
	return (struct zi_node_call){
		.operation = drawn->operation,
		.dtype = drawn->dtype,
		.reduce_op = drawn->reduce_op,
		.root = drawn->root,
		.element_count = drawn->element_count,
		.source = source,
		.target = target,
		.source_counts = source_counts,
		.target_counts = target_counts,
		.deadline_ns = ZI_DEADLINE_NEVER,
	};
}

/* Whether @call's target is what the model says. */
static inline bool world_check(struct rank *rank, const struct world_call *drawn,
                               const struct zi_node_call *call)
{
	uint64_t bytes = world_model(rank, drawn);

	return !bytes || !memcmp(call->target, rank->expected, bytes);
}
