/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: where collectives cannot be opened on one node, its ranks differing or one being refused,
 * all other nodes have that error at once, with who it was and what it did, those too who come
 * later; and they are opened the next time, at once. Method: three daemons on the loopback
 * interface with two ranks each that have an hour; one rank asks for something else.
 */
#include "tests/system/far.h"

TestSuite(far_tell, .timeout = 240);

#define PATIENT_MS 3600000u
/* At once, on a crowded machine. */
#define SOON_MS 20000u

static uint32_t odd_rank; /* of the ranks that are forked next */

static int open_timed(struct far_rank *rank, uint64_t arena_bytes)
{
	uint64_t begin_ns = zi_clock_now_ns();
	int r = far_note(rank, zinf_coll_open(rank->zinf, arena_bytes));

	rank->scene->shared->reports[rank->rank].took_ms =
		(zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
	return r;
}

/* What the first opening met stays the report. */
static int open_again(struct far_rank *rank)
{
	struct far_report first = rank->scene->shared->reports[rank->rank];
	int r = zinf_coll_open(rank->zinf, FAR_ARENA);

	if (r)
		return far_fail(rank, r, 8);
	r = far_sum_once(rank);
	if (!r)
		rank->scene->shared->reports[rank->rank] = first;
	return r;
}

static int open_with_odd_arena(struct far_rank *rank)
{
	int r = open_timed(rank, rank->rank == odd_rank ? 3 * FAR_ARENA : FAR_ARENA);

	return r == -EINVAL ? open_again(rank) : far_fail(rank, r, 7);
}

/* All ranks have been told at once, with @part and @who, elsewhere with the host as well. */
static void expect_told(const struct far_scene *scene, const char *part, uint32_t who)
{
	char name[32], host[64] = "", where[80];

	(void)gethostname(host, sizeof(host) - 1);
	(void)snprintf(where, sizeof(where), " (on %.40s", host);
	(void)snprintf(name, sizeof(name), "rank %u (pid %d)", who, scene->pids[who]);
	for (uint32_t i = 0; i < far_world(scene); i++) {
		const struct far_report *report = &scene->shared->reports[i];

		far_expect_error(scene, i, -EINVAL, part);
		far_expect_error(scene, i, -EINVAL, name);
		if (far_node_of(scene, i) != far_node_of(scene, who))
			far_expect_error(scene, i, -EINVAL, where);
		cr_expect_lt(report->took_ms, SOON_MS, "rank %u: %lu ms", i, report->took_ms);
	}
}

Test(far_tell, ranks_that_differ_are_named_on_all_nodes_and_open_the_next_time)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 2);
	scene.is_plain = true;
	scene.timeout_ms = PATIENT_MS;
	for (odd_rank = 1; odd_rank < 6; odd_rank += 2) {
		scene.is_backwards = odd_rank == 3;
		far_run(&scene, open_with_odd_arena);
		expect_told(&scene, "asks for an arena of", odd_rank);
	}
	far_close_scene(&scene);
}

/* A whole node asks for other arenas than the others. */
static int open_with_odd_node(struct far_rank *rank)
{
	bool is_odd = rank->rank / rank->scene->per_node == odd_rank / rank->scene->per_node;
	int r = open_timed(rank, is_odd ? 3 * FAR_ARENA : FAR_ARENA);

	return r == -EINVAL ? open_again(rank) : far_fail(rank, r, 7);
}

Test(far_tell, nodes_that_differ_in_their_arenas_are_named_and_open_the_next_time)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 2);
	scene.is_plain = true;
	scene.timeout_ms = PATIENT_MS;
	for (odd_rank = 0; odd_rank < 6; odd_rank += 4) {
		far_run(&scene, open_with_odd_node);
		for (uint32_t i = 0; i < 6; i++) {
			far_expect_error(&scene, i, -EINVAL, "asks for an arena of");
			far_expect_error(&scene, i, -EINVAL, "2097152");
			far_expect_error(&scene, i, -EINVAL, "6291456");
		}
	}
	far_close_scene(&scene);
}

/* One rank of the node would meet elsewhere: who is right its daemon cannot know. */
static int open_with_odd_port(struct far_rank *rank)
{
	int r;

	if (rank->rank == odd_rank)
		far_set_number("ZINF_PORT", rank->scene->port + 1);
	r = open_timed(rank, FAR_ARENA);
	far_set_number("ZINF_PORT", rank->scene->port);
	return r == -EINVAL ? open_again(rank) : far_fail(rank, r, 7);
}

Test(far_tell, ranks_that_differ_in_where_they_meet_are_named_on_all_nodes)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	scene.is_plain = true;
	scene.timeout_ms = PATIENT_MS;
	for (uint32_t i = 0; i < 4; i++) {
		odd_rank = i;
		far_run(&scene, open_with_odd_port);
		expect_told(&scene, "MASTER_ADDR or ZINF_PORT differ", odd_rank);
	}
	far_close_scene(&scene);
}

/* ---- who comes late ---- */

static int open_odd_and_stay(struct far_rank *rank)
{
	int r = open_timed(rank, rank->rank == odd_rank ? 3 * FAR_ARENA : FAR_ARENA);

	far_tell(rank);
	return r == -EINVAL ? open_again(rank) : far_fail(rank, r, 7);
}

Test(far_tell, a_node_that_comes_late_hears_of_it_and_the_next_opening_waits_for_it)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 2);
	scene.is_plain = true;
	scene.timeout_ms = PATIENT_MS;
	for (odd_rank = 1; odd_rank < 4; odd_rank += 2) {
		scene.incarnation++;
		memset(scene.shared, 0, sizeof(*scene.shared));
		for (uint32_t i = 0; i < 4; i++)
			far_start_one(&scene, i, open_odd_and_stay);
		far_hear(&scene, 4); /* Two nodes are at their second opening, or about to be. */
		for (uint32_t i = 4; i < 6; i++)
			far_start_one(&scene, i, open_odd_and_stay);
		for (uint32_t i = 0; i < 6; i++)
			far_join_one(&scene, i, 0);
		far_hear(&scene, 2);
		expect_told(&scene, "asks for an arena of", odd_rank);
	}
	far_close_scene(&scene);
}
