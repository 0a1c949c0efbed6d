/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: groups of a job over several daemons, within a node and across nodes, are made by all ranks
 * together, used side by side and freed; nodes that name other members hear it at once. Method: two
 * or three daemons on the loopback interface.
 */
#include "libclient/client.h"
#include "tests/system/far.h"

TestSuite(far_group, .timeout = 240);

static int use_groups(struct far_rank *rank)
{
	static const uint32_t both[] = { 1, 2 }, first[] = { 0, 1 };
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	zinf_group across, inside;
	float value = (float)rank->rank, sum = 0;

	if (zinf_coll_group(rank->zinf, both, 2, NULL, &across) ||
	    zinf_coll_group(rank->zinf, first, 2, NULL, &inside))
		return far_fail(rank, -1, 1);
	if ((across != ZINF_GROUP_NONE) != (rank->rank == 1 || rank->rank == 2) ||
	    (inside != ZINF_GROUP_NONE) != (rank->rank < 2))
		return 2;
	/* In another order on rank 1 than the world's calls are on others. */
	options.group = across;
	if (across != ZINF_GROUP_NONE) {
		if (zinf_coll_all_reduce(rank->zinf, &value, &sum, 1, ZINF_F32, ZINF_SUM,
		                         &options) ||
		    sum != 3)
			return far_fail(rank, -1, 3);
	} else if (zinf_coll_barrier(rank->zinf, &options) != -EPERM) {
		return 4;
	}
	options.group = inside;
	if (inside != ZINF_GROUP_NONE &&
	    (zinf_coll_all_reduce(rank->zinf, &value, &sum, 1, ZINF_F32, ZINF_SUM, &options) ||
	     sum != 1))
		return far_fail(rank, -1, 5);
	if (zinf_coll_barrier(rank->zinf, NULL))
		return far_fail(rank, -1, 6);
	if (across != ZINF_GROUP_NONE && zinf_coll_group_free(rank->zinf, across))
		return far_fail(rank, -1, 7);
	if (inside != ZINF_GROUP_NONE && zinf_coll_group_free(rank->zinf, inside))
		return far_fail(rank, -1, 8);
	/* A number that is used again. */
	if (zinf_coll_group(rank->zinf, both, 2, NULL, &across))
		return far_fail(rank, -1, 9);
	options.group = across;
	if (across != ZINF_GROUP_NONE && zinf_coll_barrier(rank->zinf, &options))
		return far_fail(rank, -1, 10);
	return far_sum_once(rank);
}

Test(far_group, groups_are_within_a_node_and_across_nodes)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	far_run(&scene, use_groups);
	far_close_scene(&scene);
}

/* Rank 3's node names others than the first one's; then rank 2 others than rank 3. */
static int differ_about_groups(struct far_rank *rank)
{
	static const uint32_t both[] = { 1, 2 }, first[] = { 0, 1 };
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	const uint32_t *named = rank->rank < 2 ? first : both;
	uint64_t begin_ns = zi_clock_now_ns();
	float value = 1, sum = 0;
	zinf_group group;
	int r = zinf_coll_group(rank->zinf, named, 2, NULL, &group);

	(void)far_note(rank, r);
	if (r != -EINVAL)
		return 1;
	r = zinf_coll_group(rank->zinf, rank->rank == 2 ? both : first, 2, NULL, &group);
	if (r != -EINVAL || !strstr(zinf_error_text(rank->zinf), "must name the same members"))
		return far_fail(rank, r, 2);
	rank->scene->shared->reports[rank->rank].took_ms =
		(zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
	/* All count alike: the next one is made. */
	r = zinf_coll_group(rank->zinf, both, 2, NULL, &group);
	options.group = group;
	if (!r && group != ZINF_GROUP_NONE)
		r = zinf_coll_all_reduce(rank->zinf, &value, &sum, 1, ZINF_F32, ZINF_SUM, &options);
	if (r || (group != ZINF_GROUP_NONE && sum != 2))
		return far_fail(rank, r, 3);
	return far_sum_once(rank) ? 4 : 0;
}

Test(far_group, nodes_that_name_other_members_hear_it_at_once)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	scene.timeout_ms = 600000; /* Whoever waited for that would be killed. */
	far_run(&scene, differ_about_groups);
	for (uint32_t i = 0; i < 4; i++) {
		far_expect_error(&scene, i, -EINVAL, "a group of ranks 0, 1 say ranks 0, 1 (");
		far_expect_error(&scene, i, -EINVAL, "of ranks 1, 2 ranks 2, 3 (");
	}
	far_close_scene(&scene);
}

/* Until @count other ranks have told. */
static bool hears(const struct far_rank *rank, uint32_t count)
{
	struct pollfd told = { .fd = rank->scene->tell_fds[0], .events = POLLIN };
	char byte;

	for (uint32_t i = 0; i < count; i++)
		if (poll(&told, 1, FAR_JOIN_MS) != 1 || read(told.fd, &byte, 1) != 1)
			return false;
	return true;
}

/* The third node has not come: the two that differ, and it, hear it all the same. */
static int differ_before_all_have_come(struct far_rank *rank)
{
	static const uint32_t all[] = { 0, 1, 2 };
	zinf_group group;
	int r;

	if (rank->rank == 2 && !hears(rank, 2))
		return 2;
	r = zinf_coll_group(rank->zinf, all, rank->rank == 0 ? 2 : 3, NULL, &group);
	(void)far_note(rank, r);
	if (rank->rank < 2)
		far_tell(rank);
	/* Whoever serves the store stays until all have heard. */
	return r == -EINVAL ? far_sum_once(rank) : 1;
}

Test(far_group, two_nodes_that_differ_do_not_wait_for_a_third)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 1);
	scene.timeout_ms = 600000;
	far_run(&scene, differ_before_all_have_come);
	for (uint32_t i = 0; i < 3; i++) {
		far_expect_error(&scene, i, -EINVAL, "a group of ranks 0, 1 say ranks 0 (");
		far_expect_error(&scene, i, -EINVAL, "of ranks 0, 1, 2 ranks 1 (");
	}
	far_close_scene(&scene);
}

/* Ranks 0 and 1 of the first node differ. Its third one, and the other node's first one, come when
 * that has been told; and rank 4, whose node has heard by then, last. */
static int differ_before_two_nodes_come(struct far_rank *rank)
{
	static const uint32_t all[] = { 0, 1, 2, 3, 4, 5 };
	struct zi_coll_group wish = { .members = { 0x3f, 1 } }; /* rank 64 */
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	const struct zi_message_header *reply;
	float value = 1, sum = 0;
	zinf_group group;
	int r;

	if (rank->rank >= 2 && zinf_coll_barrier(rank->zinf, NULL))
		return 1;
	r = zinf_coll_group(rank->zinf, all, rank->rank == 0 ? 5 : 6, NULL, &group);
	(void)far_note(rank, r);
	if (r != -EINVAL)
		return 2;
	if (rank->rank < 2 && zinf_coll_barrier(rank->zinf, NULL))
		return 3;
	/* One names a rank that cannot be, the others of both nodes the right ones. */
	if (rank->rank == 3)
		r = zi_client_request(rank->zinf, &wish.header, ZI_MESSAGE_COLL_GROUP, sizeof(wish),
		                      ZI_MESSAGE_COLL_GROUPED, &reply, NULL, 0);
	else
		r = zinf_coll_group(rank->zinf, all, 6, NULL, &group);
	if (r != -EINVAL ||
	    !strstr(zinf_error_text(rank->zinf), "asks for a group with rank 64: the job has 6"))
		return far_fail(rank, r, 4);
	/* All count alike. */
	r = zinf_coll_group(rank->zinf, all, 6, NULL, &group);
	options.group = group;
	if (!r)
		r = zinf_coll_all_reduce(rank->zinf, &value, &sum, 1, ZINF_F32, ZINF_SUM, &options);
	return r || sum != 6 ? far_note(rank, r) ? 5 : 6 : 0;
}

Test(far_group, ranks_that_come_late_to_one_that_failed_hear_it_on_all_nodes)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 3);
	scene.timeout_ms = 600000;
	far_run(&scene, differ_before_two_nodes_come);
	for (uint32_t i = 0; i < 6; i++) {
		far_expect_error(&scene, i, -EINVAL, "of ranks 0, 1, 2, 3, 4 says rank 0 (pid");
		far_expect_error(&scene, i, -EINVAL, "of ranks 0, 1, 2, 3, 4, 5 says rank 1 (pid");
	}
	far_close_scene(&scene);
}

/* What rank 3's libzinf refuses is told on the other node as well, though its neighbour has not
 * come; and the next one is made. */
static int refuse_own_list(struct far_rank *rank)
{
	static const uint32_t all[] = { 0, 1, 2, 3 }, twice[] = { 0, 1, 2, 2 };
	zinf_group group;
	int r;

	if (rank->rank == 2 && zinf_coll_barrier(rank->zinf, NULL))
		return 1;
	r = zinf_coll_group(rank->zinf, rank->rank == 3 ? twice : all, 4, NULL, &group);
	(void)far_note(rank, r);
	if (r != -EINVAL)
		return 2;
	if (rank->rank != 2 && zinf_coll_barrier(rank->zinf, NULL))
		return 3;
	if (zinf_coll_group(rank->zinf, all, 4, NULL, &group))
		return far_fail(rank, -1, 4);
	return far_sum_once(rank);
}

Test(far_group, what_libzinf_refuses_of_one_rank_is_told_on_all_nodes_at_once)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	scene.timeout_ms = 600000; /* Whoever waited for that would be killed. */
	far_run(&scene, refuse_own_list);
	for (uint32_t i = 0; i < 4; i++) {
		far_expect_error(&scene, i, -EINVAL, "ranks[3]: rank 2 is named twice");
		if (i != 3)
			far_expect_error(&scene, i, -EINVAL, "rank 3 (pid");
	}
	far_close_scene(&scene);
}

static int make_many_groups(struct far_rank *rank)
{
	static const uint32_t pairs[][2] = { { 0, 1 }, { 1, 2 }, { 2, 3 }, { 3, 0 } };

	for (uint32_t i = 0; i < 8; i++) {
		zinf_group group;
		int r = zinf_coll_group(rank->zinf, pairs[i % 4], 2, NULL, &group);

		if (!r && group != ZINF_GROUP_NONE)
			r = zinf_coll_group_free(rank->zinf, group);
		if (r)
			return far_fail(rank, r, 1);
	}
	return far_sum_once(rank);
}

Test(far_group, groups_are_made_and_freed_over_and_over)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	far_run(&scene, make_many_groups);
	far_close_scene(&scene);
}

/* Messages both ways between ranks 1 and 2; what rank 2 takes it awaits before any is sent. */
static int swap_in_group(struct far_rank *rank, uint32_t count, int32_t seed)
{
	static const uint32_t both[] = { 1, 2 };
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	int32_t sent[4] = { 0 }, taken[4] = { 0 };
	zinf_ticket ticket = 0;
	uint32_t peer = rank->rank == 1; /* a member */
	int r = zinf_coll_group(rank->zinf, both, 2, NULL, &options.group);

	if (r || options.group == ZINF_GROUP_NONE)
		return r ? far_note(rank, r) : zinf_coll_barrier(rank->zinf, NULL);
	if (rank->rank == 2) {
		options.ret_ticket = &ticket;
		r = zinf_coll_recv(rank->zinf, taken, 1, ZINF_I32, peer, &options);
		options.ret_ticket = NULL;
	}
	r = r ? r : zinf_coll_barrier(rank->zinf, NULL);
	for (uint32_t i = 0; i < count; i++) {
		sent[i] = seed + (int32_t)(10 * rank->rank + i);
		if (!r && rank->rank == 1)
			r = zinf_coll_send(rank->zinf, &sent[i], 1, ZINF_I32, peer, &options);
		if (!r && rank->rank == 2)
			r = i == 0 ? zinf_wait(rank->zinf, ticket, NULL)
			           : zinf_coll_recv(rank->zinf, &taken[i], 1, ZINF_I32, peer,
			                            &options);
	}
	for (uint32_t i = 0; i < count && !r; i++)
		r = rank->rank == 2
		            ? zinf_coll_send(rank->zinf, &sent[i], 1, ZINF_I32, peer, &options)
		            : zinf_coll_recv(rank->zinf, &taken[i], 1, ZINF_I32, peer, &options);
	if (r)
		return far_note(rank, r);
	for (uint32_t i = 0; i < count; i++)
		if (taken[i] != seed + (int32_t)(10 * (3 - rank->rank) + i))
			return 20 + (int)i;
	/* Who leaves while others are not done breaks the group. */
	r = zinf_coll_barrier(rank->zinf, &options);
	return r ? far_note(rank, r) : zinf_coll_group_free(rank->zinf, options.group);
}

static int swap_over_and_over(struct far_rank *rank)
{
	static const uint32_t counts[] = { 1, 1, 3, 2, 4, 1 };

	for (uint32_t i = 0; i < ZI_COUNT_OF(counts); i++)
		if (swap_in_group(rank, counts[i], (int32_t)(1000 * (i + 1))))
			return 1 + (int)i;
	return far_sum_once(rank);
}

Test(far_group, a_number_that_is_used_again_has_no_messages_of_before)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	far_run(&scene, swap_over_and_over);
	far_close_scene(&scene);
}

/* A group of all ranks, within @timeout_ms; used once. Return: as zinf_coll_group(), or 1. */
static int group_of_all(struct far_rank *rank, uint32_t timeout_ms)
{
	static const uint32_t all[] = { 0, 1, 2, 3 };
	struct zinf_group_options options = ZINF_GROUP_OPTIONS_INIT;
	struct zinf_coll_options used = ZINF_COLL_OPTIONS_INIT;
	float value = 1, sum = 0;
	zinf_group group;
	int r;

	options.timeout_ms = timeout_ms;
	r = zinf_coll_group(rank->zinf, all, rank->world, &options, &group);
	(void)far_note(rank, r);
	if (r)
		return r;
	used.group = group;
	if (zinf_coll_all_reduce(rank->zinf, &value, &sum, 1, ZINF_F32, ZINF_SUM, &used) ||
	    sum != (float)rank->world)
		return 1;
	return 0;
}

static bool says(const struct far_rank *rank, const char *part)
{
	return strstr(rank->scene->shared->reports[rank->rank].text, part) != NULL;
}

/* Rank 0 gives the other node far less time than rank 1 does, and asks for something else at once.
 */
static int hurry(struct far_rank *rank)
{
	static const uint32_t here[] = { 0, 1 };
	zinf_group group;
	int r;

	if (rank->rank < 2) {
		r = group_of_all(rank, rank->rank == 0 ? 1000 : 600000);
		if (r != -ETIMEDOUT || !says(rank, "ranks 2, 3 (node 1) did not all come"))
			return 1;
	}
	if (rank->rank == 0 && zinf_coll_group(rank->zinf, here, 2, NULL, &group) != -EINVAL)
		return 2;
	if (rank->rank == 1 && group_of_all(rank, 600000) != -EINVAL)
		return 3;
	if (zinf_coll_barrier(rank->zinf, NULL))
		return far_fail(rank, -1, 4);
	/* The other node makes up for both. */
	if (rank->rank >= 2 &&
	    (group_of_all(rank, 600000) != -ETIMEDOUT || !says(rank, "did not all come")))
		return 5;
	if (rank->rank >= 2 &&
	    (group_of_all(rank, 600000) != -EINVAL || !says(rank, "must name the same members")))
		return 6;
	if (group_of_all(rank, 600000))
		return 7;
	return far_sum_once(rank);
}

Test(far_group, who_gives_others_less_time_ends_it_for_all_ranks_of_its_node)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	scene.timeout_ms = 600000; /* Whoever waited for that would be killed. */
	far_run(&scene, hurry);
	far_close_scene(&scene);
}

/* Rank 1 comes to the first one when it has failed. */
static int come_late(struct far_rank *rank)
{
	/* Each side once is the first to have waited long enough. */
	static const uint32_t timeouts_ms[][2] = { { 400, 600000 }, { 3000, 400 } };

	for (uint32_t i = 0; i < 2; i++) {
		uint32_t timeout_ms = timeouts_ms[i][rank->rank / 2];

		if (rank->rank != 1 && group_of_all(rank, timeout_ms) != -ETIMEDOUT)
			return 1;
		if (zinf_coll_barrier(rank->zinf, NULL))
			return far_fail(rank, -1, 4);
		/* At once. */
		if (rank->rank == 1 && group_of_all(rank, timeout_ms) != -ETIMEDOUT)
			return 5;
		if (says(rank, "rank 0 (pid"))
			return 2;
		if (!says(rank, "rank 1 (pid") &&
		    (i == 0 || !says(rank, "ranks 0, 1 (node 0) did not all come")))
			return 3;
		if (group_of_all(rank, 600000))
			return 6;
	}
	return far_sum_once(rank);
}

Test(far_group, one_that_was_not_made_in_time_is_made_the_next_time)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	scene.timeout_ms = 600000;
	far_run(&scene, come_late);
	far_close_scene(&scene);
}

/* A sum of many pieces with little time. Return: what it met. */
static int sum_within(struct far_rank *rank, uint32_t timeout_ms)
{
	enum { COUNT = 6 << 20 };
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	float *values = calloc(COUNT, sizeof(*values));
	int r;

	if (!values)
		return 1;
	options.timeout_ms = timeout_ms;
	r = zinf_coll_all_reduce(rank->zinf, values, values, COUNT, ZINF_F32, ZINF_SUM, &options);
	free(values);
	return far_note(rank, r);
}

/* The other node's ranks come when these have given up. */
static int wait_in_vain(struct far_rank *rank)
{
	if (zinf_coll_barrier(rank->zinf, NULL))
		return far_fail(rank, -1, 1);
	if (rank->rank < 2 && sum_within(rank, 400) != -ETIMEDOUT)
		return 2;
	if (rank->rank < 2) {
		far_tell(rank);
		return 0;
	}
	return hears(rank, 1) ? 0 : 3; /* Who left early would be the one that is named. */
}

Test(far_group, with_little_time_too_the_node_that_did_not_come_is_named)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	far_run(&scene, wait_in_vain);
	for (uint32_t i = 0; i < 2; i++)
		far_expect_error(&scene, i, -ETIMEDOUT, "(on node 1, ");
	far_close_scene(&scene);
}
