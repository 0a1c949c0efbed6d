/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that never comes, leaves, or is killed inside a collective is named to all others,
 * within the deadline or at once; the group stays broken, other groups go on, and a new group is as
 * good as new. A daemon that dies holds nobody up. Method: ranks as processes of a real zinfd,
 * which tell the test where they stand.
 */
#include "tests/system/coll.h"

TestSuite(coll_death, .timeout = 120);

#define SHORT_MS 300u

/* The pair of ranks 0 and 1. */
static int make_pair(struct coll_rank *rank, zinf_group *ret_group)
{
	coll_must(rank, 0, zinf_coll_group(rank->zinf, (uint32_t[]){ 0, 1 }, 2, NULL, ret_group));
	return 0;
}

static int all_reduce(struct coll_rank *rank, zinf_group group, uint32_t timeout_ms)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	int32_t data = 1;

	options.group = group;
	options.timeout_ms = timeout_ms;
	return zinf_coll_all_reduce(rank->zinf, &data, &data, 1, ZINF_I32, ZINF_SUM, &options);
}

/* ---- a rank that never comes ---- */

static int one_never_comes(struct coll_rank *rank)
{
	zinf_group pair, again;
	uint64_t begin_ns;

	if (make_pair(rank, &pair))
		return 1;
	coll_must(rank, 0, all_reduce(rank, ZINF_GROUP_WORLD, 0));
	if (rank->rank == 2) {
		coll_must(rank, 0, coll_await(rank)); /* until the others have given up */
		coll_must(rank, -ETIMEDOUT, all_reduce(rank, ZINF_GROUP_WORLD, 0));
	} else {
		coll_must(rank, -ETIMEDOUT, all_reduce(rank, ZINF_GROUP_WORLD, SHORT_MS));
		coll_text(rank, "all_reduce");
		coll_must(rank, 0, coll_tell(rank));
	}
	coll_text(rank, "rank 2 (pid ");
	begin_ns = zi_clock_now_ns();
	coll_must(rank, -ETIMEDOUT, all_reduce(rank, ZINF_GROUP_WORLD, 0));
	coll_text(rank, "rank 2 (pid ");
	coll_check(rank, zi_clock_now_ns() - begin_ns < COLL_TIMEOUT_MS / 2 * ZI_NS_PER_MS);
	if (rank->rank < 2)
		coll_must(rank, 0, all_reduce(rank, pair, 0));
	coll_must(rank, 0, zinf_coll_group(rank->zinf, (uint32_t[]){ 0, 1, 2 }, 3, NULL, &again));
	coll_must(rank, 0, all_reduce(rank, again, 0));
	return 0;
}

Test(coll_death, a_rank_that_never_comes_is_named_and_a_new_group_goes_on)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run_and_let_go(&scene, 3, one_never_comes, 2);
	coll_close_scene(&scene);
}

/* ---- a rank that is killed, or leaves ---- */

/* Rank 2 is in a collective, or about to be, that rank 1 has not come to. */
static int one_is_killed(struct coll_rank *rank)
{
	zinf_group pair;

	if (make_pair(rank, &pair))
		return 1;
	coll_must(rank, 0, coll_tell(rank));
	if (rank->rank == 1)
		coll_must(rank, 0, coll_await(rank)); /* until rank 0 has heard of the death */
	coll_must(rank, -EPIPE, all_reduce(rank, ZINF_GROUP_WORLD, 0));
	if (rank->rank == 0)
		coll_must(rank, 0, coll_tell(rank));
	coll_text(rank, "rank 2 (pid ");
	coll_text(rank, "died");
	coll_must(rank, -EPIPE, zinf_coll_barrier(rank->zinf, NULL));
	coll_text(rank, "rank 2 (pid ");
	for (uint32_t i = 0; i < 100; i++)
		coll_must(rank, 0, all_reduce(rank, pair, 0));
	coll_must(rank, -EPIPE, zinf_barrier(rank->zinf));
	coll_must(rank, 0, all_reduce(rank, pair, 0));
	coll_must(rank, 0, zinf_coll_group_free(rank->zinf, pair));
	return 0;
}

Test(coll_death, a_rank_that_is_killed_is_named_at_once_and_groups_without_it_go_on)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_start(&scene, 3, one_is_killed);
	coll_hear(&scene, 3);
	cr_assert_eq(kill(scene.shared->pids[2], SIGKILL), 0);
	coll_join_one(&scene, 2, 1000 + SIGKILL);
	coll_hear(&scene, 1);
	coll_let_go(&scene, 1);
	coll_join_one(&scene, 0, 0);
	coll_join_one(&scene, 1, 0);
	coll_close_scene(&scene);
}

static int one_leaves(struct coll_rank *rank)
{
	if (rank->rank == 1)
		return 0;
	coll_must(rank, -EPIPE, all_reduce(rank, ZINF_GROUP_WORLD, 0));
	coll_text(rank, "rank 1 (pid ");
	return 0;
}

Test(coll_death, a_rank_that_leaves_is_named)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 2, one_leaves);
	coll_close_scene(&scene);
}

/* Rank 0 has a ticket under way when rank 1 is killed. */
static int killed_under_a_ticket(struct coll_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	zinf_ticket ticket;

	if (rank->rank == 1) {
		coll_must(rank, 0, coll_tell(rank));
		for (;;)
			(void)pause();
	}
	options.ret_ticket = &ticket;
	coll_must(rank, 0, zinf_coll_barrier(rank->zinf, &options));
	coll_must(rank, 0, coll_tell(rank));
	coll_must(rank, -EPIPE, zinf_wait(rank->zinf, ticket, NULL));
	coll_text(rank, "rank 1 (pid ");
	return 0;
}

Test(coll_death, a_ticket_ends_when_a_peer_is_killed)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_start(&scene, 2, killed_under_a_ticket);
	coll_hear(&scene, 2);
	cr_assert_eq(kill(scene.shared->pids[1], SIGKILL), 0);
	coll_join_one(&scene, 1, 1000 + SIGKILL);
	coll_join_one(&scene, 0, 0);
	coll_close_scene(&scene);
}

static int one_message_never_comes(struct coll_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	int32_t data = 1;
	int r;

	options.timeout_ms = SHORT_MS;
	if (rank->rank == 1)
		return coll_await(rank);
	r = zinf_coll_recv(rank->zinf, &data, 1, ZINF_I32, 1, &options);
	coll_check(rank, r == -ETIMEDOUT);
	coll_text(rank, "recv (i32 x 1");
	coll_text(rank, "rank 1 (pid ");
	return coll_tell(rank);
}

Test(coll_death, a_message_that_never_comes_is_told_with_its_sender)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run_and_let_go(&scene, 2, one_message_never_comes, 1);
	coll_close_scene(&scene);
}

/* ---- the daemon ---- */

static int daemon_dies(struct coll_rank *rank)
{
	coll_must(rank, 0, coll_tell(rank));
	if (rank->rank == 1)
		return coll_await(rank);
	coll_must(rank, -ESTALE, all_reduce(rank, ZINF_GROUP_WORLD, 0));
	coll_text(rank, "went away");
	coll_must(rank, -ESTALE, zinf_coll_barrier(rank->zinf, NULL));
	return coll_tell(rank);
}

Test(coll_death, a_daemon_that_is_killed_holds_nobody_up)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_start(&scene, 2, daemon_dies);
	coll_hear(&scene, 2);
	harness_kill(&scene.harness);
	coll_hear(&scene, 1);
	coll_let_go(&scene, 1);
	coll_join_one(&scene, 0, 0);
	coll_join_one(&scene, 1, 0);
	cr_assert_eq(harness_restart(&scene.harness), 0);
	coll_close_scene(&scene);
}

/* ---- another incarnation of the job ---- */

static int is_replaced(struct coll_rank *rank)
{
	if (!strcmp(rank->scene->incarnation, "second")) {
		coll_must(rank, 0, all_reduce(rank, ZINF_GROUP_WORLD, 0));
		return 0;
	}
	coll_must(rank, 0, coll_tell(rank));
	if (rank->rank == 1)
		return coll_await(rank);
	coll_must(rank, -ESTALE, all_reduce(rank, ZINF_GROUP_WORLD, 0));
	coll_must(rank, -ESTALE, all_reduce(rank, ZINF_GROUP_WORLD, 0));
	return 0;
}

Test(coll_death, a_newer_incarnation_of_the_job_ends_the_calls_of_the_older_one)
{
	struct coll_scene scene;
	pid_t former[2];

	coll_open_scene(&scene);
	coll_start(&scene, 2, is_replaced);
	coll_hear(&scene, 2);
	memcpy(former, scene.shared->pids, sizeof(former));
	scene.incarnation = "second";
	coll_run(&scene, 2, is_replaced);
	cr_assert_eq(harness_wait(former[0], 20000), 0);
	coll_let_go(&scene, 1);
	cr_assert_eq(harness_wait(former[1], 20000), 0);
	coll_close_scene(&scene);
}
