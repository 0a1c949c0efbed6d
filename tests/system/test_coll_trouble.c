/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: collectives hold up against users who are careless rather than wrong: ranks that are
 * stopped inside a call, that have forked, that leave with calls under way, that come in crowds,
 * that make groups without end; deadlines tiny and endless. Method: ranks as processes of a real
 * zinfd (coll.h).
 */
#include <dirent.h>
#include <stdint.h>
#include <sys/resource.h>

#include "tests/system/coll.h"

TestSuite(coll_trouble, .timeout = 200);

#define LONG_COUNT 300000u
#define GROUPS     5000u /* two each: 10^4 */
/* More than may be under way. */
#define TICKETS_MAX 5000u

static int32_t numbers[LONG_COUNT];

static int sum_up(struct coll_rank *rank, zinf_group group, uint64_t count, uint32_t timeout_ms)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;

	options.group = group;
	options.timeout_ms = timeout_ms;
	for (uint64_t i = 0; i < count; i++)
		numbers[i] = (int32_t)(rank->rank + i);
	return zinf_coll_all_reduce(rank->zinf, numbers, numbers, count, ZINF_I32, ZINF_SUM,
	                            &options);
}

/* Of ranks 0, step, 2 × step …, @members of them. */
static bool is_sum(uint64_t count, uint32_t members, uint32_t step)
{
	for (uint64_t i = 0; i < count; i++)
		if (numbers[i] != (int32_t)(members * i + step * members * (members - 1) / 2))
			return false;
	return true;
}

/* ---- stopped ---- */

static int one_is_stopped(struct coll_rank *rank)
{
	if (rank->rank == 1)
		coll_must(rank, 0, coll_tell(rank)); /* stopped before its part, or in it */
	else
		coll_must(rank, 0, coll_await(rank));
	coll_must(rank, -ETIMEDOUT,
	          sum_up(rank, ZINF_GROUP_WORLD, LONG_COUNT, rank->rank == 0 ? 300 : 0));
	coll_text(rank, "rank 1 (pid ");
	coll_must(rank, 0, coll_tell(rank));
	return 0;
}

Test(coll_trouble, a_rank_that_is_stopped_is_named_by_the_deadline_and_hears_it_later)
{
	struct coll_scene scene;
	pid_t pid;

	coll_open_scene(&scene);
	coll_start(&scene, 2, one_is_stopped);
	coll_hear(&scene, 1);
	pid = scene.shared->pids[1];
	cr_assert_eq(kill(pid, SIGSTOP), 0);
	coll_let_go(&scene, 1);
	coll_hear(&scene, 1);
	coll_join_one(&scene, 0, 0);
	cr_assert_eq(kill(pid, SIGCONT), 0);
	coll_join_one(&scene, 1, 0);
	coll_close_scene(&scene);
}

/* ---- forked ---- */

/* Its child has every descriptor that it had, and outlives it. */
static int one_has_a_child(struct coll_rank *rank)
{
	coll_must(rank, 0, sum_up(rank, ZINF_GROUP_WORLD, LONG_COUNT, 0));
	if (rank->rank == 1) {
		pid_t child = fork();

		coll_check(rank, child >= 0);
		if (!child) {
			int r = coll_await(rank);

			_exit(r ? 1 : 0);
		}
		coll_must(rank, 0, sum_up(rank, ZINF_GROUP_WORLD, LONG_COUNT, 0));
		coll_check(rank, is_sum(LONG_COUNT, 2, 1));
		coll_must(rank, 0, coll_tell(rank));
		(void)pause(); /* until it is killed */
	}
	coll_must(rank, 0, sum_up(rank, ZINF_GROUP_WORLD, LONG_COUNT, 0));
	coll_check(rank, is_sum(LONG_COUNT, 2, 1));
	coll_must(rank, -EPIPE, sum_up(rank, ZINF_GROUP_WORLD, LONG_COUNT, 0));
	coll_text(rank, "rank 1 (pid ");
	return 0;
}

Test(coll_trouble, a_child_of_a_rank_that_is_killed_holds_nobody_up)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_start(&scene, 2, one_has_a_child);
	coll_hear(&scene, 1);
	cr_assert_eq(kill(scene.shared->pids[1], SIGKILL), 0);
	coll_join_one(&scene, 1, 1000 + SIGKILL);
	coll_join_one(&scene, 0, 0);
	coll_let_go(&scene, 1); /* the child */
	coll_close_scene(&scene);
}

/* ---- groups without end ---- */

/* Lines of @path that have @word; of a folder its entries. */
static uint32_t count_of(const char *path, const char *word)
{
	char line[512];
	uint32_t count = 0;
	DIR *directory = word ? NULL : opendir(path);
	FILE *file = word ? fopen(path, "re") : NULL;

	while (directory && readdir(directory))
		count++;
	while (file && fgets(line, sizeof line, file))
		count += strstr(line, word) != NULL;
	if (directory)
		(void)closedir(directory);
	if (file)
		(void)fclose(file);
	return count;
}

static int many_groups(struct coll_rank *rank)
{
	uint32_t map_count = 0, fd_count = 0;

	for (uint32_t i = 0; i < GROUPS; i++) {
		zinf_group group, odd;

		coll_must(rank, 0,
		          zinf_coll_group(rank->zinf, (uint32_t[]){ 2, 0 }, 2, NULL, &group));
		coll_must(rank, 0, zinf_coll_group(rank->zinf, (uint32_t[]){ 1 }, 1, NULL, &odd));
		coll_check(rank, (group == ZINF_GROUP_NONE) == (rank->rank == 1));
		coll_check(rank, (odd == ZINF_GROUP_NONE) == (rank->rank != 1));
		if (rank->rank != 1) {
			coll_must(rank, 0, sum_up(rank, group, 100, 0));
			coll_check(rank, is_sum(100, 2, 2));
		}
		coll_must(rank, 0, zinf_coll_group_free(rank->zinf, group));
		coll_must(rank, 0, zinf_coll_group_free(rank->zinf, odd));
		if (i == 0) {
			map_count = count_of("/proc/self/maps", "zinf-board");
			fd_count = count_of("/proc/self/fd", NULL);
		}
	}
	coll_check(rank, count_of("/proc/self/maps", "zinf-board") <= map_count);
	coll_check(rank, count_of("/proc/self/fd", NULL) <= fd_count);
	return 0;
}

Test(coll_trouble, groups_are_made_and_freed_ten_thousand_times_and_leave_nothing)
{
	struct coll_scene scene;
	uint32_t fd_count;
	char path[64];

	coll_open_scene(&scene);
	(void)snprintf(path, sizeof path, "/proc/%d/fd", scene.harness.pid);
	fd_count = count_of(path, NULL);
	coll_run(&scene, 3, many_groups);
	cr_assert(harness_charges_return(&scene.harness, 0, 10000));
	cr_assert_lt(count_of(path, NULL), fd_count + 10, "descriptors of zinfd");
	coll_close_scene(&scene);
}

/* ---- no room for a board ---- */

/* Rank 1 can map nothing more while the group is made. */
static int one_has_no_room(struct coll_rank *rank)
{
	struct rlimit limit, none;
	zinf_group group = ZINF_GROUP_NONE;
	int r;

	coll_must(rank, 0, getrlimit(RLIMIT_AS, &limit));
	none = limit;
	none.rlim_cur = 1u << 20;
	if (rank->rank == 1)
		coll_must(rank, 0, setrlimit(RLIMIT_AS, &none));
	r = zinf_coll_group(rank->zinf, (uint32_t[]){ 0, 1 }, 2, NULL, &group);
	coll_must(rank, 0, setrlimit(RLIMIT_AS, &limit));
	coll_must(rank, rank->rank == 1 ? -ENOMEM : 0, r);
	if (rank->rank == 1) {
		coll_text(rank, "mapping the board of a group");
	} else { /* in no time: the deadline is 10 minutes */
		coll_must(rank, -EIO, sum_up(rank, group, 10, 600000));
		coll_text(rank, "rank 1 (pid ");
	}
	coll_must(rank, 0, sum_up(rank, ZINF_GROUP_WORLD, 10, 0));
	return 0;
}

Test(coll_trouble, a_rank_without_room_for_a_group_keeps_nobody_waiting)
{
	struct coll_scene scene;

#ifdef ZI_SANITIZED
	cr_skip_test("a sanitizer ends a process that can map nothing");
#endif
	coll_open_scene(&scene);
	coll_run(&scene, 2, one_has_no_room);
	coll_close_scene(&scene);
}

/* ---- deadlines ---- */

static int odd_deadlines(struct coll_rank *rank)
{
	struct zinf_group_options options = ZINF_GROUP_OPTIONS_INIT;
	zinf_group endless;

	options.timeout_ms = UINT32_MAX;
	coll_must(rank, 0,
	          zinf_coll_group(rank->zinf, (uint32_t[]){ 0, 1 }, 2, &options, &endless));
	for (uint32_t i = 0; i < 20; i++) {
		coll_must(rank, 0, sum_up(rank, endless, i % 2 ? LONG_COUNT : 10, 0));
		coll_must(rank, 0,
		          sum_up(rank, ZINF_GROUP_WORLD, i % 2 ? LONG_COUNT : 10, UINT32_MAX));
	}
	if (rank->rank == 1)
		coll_must(rank, 0, coll_await(rank));
	coll_must(rank, -ETIMEDOUT, sum_up(rank, ZINF_GROUP_WORLD, 10, 1));
	coll_text(rank, "rank 1 (pid ");
	if (rank->rank == 0)
		coll_must(rank, 0, coll_tell(rank));
	coll_must(rank, 0, sum_up(rank, endless, LONG_COUNT, 0));
	return 0;
}

Test(coll_trouble, a_deadline_may_be_a_millisecond_or_weeks)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run_and_let_go(&scene, 2, odd_deadlines, 1);
	coll_close_scene(&scene);
}

/* ---- calls without end ---- */

static int begin_one(struct coll_rank *rank, int64_t *number, zinf_ticket *ret_ticket)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;

	options.ret_ticket = ret_ticket;
	*number = 1;
	return zinf_coll_all_reduce(rank->zinf, number, number, 1, ZINF_I64, ZINF_SUM, &options);
}

/* Rank 0 begins as many calls as it may; rank 1 makes them later, one by one. */
static int many_tickets(struct coll_rank *rank)
{
	static zinf_ticket tickets[TICKETS_MAX];
	static int64_t terms[TICKETS_MAX];
	uint32_t count = 0;
	int r = 0;

	if (rank->rank == 0) {
		while (!r && count < TICKETS_MAX)
			r = begin_one(rank, &terms[count], &tickets[count]), count += r == 0;
		coll_check(rank, r == -ENOBUFS);
		coll_text(rank, "never waited for");
		rank->scene->shared->told[0] = count;
		coll_must(rank, 0, coll_tell(rank));
		for (uint32_t i = 0; i < count; i++) {
			coll_must(rank, 0, zinf_wait(rank->zinf, tickets[i], NULL));
			coll_check(rank, terms[i] == 2);
		}
		coll_must(rank, 0, begin_one(rank, &terms[0], &tickets[0]));
		coll_must(rank, 0, zinf_wait(rank->zinf, tickets[0], NULL));
		return 0;
	}
	coll_must(rank, 0, coll_await(rank));
	for (uint32_t i = 0; i <= rank->scene->shared->told[0]; i++) {
		coll_must(rank, 0, begin_one(rank, &terms[0], &tickets[0]));
		coll_must(rank, 0, zinf_wait(rank->zinf, tickets[0], NULL));
		coll_check(rank, terms[0] == 2);
	}
	return 0;
}

Test(coll_trouble, more_calls_under_way_than_there_may_be_are_refused_and_the_others_go_on)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run_and_let_go(&scene, 2, many_tickets, 1);
	coll_close_scene(&scene);
}

/* Rank 0 leaves with calls under way, whose buffers go with its process. */
static int leave_in_the_middle(struct coll_rank *rank)
{
	static zinf_ticket tickets[10];
	static int64_t terms[10];

	if (rank->rank == 1) {
		coll_must(rank, 0, coll_await(rank));
		coll_must(rank, -EPIPE, sum_up(rank, ZINF_GROUP_WORLD, LONG_COUNT, 0));
		coll_text(rank, "rank 0 (pid ");
		return 0;
	}
	for (uint32_t i = 0; i < 10; i++)
		coll_must(rank, 0, begin_one(rank, &terms[i], &tickets[i]));
	return 0;
}

Test(coll_trouble, a_rank_may_leave_with_calls_under_way)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_start(&scene, 2, leave_in_the_middle);
	coll_join_one(&scene, 0, 0);
	coll_let_go(&scene, 1);
	coll_join_one(&scene, 1, 0);
	coll_close_scene(&scene);
}

/* ---- a crowd ---- */

static int crowd(struct coll_rank *rank)
{
	uint32_t evens[ZINF_WORLD_MAX / 2];
	zinf_group even;

	coll_must(rank, 0, zinf_coll_open(rank->zinf, 1));
	for (uint32_t i = 0; i < ZINF_WORLD_MAX / 2; i++)
		evens[i] = 2 * i;
	coll_must(rank, 0, zinf_coll_group(rank->zinf, evens, ZINF_WORLD_MAX / 2, NULL, &even));
	for (uint32_t i = 0; i < 3; i++) {
		coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
		coll_must(rank, 0, sum_up(rank, ZINF_GROUP_WORLD, i ? 5000 : 10, 0));
		coll_check(rank, is_sum(i ? 5000 : 10, ZINF_WORLD_MAX, 1));
		if (rank->rank % 2)
			continue;
		coll_must(rank, 0, sum_up(rank, even, 5000, 0));
		coll_check(rank, is_sum(5000, ZINF_WORLD_MAX / 2, 2));
	}
	coll_must(rank, 0, zinf_coll_barrier(rank->zinf, NULL));
	return 0;
}

Test(coll_trouble, as_many_ranks_as_there_may_be_share_whatever_cpus_there_are)
{
	struct coll_scene scene;

	coll_open_large_scene(&scene, "2G");
	scene.is_plain = true;
	coll_run(&scene, ZINF_WORLD_MAX, crowd);
	coll_close_scene(&scene);
}
