/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that leaves right after its last call spoils nobody's: what it had a part in ends
 * well on every rank, though the daemon breaks its groups at once. Method: ranks make one call of
 * each path and detach without a word, over and over; who is last differs by itself.
 */
#include "tests/system/coll.h"

TestSuite(coll_leave, .timeout = 240);

#define ROUNDS      12u
#define LARGE_COUNT (1u << 18)

static int (*last_call)(struct coll_rank *rank);

static int begin_and_go(struct coll_rank *rank)
{
	coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
	return last_call(rank);
}

/* @world_max: of 2 to that many ranks in turn. */
static void leave_after(int (*call)(struct coll_rank *rank), uint32_t world_max)
{
	struct coll_scene scene;

	last_call = call;
	coll_open_scene(&scene);
	for (uint32_t i = 0; i < ROUNDS; i++)
		coll_run(&scene, 2 + i % (world_max - 1), begin_and_go);
	coll_close_scene(&scene);
}

static int barrier(struct coll_rank *rank)
{
	coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
	return 0;
}

Test(coll_leave, after_a_barrier)
{
	leave_after(barrier, COLL_RANKS_MAX);
}

static int in_the_arena(struct coll_rank *rank)
{
	float *values = NULL;

	coll_must(rank, 0,
	          zinf_coll_alloc(rank->zinf, LARGE_COUNT * sizeof(*values), (void **)&values));
	values[LARGE_COUNT - 1] = 1;
	coll_must(rank, 0,
	          zinf_coll_all_reduce(rank->zinf, values, values, LARGE_COUNT, ZINF_F32, ZINF_SUM,
	                               NULL));
	coll_check(rank, values[LARGE_COUNT - 1] == (float)rank->world);
	return 0;
}

Test(coll_leave, after_a_large_sum_in_the_arenas)
{
	leave_after(in_the_arena, COLL_RANKS_MAX);
}

static int in_pieces(struct coll_rank *rank)
{
	static float source[LARGE_COUNT], target[LARGE_COUNT];

	source[LARGE_COUNT - 1] = 1;
	coll_must(rank, 0,
	          zinf_coll_all_reduce(rank->zinf, source, target, LARGE_COUNT, ZINF_F32, ZINF_SUM,
	                               NULL));
	coll_check(rank, target[LARGE_COUNT - 1] == (float)rank->world);
	return 0;
}

Test(coll_leave, after_a_large_sum_in_pieces)
{
	leave_after(in_pieces, COLL_RANKS_MAX);
}

/* The root has nothing to wait for but the others' being done. */
static int moved(struct coll_rank *rank)
{
	static int32_t values[LARGE_COUNT];

	values[LARGE_COUNT - 1] = rank->rank == 0 ? 7 : 0;
	coll_must(rank, 0, zinf_coll_broadcast(rank->zinf, values, LARGE_COUNT, ZINF_I32, 0, NULL));
	coll_check(rank, values[LARGE_COUNT - 1] == 7);
	return 0;
}

Test(coll_leave, after_a_broadcast)
{
	leave_after(moved, COLL_RANKS_MAX);
}

/* Everybody but the root is over at once, and gone by the time that it comes if nobody waits. */
static int brought(struct coll_rank *rank)
{
	int32_t values[COLL_RANKS_MAX] = { 0 }, value = 3;

	for (uint32_t i = 0; rank->rank == 0 && i < 100; i++)
		coll_must(rank, 0, zinf_ping(rank->zinf));
	coll_must(rank, 0, zinf_coll_gather(rank->zinf, &value, values, 1, ZINF_I32, 0, NULL));
	for (uint32_t i = 0; rank->rank == 0 && i < rank->world; i++)
		coll_check(rank, values[i] == 3);
	return 0;
}

Test(coll_leave, after_a_small_gather)
{
	leave_after(brought, COLL_RANKS_MAX);
}

/* So is the root here; the others wait for the one who is late. */
static int spread(struct coll_rank *rank)
{
	int32_t value = rank->rank == 0 ? 9 : 0;

	for (uint32_t i = 0; rank->rank == 1 && i < 100; i++)
		coll_must(rank, 0, zinf_ping(rank->zinf));
	coll_must(rank, 0, zinf_coll_broadcast(rank->zinf, &value, 1, ZINF_I32, 0, NULL));
	coll_check(rank, value == 9);
	return 0;
}

Test(coll_leave, after_a_small_broadcast)
{
	leave_after(spread, COLL_RANKS_MAX);
}

/* A group that is freed is left just so. */
static int freed(struct coll_rank *rank)
{
	static const uint32_t ranks[] = { 0, 1 };
	int32_t values[2] = { 0 }, value = 3;
	zinf_group group;

	coll_must(rank, 0, zinf_coll_group(rank->zinf, ranks, 2, NULL, &group));
	if (rank->rank < 2) {
		struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;

		options.group = group;
		for (uint32_t i = 0; rank->rank == 0 && i < 100; i++)
			coll_must(rank, 0, zinf_ping(rank->zinf));
		coll_must(rank, 0,
		          zinf_coll_gather(rank->zinf, &value, values, 1, ZINF_I32, 0, &options));
		coll_check(rank, rank->rank == 1 || (values[0] == 3 && values[1] == 3));
	}
	coll_must(rank, 0, zinf_coll_group_free(rank->zinf, group));
	coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
	return 0;
}

Test(coll_leave, a_group_after_a_small_gather)
{
	leave_after(freed, COLL_RANKS_MAX);
}

static int queued(struct coll_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	zinf_ticket tickets[4];
	int32_t values[4] = { 1, 1, 1, 1 };

	for (uint32_t i = 0; i < 4; i++) {
		options.ret_ticket = &tickets[i];
		coll_must(rank, 0,
		          zinf_coll_all_reduce(rank->zinf, &values[i], &values[i], 1, ZINF_I32,
		                               ZINF_SUM, &options));
	}
	for (uint32_t i = 0; i < 4; i++) {
		coll_must(rank, 0, zinf_wait(rank->zinf, tickets[i], NULL));
		coll_check(rank, values[i] == (int32_t)rank->world);
	}
	return 0;
}

Test(coll_leave, after_calls_with_tickets)
{
	leave_after(queued, COLL_RANKS_MAX);
}

/* Of two alone: the group is broken for whoever still has a call to make. */
static int message(struct coll_rank *rank)
{
	int32_t value = rank->rank == 0 ? 5 : 0;

	if (rank->rank == 0)
		coll_must(rank, 0, zinf_coll_send(rank->zinf, &value, 1, ZINF_I32, 1, NULL));
	else
		coll_must(rank, 0, zinf_coll_recv(rank->zinf, &value, 1, ZINF_I32, 0, NULL));
	coll_check(rank, value == 5);
	return 0;
}

Test(coll_leave, after_a_message)
{
	leave_after(message, 2);
}
