/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what is odd, but right, works: counts of zero are meetings like others, with no buffers at
 * all; and groups that cannot be are refused by name and figure, on every rank, before anything is
 * made. Method: ranks as processes of a real zinfd, and a barrier after each oddity.
 */
#include "tests/system/coll.h"

TestSuite(coll_odd, .timeout = 120);

static int still_good(struct coll_rank *rank)
{
	coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
	return 0;
}

/* ---- nothing ---- */

static int joins_of_nothing(struct coll_rank *rank)
{
	struct zinf *zinf = rank->zinf;

	coll_must(rank, 0, zinf_coll_all_reduce(zinf, NULL, NULL, 0, ZINF_F32, ZINF_AVG, NULL));
	coll_must(rank, 0, zinf_coll_reduce(zinf, NULL, NULL, 0, ZINF_BF16, ZINF_MAX, 1, NULL));
	coll_must(rank, 0, zinf_coll_reduce_scatter(zinf, NULL, NULL, 0, ZINF_I8, ZINF_BXOR, NULL));
	/* What cannot be cannot be of nothing either. */
	coll_must(rank, -EINVAL,
	          zinf_coll_all_reduce(zinf, NULL, NULL, 0, ZINF_I32, ZINF_AVG, NULL));
	coll_text(rank, "no avg of i32");
	return still_good(rank);
}

static int moves_of_nothing(struct coll_rank *rank)
{
	const uint64_t none[3] = { 0, 0, 0 };
	struct zinf *zinf = rank->zinf;

	coll_must(rank, 0, zinf_coll_all_gather(zinf, NULL, NULL, 0, ZINF_F16, NULL));
	coll_must(rank, 0, zinf_coll_broadcast(zinf, NULL, 0, ZINF_U8, 2, NULL));
	coll_must(rank, 0, zinf_coll_gather(zinf, NULL, NULL, 0, ZINF_I64, 0, NULL));
	coll_must(rank, 0, zinf_coll_scatter(zinf, NULL, NULL, 0, ZINF_I64, 1, NULL));
	coll_must(rank, 0, zinf_coll_all_to_all(zinf, NULL, NULL, 0, ZINF_F32, NULL));
	coll_must(rank, 0, zinf_coll_all_to_allv(zinf, NULL, none, NULL, none, ZINF_F32, NULL));
	return still_good(rank);
}

/* Each to the next, at once. */
static int messages_of_nothing(struct coll_rank *rank)
{
	struct zinf_coll_p2p ops[2] = {
		{ .is_send = true, .peer = (rank->rank + 1) % rank->world, .dtype = ZINF_I32 },
		{ .peer = (rank->rank + rank->world - 1) % rank->world, .dtype = ZINF_I32 },
	};

	coll_must(rank, 0, zinf_coll_batch(rank->zinf, ops, 2, NULL));
	return still_good(rank);
}

/* One has something, or much, where the others have nothing. */
static int nothing_beside_something(struct coll_rank *rank)
{
	float data[1] = { 7 };
	int r = zinf_coll_all_reduce(rank->zinf, data, data, rank->rank == 1, ZINF_F32, ZINF_SUM,
	                             NULL);

	coll_check(rank, r == -EINVAL);
	coll_text(rank, "all_reduce of 1 ");
	coll_text(rank, "all_reduce of 0 ");
	coll_check(rank, data[0] == 7);
	return still_good(rank);
}

static int nothing(struct coll_rank *rank)
{
	return joins_of_nothing(rank) || moves_of_nothing(rank) || messages_of_nothing(rank) ||
	       nothing_beside_something(rank);
}

Test(coll_odd, counts_of_zero_are_calls_like_others)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 3, nothing);
	coll_close_scene(&scene);
}

/* ---- groups that cannot be ---- */

static int impossible_groups(struct coll_rank *rank)
{
	uint32_t many[ZINF_WORLD_MAX + 1] = { 0 };
	struct zinf *zinf = rank->zinf;
	zinf_group group = 4711;

	coll_must(rank, -EINVAL, zinf_coll_group(zinf, (uint32_t[]){ 0, 1, 1 }, 3, NULL, &group));
	coll_text(rank, "ranks[2]: rank 1 is named twice");
	coll_must(rank, -EINVAL, zinf_coll_group(zinf, (uint32_t[]){ 1, 0, 1 }, 3, NULL, &group));
	coll_text(rank, "ranks[2]: rank 1 is named twice");
	coll_must(rank, -EINVAL, zinf_coll_group(zinf, (uint32_t[]){ 0, 3 }, 2, NULL, &group));
	coll_text(rank, "ranks[1]");
	coll_text(rank, "3");
	coll_must(rank, -EINVAL, zinf_coll_group(zinf, (uint32_t[]){ 0 }, 0, NULL, &group));
	coll_text(rank, "0 ranks");
	coll_must(rank, -EINVAL, zinf_coll_group(zinf, many, ZINF_WORLD_MAX + 1, NULL, &group));
	coll_text(rank, "65 ranks");
	coll_must(rank, -EINVAL, zinf_coll_group_free(zinf, 4711));
	return still_good(rank);
}

Test(coll_odd, groups_that_cannot_be_are_refused_with_the_rank)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 3, impossible_groups);
	coll_close_scene(&scene);
}

/* ---- targets that may not be written ---- */

#define READ_ONLY_BYTES (64u << 10)

/* As target of each operation that has one: nobody waits, and no page of it is touched. */
static int read_only_targets(struct coll_rank *rank)
{
	const char *page =
		mmap(NULL, READ_ONLY_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const uint64_t ones[2] = { 1, 1 };
	struct zinf *zinf = rank->zinf;
	int64_t data[16] = { 0 };
	void *target = (void *)page;
	int results[] = {
		zinf_coll_all_reduce(zinf, data, target, 2, ZINF_I64, ZINF_SUM, NULL),
		zinf_coll_reduce_scatter(zinf, data, target, 2, ZINF_I64, ZINF_SUM, NULL),
		zinf_coll_all_gather(zinf, data, target, 2, ZINF_I64, NULL),
		zinf_coll_all_to_all(zinf, data, target, 2, ZINF_I64, NULL),
		zinf_coll_all_to_allv(zinf, data, ones, target, ones, ZINF_I64, NULL),
	};

	coll_check(rank, page != MAP_FAILED);
	for (uint32_t i = 0; i < ZI_COUNT_OF(results); i++)
		if (results[i] != -EACCES) {
			fprintf(stderr, "rank %u: operation %u: %d\n", rank->rank, i, results[i]);
			return 1;
		}
	return still_good(rank);
}

/* Rank 1 alone writes: what its peer sends is not lost, but for the next receive. */
static int read_only_of_one(struct coll_rank *rank)
{
	const char *page =
		mmap(NULL, READ_ONLY_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct zinf *zinf = rank->zinf;
	int64_t data[600] = { 0 }; /* more than who needs nothing would go ahead with */
	int r;

	r = zinf_coll_broadcast(zinf, rank->rank ? (void *)page : data, 600, ZINF_I64, 0, NULL);
	coll_check(rank, r == -EACCES);
	coll_text(rank, "not writable");
	r = zinf_coll_gather(zinf, data, rank->rank ? (void *)page : NULL, 600, ZINF_I64, 1, NULL);
	coll_check(rank, r == -EACCES);
	coll_text(rank, "not writable");
	return still_good(rank);
}

static int read_only(struct coll_rank *rank)
{
	return read_only_targets(rank) || read_only_of_one(rank);
}

Test(coll_odd, targets_that_may_not_be_written_are_refused)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 2, read_only);
	coll_close_scene(&scene);
}
