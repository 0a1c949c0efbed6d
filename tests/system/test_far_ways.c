/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whichever way a call between nodes goes, with the frames that say what it is (small ones),
 * straight from and to arenas (one rank on each node, or blocks of one rank for one), or in pieces
 * through the slab, each rank has its result. Method: every collective with lengths around the
 * crossover and above, buffers all in arenas, one rank's elsewhere, and in place; small whole
 * numbers, whose sums are exact.
 */
#include <criterion/criterion.h>

#include "tests/system/far.h"

TestSuite(far_ways, .timeout = 120);

#define BUFFER_BYTES (1000u << 10)
#define BUFFER_COUNT (BUFFER_BYTES / sizeof(float))

enum way { IN_ARENAS, ONE_ELSEWHERE, IN_PLACE, _WAY_COUNT };

struct data {
	struct zinf *zinf;
	uint32_t rank, world, last;
	uint64_t block;
	bool is_in_place;
	float *source, *target;
};

static float element(uint32_t rank, uint64_t index)
{
	return (float)(rank * 31 + index % 97);
}

static void fill(float *source, uint32_t rank, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		source[i] = element(rank, i);
}

static bool is_sum(const struct data *data, const float *values, uint64_t first)
{
	for (uint64_t i = 0; i < data->block; i++) {
		float sum = 0;

		for (uint32_t k = 0; k < data->world; k++)
			sum += element(k, first + i);
		if (values[i] != sum)
			return false;
	}
	return true;
}

/* Whether @values are the block at @first of @rank. */
static bool is_of(const struct data *data, const float *values, uint32_t rank, uint64_t first)
{
	for (uint64_t i = 0; i < data->block; i++)
		if (values[i] != element(rank, first + i))
			return false;
	return true;
}

/* Return: 0, or which of them went wrong. */
static int join_all(const struct data *data)
{
	uint64_t block = data->block, own = block * data->rank;
	float *target = data->is_in_place ? data->source : data->target;

	fill(data->source, data->rank, block);
	if (zinf_coll_all_reduce(data->zinf, data->source, target, block, ZINF_F32, ZINF_SUM,
	                         NULL) ||
	    !is_sum(data, target, 0))
		return 11;
	fill(data->source, data->rank, block);
	if (zinf_coll_reduce(data->zinf, data->source, target, block, ZINF_F32, ZINF_SUM,
	                     data->last, NULL) ||
	    (data->rank == data->last && !is_sum(data, target, 0)))
		return 12;
	fill(data->source, data->rank, block * data->world);
	target = data->is_in_place ? data->source + own : data->target;
	if (zinf_coll_reduce_scatter(data->zinf, data->source, target, block, ZINF_F32, ZINF_SUM,
	                             NULL) ||
	    !is_sum(data, target, own))
		return 13;
	return 0;
}

static int gather_all(const struct data *data)
{
	uint64_t block = data->block, own = block * data->rank;
	float *source = data->is_in_place ? data->target + own : data->source;

	fill(source, data->rank, block);
	if (zinf_coll_all_gather(data->zinf, source, data->target, block, ZINF_F32, NULL))
		return 21;
	for (uint32_t i = 0; i < data->world; i++)
		if (!is_of(data, data->target + i * block, i, 0))
			return 22;
	fill(source, data->rank, block);
	if (zinf_coll_gather(data->zinf, source, data->target, block, ZINF_F32, 0, NULL))
		return 23;
	for (uint32_t i = 0; i < data->world && data->rank == 0; i++)
		if (!is_of(data, data->target + i * block, i, 0))
			return 24;
	return 0;
}

static int spread_all(const struct data *data)
{
	uint64_t block = data->block, own = block * data->rank;
	float *target = data->target;

	fill(data->source, data->rank, block);
	if (zinf_coll_broadcast(data->zinf, data->source, block, ZINF_F32, data->last, NULL) ||
	    !is_of(data, data->source, data->last, 0))
		return 31;
	fill(data->source, data->rank, block * data->world);
	if (data->is_in_place && data->rank == data->last)
		target = data->source + own;
	if (zinf_coll_scatter(data->zinf, data->source, target, block, ZINF_F32, data->last,
	                      NULL) ||
	    !is_of(data, target, data->last, own))
		return 32;
	target = data->is_in_place ? data->source : data->target;
	fill(data->source, data->rank, block * data->world);
	if (zinf_coll_all_to_all(data->zinf, data->source, target, block, ZINF_F32, NULL))
		return 33;
	for (uint32_t i = 0; i < data->world; i++)
		if (!is_of(data, target + i * block, i, own))
			return 34;
	return 0;
}

static int go_all_ways(struct far_rank *rank)
{
	/* 4096 bytes, alone or of two ranks, are the most that goes with a frame. */
	static const uint64_t blocks[] = { 1, 7, 256, 512, 513, 1024, 1025, 20011, 40000 };
	static float outside[2][BUFFER_COUNT];
	struct data data = { .zinf = rank->zinf,
		             .rank = rank->rank,
		             .world = rank->world,
		             .last = rank->world - 1 };
	void *inside[2];

	for (uint32_t i = 0; i < 2; i++)
		if (zinf_coll_alloc(rank->zinf, BUFFER_BYTES, &inside[i]))
			return far_fail(rank, -1, 1);
	for (uint32_t way = 0; way < _WAY_COUNT; way++)
		for (uint32_t i = 0; i < ZI_COUNT_OF(blocks); i++) {
			bool is_outside = way == ONE_ELSEWHERE && rank->rank == data.last;
			int r;

			data.block = blocks[i];
			data.is_in_place = way == IN_PLACE;
			data.source = is_outside ? outside[0] : inside[0];
			data.target = is_outside ? outside[1] : inside[1];
			r = join_all(&data);
			r = r ? r : gather_all(&data);
			r = r ? r : spread_all(&data);
			if (r) {
				fprintf(stderr, "rank %u, way %u, blocks of %lu: %d: %s\n",
				        rank->rank, way, data.block, r,
				        zinf_error_text(rank->zinf));
				return r;
			}
		}
	return 0;
}

/* Of the whole arena: calls of its last elements, no whole lines, are as good as others. */
static int go_to_the_end(struct far_rank *rank)
{
	enum { BLOCK = 10002, ALL = FAR_ARENA / sizeof(float) };
	struct data data = { .zinf = rank->zinf,
		             .rank = rank->rank,
		             .world = rank->world,
		             .last = rank->world - 1,
		             .block = BLOCK,
		             .is_in_place = true };
	void *memory;
	float *end;
	int r;

	if (zinf_coll_alloc(rank->zinf, FAR_ARENA, &memory))
		return far_fail(rank, -1, 1);
	end = (float *)memory + ALL;
	fill(end - BLOCK, rank->rank, BLOCK);
	r = zinf_coll_all_reduce(rank->zinf, end - BLOCK, end - BLOCK, BLOCK, ZINF_F32, ZINF_SUM,
	                         NULL);
	if (r || !is_sum(&data, end - BLOCK, 0))
		return far_fail(rank, r, 2);
	fill(end - BLOCK, rank->rank, BLOCK);
	r = zinf_coll_broadcast(rank->zinf, end - BLOCK, BLOCK, ZINF_F32, data.last, NULL);
	if (r || !is_of(&data, end - BLOCK, data.last, 0))
		return far_fail(rank, r, 3);
	data.source = data.target = end - rank->world * BLOCK;
	r = join_all(&data);
	r = r ? r : gather_all(&data);
	r = r ? r : spread_all(&data);
	return r ? far_note(rank, r) : 0;
}

/* A piece that is taken for staged would be that of the refused call; and what a member still
 * stages of that call must not lie over another one's piece of the next, which is cut in another
 * way. Bodies of alike speed seldom get there: see tests/unit/node/test_far.c. */
static int go_on_after_a_refusal(struct far_rank *rank)
{
	enum { BLOCK = 20011, ROUNDS = 8, WORLD = 4 };
	static float source[WORLD * BLOCK], target[WORLD * BLOCK];
	struct data data = { .zinf = rank->zinf, .rank = rank->rank, .block = BLOCK };
	uint64_t counts[WORLD] = { BLOCK, BLOCK, BLOCK, BLOCK };
	bool is_other = rank->rank + 1 == rank->world;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		int r;

		memset(source, 0, sizeof(source));
		r = zinf_coll_all_reduce(rank->zinf, source, source, WORLD * BLOCK - is_other,
		                         ZINF_F32, ZINF_SUM, NULL);
		if (r != -EINVAL)
			return far_fail(rank, r, 2);
		fill(source, rank->rank, WORLD * BLOCK);
		r = round % 2 ? zinf_coll_all_to_all(rank->zinf, source, target, BLOCK, ZINF_F32,
		                                     NULL)
		              : zinf_coll_all_to_allv(rank->zinf, source, counts, target, counts,
		                                      ZINF_F32, NULL);
		if (r)
			return far_fail(rank, r, 3);
		for (uint32_t i = 0; i < WORLD; i++)
			if (!is_of(&data, target + i * BLOCK, i, rank->rank * BLOCK))
				return far_fail(rank, 0, 4);
	}
	return 0;
}

/* Its own part done, a rank waits until the others of its node have taken theirs. */
static int go_on_at_once(struct far_rank *rank)
{
	enum { BLOCK = 40000, ROUNDS = 60 };
	struct data data = { .zinf = rank->zinf, .rank = rank->rank, .block = BLOCK };
	uint64_t count = (uint64_t)rank->world * BLOCK;
	void *source, *target;

	if (zinf_coll_alloc(rank->zinf, count * sizeof(float), &source) ||
	    zinf_coll_alloc(rank->zinf, count * sizeof(float), &target))
		return far_fail(rank, -1, 1);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		int r;

		fill(source, rank->rank, count);
		r = zinf_coll_all_to_all(rank->zinf, source, target, BLOCK, ZINF_F32, NULL);
		if (r)
			return far_fail(rank, r, 2);
		memset(source, 0, count * sizeof(float));
		for (uint32_t i = 0; i < rank->world; i++)
			if (!is_of(&data, (float *)target + i * BLOCK, i, rank->rank * BLOCK))
				return far_fail(rank, 0, 3);
	}
	return 0;
}

static void run(uint32_t node_count, uint32_t per_node, far_body_fn body)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, node_count, per_node);
	scene.timeout_ms = 60000;
	far_run(&scene, body);
	far_close_scene(&scene);
}

Test(far_ways, one_rank_on_each_of_two_nodes)
{
	run(2, 1, go_all_ways);
}

Test(far_ways, one_rank_on_each_of_four_nodes)
{
	run(4, 1, go_all_ways);
}

Test(far_ways, two_ranks_on_each_of_two_nodes)
{
	run(2, 2, go_all_ways);
}

Test(far_ways, three_ranks_on_each_of_two_nodes)
{
	run(2, 3, go_all_ways);
}

Test(far_ways, who_has_its_blocks_waits_for_those_who_take_from_it)
{
	run(2, 3, go_on_at_once);
}

Test(far_ways, buffers_that_end_with_the_arenas)
{
	run(2, 1, go_to_the_end);
}

Test(far_ways, what_was_staged_of_a_refused_call_is_not_of_the_next)
{
	run(2, 2, go_on_after_a_refusal);
}
