/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks with private sources and targets, over a board and arenas that processes share. */
#pragma once

#include <criterion/criterion.h>
#include <sys/mman.h>

#include "tests/unit/node/world.h"

#define RANKS    2u
#define ELEMENTS 20000u /* of a block; several pieces */
#define CALLS    8u     /* of which the third is the first in which sources are read */

struct report {
	uint32_t wrong_call; /* 0: none */
	int result;
	enum zi_node_path paths[CALLS + 1];
	bool is_restaged[CALLS + 1];
	struct zi_text text;
};

struct scene {
	struct world world;
	struct rank ranks[RANKS];
	struct report *reports;  /* (RANKS,), shared */
	struct zi_line *verdict; /* so */
};

static inline void *shared_memory(uint64_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(map, MAP_FAILED);
	return map;
}

/* Before ranks are forked, so that each of them has the others' addresses in its own memory too:
 * what it copies from there by mistake is not what the other one has. */
static inline void scene_init(struct scene *scene)
{
	*scene = (struct scene){ .world = { .ranks = RANKS, .seed = 5 } };
	scene->world.board = shared_memory(RANKS * sizeof(*scene->world.board));
	scene->world.arenas = shared_memory(RANKS * WORLD_ARENA_BYTES);
	scene->reports = shared_memory(RANKS * sizeof(*scene->reports));
	scene->verdict = shared_memory(sizeof(*scene->verdict));
	for (uint32_t i = 0; i < RANKS; i++) {
		rank_init(&scene->ranks[i], &scene->world, i);
		scene->ranks[i].group.meet.verdict = scene->verdict;
		scene->ranks[i].group.streaming_bytes = UINT64_MAX;
	}
}

static inline void scene_deinit(struct scene *scene)
{
	for (uint32_t i = 0; i < RANKS; i++)
		rank_deinit(&scene->ranks[i]);
	(void)munmap(scene->world.board, RANKS * sizeof(*scene->world.board));
	(void)munmap(scene->world.arenas, RANKS * WORLD_ARENA_BYTES);
	(void)munmap(scene->reports, RANKS * sizeof(*scene->reports));
	(void)munmap(scene->verdict, sizeof(*scene->verdict));
}

static inline struct world_call drawn_of(uint32_t index)
{
	static const enum zi_coll_operation operations[] = { ZI_COLL_ALL_GATHER, ZI_COLL_ALL_TO_ALL,
		                                             ZI_COLL_ALL_TO_ALLV };
	struct world_call drawn = {
		.operation = operations[index % ZI_COUNT_OF(operations)],
		.dtype = ZI_DTYPE_I32,
		.element_count = ELEMENTS,
		.where = WORLD_OUTSIDE,
		.index = index,
		.counts = { { ELEMENTS, ELEMENTS / 2 }, { 3, ELEMENTS } },
	};

	return drawn;
}

static inline bool reads(const struct scene *scene, uint32_t reader, uint32_t member)
{
	return scene->world.board[reader].cma.reads >> member & 1;
}
