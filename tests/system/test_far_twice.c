/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: of two jobs over nodes that have one name the second is answered by name and figure, soon,
 * and the first goes on; but a newer start of the same job takes its place, and one elsewhere with
 * a port of its own is none of its business. Method: up to four daemons on the loopback interface,
 * the first job in sums, the second with ten minutes for everything.
 */
#include "tests/system/far.h"

TestSuite(far_twice, .timeout = 240);

#define LONG_MS (10 * FAR_JOIN_MS)

/* A job in sums on the first two of @node_count daemons. */
static bool open_first(struct far_scene *scene, uint32_t node_count, bool is_nameless)
{
	far_open_on_loopback(scene, node_count, 1);
	scene->node_count = 2;
	scene->is_nameless = is_nameless;
	far_start(scene, far_sum_until_told);
	far_hear(scene, 2);
	return true;
}

/* Nothing has befallen it. @node_count: daemons. */
static void close_first(struct far_scene *scene, uint32_t node_count)
{
	far_expect_goes_on(scene);
	__atomic_store_n(&scene->shared->is_over, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < 2; i++)
		far_join_one(scene, i, 0);
	scene->node_count = node_count;
	far_close_scene(scene);
}

/* Another start of the same name on two nodes. @is_same: with the first one's name for its start,
 * or with none as well. */
static void open_second(const struct far_scene *scene, uint32_t first_node, bool is_same,
                        struct far_scene *second)
{
	far_open_beside(scene, first_node, 2, second);
	second->job = NULL;
	second->port = scene->port;
	second->timeout_ms = LONG_MS;
	second->incarnation = is_same ? 0 : 8;
}

/* Both ranks are refused. */
static void run_refused(struct far_scene *second)
{
	far_start(second, far_sum_once);
	for (uint32_t i = 0; i < 2; i++)
		far_join_one(second, i, 3);
}

Test(far_twice, on_the_same_nodes_each_rank_is_told_who_lives)
{
	for (uint32_t is_nameless = 0; is_nameless < 2; is_nameless++) {
		struct far_scene scene, second;

		if (!open_first(&scene, 2, is_nameless))
			return;
		open_second(&scene, 0, true, &second);
		for (uint32_t i = 0; i < 2; i++) {
			run_refused(&second);
			for (uint32_t rank = 0; rank < 2; rank++) {
				const char *says =
					is_nameless ? "job 'far' has 1 living ranks, such as pid"
					: rank == 0 ? "rank 0 of job 'far' is taken by the "
						      "living process"
						    : "rank 1 of job 'far' is taken by the "
						      "living process";

				far_expect_error(&second, rank, -EBUSY, says);
			}
			second.incarnation = 0;
			second.port = harness_free_port(); /* That makes no difference. */
		}
		far_close_beside(&second);
		close_first(&scene, 2);
	}
}

/* The second one's rank 0 is where the first one's rank 1 is; its own rank 1 finds the first one's
 * store, and would wait for its end. */
Test(far_twice, where_they_share_a_node_the_other_one_hears_of_it_too)
{
	struct far_scene scene, second;

	if (!open_first(&scene, 3, false))
		return;
	open_second(&scene, 1, true, &second);
	run_refused(&second);
	far_expect_error(&second, 0, -EBUSY,
	                 "job 'far' has all its 1 ranks of this node, and rank 0 is one too many");
	far_expect_error(&second, 1, -EEXIST, "the ranks of job 'far' have met here");
	far_expect_error(&second, 1, -EEXIST, "a second job of that name needs another one");
	/* At another place there is nobody to tell it. */
	second.incarnation = 0;
	second.timeout_ms = 2000;
	second.port = harness_free_port();
	run_refused(&second);
	far_expect_error(&second, 0, -EBUSY, "rank 0 is one too many");
	far_expect_error(&second, 1, -ETIMEDOUT, "the node of rank 0 was not found");
	far_close_beside(&second);
	close_first(&scene, 3);
}

Test(far_twice, elsewhere_it_needs_a_port_of_its_own_and_runs_then)
{
	struct far_scene scene, second;
	char port[32];

	if (!open_first(&scene, 4, false))
		return;
	(void)snprintf(port, sizeof(port), "%u", scene.port); /* Fits. */
	for (uint32_t is_same = 0; is_same < 2; is_same++) {
		open_second(&scene, 2, is_same, &second);
		run_refused(&second);
		far_expect_error(&second, 0, -EADDRINUSE, port);
		far_expect_error(&second, 1, -EEXIST,
		                 is_same ? "the ranks of job 'far' have met here"
		                         : "job 'far' runs as 'i1' here, with all its ranks, the "
		                           "client as 'i9'");
		far_expect_goes_on(&scene);
		do
			second.port = harness_free_port();
		while (second.port == scene.port);
		second.incarnation = is_same ? 0 : 9;
		far_run(&second, far_sum_once);
		far_close_beside(&second);
	}
	close_first(&scene, 4);
}

Test(far_twice, a_newer_start_takes_the_place_of_the_former_on_all_nodes)
{
	struct far_scene scene, second;

	for (uint32_t is_elsewhere = 0; is_elsewhere < 2; is_elsewhere++) {
		far_open_on_loopback(&scene, 2, 1);
		far_start(&scene, far_sum_until_error);
		far_hear(&scene, 2);
		open_second(&scene, 0, false, &second);
		while (is_elsewhere && second.port == scene.port)
			second.port = harness_free_port();
		far_run(&second, far_sum_once);
		for (uint32_t i = 0; i < 2; i++) {
			far_join_one(&scene, i, 0);
			far_expect_error(&scene, i, -ESTALE,
			                 "a newer incarnation 'i9' of job 'far' has taken over");
		}
		far_close_beside(&second);
		far_close_scene(&scene);
	}
}
