/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: where all ranks of a node stay away from a call of a group that spans nodes, each of the
 * others is told who they are, where, and what they do instead. Method: two or three daemons on the
 * loopback interface; those who stay away do this and that, and stay in it until it is over.
 */
#include "tests/system/far.h"

TestSuite(far_absent, .timeout = 240);

#define SHORT_MS 2000u
/* Beyond the deadline of a rank whose node hears of it from another one; not a measurement. */
#define LATE_MS 6000u

/* ---- bodies ---- */

/* The group's call from which others stay away: the text is the report. */
static int call_in_vain(struct far_rank *rank, zinf_group group)
{
	struct zinf_coll_options hasty = ZINF_COLL_OPTIONS_INIT;
	uint64_t begin_ns = zi_clock_now_ns();
	float value = 1;
	int r;

	hasty.timeout_ms = SHORT_MS;
	hasty.group = group;
	r = zinf_coll_all_reduce(rank->zinf, &value, &value, 1, ZINF_F32, ZINF_MAX, &hasty);
	rank->scene->shared->reports[rank->rank].took_ms =
		(zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
	(void)far_note(rank, r);
	return 0;
}

static bool is_away(const struct far_rank *rank)
{
	return rank->rank / rank->scene->per_node == 1;
}

enum { AWAY = 1, OVER }; /* who stays away does what it does; the others have been told */

/* Who stays away does nothing until the others have been told; its own call then fails alike. */
static int nothing_at_all(struct far_rank *rank)
{
	far_await(rank, is_away(rank) ? OVER : AWAY);
	if (!is_away(rank))
		return call_in_vain(rank, ZINF_GROUP_WORLD);
	return far_note(rank, zinf_coll_barrier(rank->zinf, NULL)) == -ETIMEDOUT ? 0 : 2;
}

static int one_call_less(struct far_rank *rank)
{
	if (zinf_coll_barrier(rank->zinf, NULL))
		return far_fail(rank, -1, 1);
	return nothing_at_all(rank);
}

/* Ranks 1 to 3 are another group, whose call rank 1 does not make: it is in that of all ranks. */
static int another_groups_call(struct far_rank *rank)
{
	static const uint32_t members[] = { 1, 2, 3 };
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	int r;

	if (zinf_coll_group(rank->zinf, members, 3, NULL, &options.group))
		return far_fail(rank, -1, 1);
	if (!is_away(rank)) {
		far_await(rank, AWAY);
		return call_in_vain(rank, ZINF_GROUP_WORLD);
	}
	r = zinf_coll_barrier(rank->zinf, &options);
	if (r != -EPIPE) /* Rank 1 was told, and left. */
		return far_fail(rank, r, 3);
	return nothing_at_all(rank);
}

/* Each takes what the other rank of its node does not send. */
static int messages_of_the_group(struct far_rank *rank)
{
	float value;

	if (!is_away(rank))
		return nothing_at_all(rank);
	return far_note(rank, zinf_coll_recv(rank->zinf, &value, 1, ZINF_F32, rank->rank ^ 1,
	                                     NULL)) == -ETIMEDOUT
	               ? 0
	               : 2;
}

/* ---- what is told ---- */

/* The ranks of node 1 may not have attached yet. They stay until OVER. */
static void await_shown(const struct far_scene *scene, const char *shown)
{
	const char *const question[] = { "jobs", "far", "--collectives", NULL };
	char words[8192];
	int r;

	do {
		r = harness_zctl(scene->harness[1].socket_path, question, words, sizeof(words));
		cr_assert(!r || strstr(words, "no job 'far'"), "%s", words);
	} while (r || !strstr(words, shown));
}

static void expect_told(const struct far_scene *scene, uint32_t rank, const char *words)
{
	far_join_one((struct far_scene *)scene, rank, 0);
	far_expect_error(scene, rank, -ETIMEDOUT, words);
	cr_expect_lt(scene->shared->reports[rank].took_ms, SHORT_MS + LATE_MS);
}

/*
 * Node 1 stays away from the others' call, and is in what zctl shows as @shown; ranks 2 and 3 do
 * @first and @second. Its daemon has 0.3 s to say so. A busy machine misses these, and the error
 * then names the ranks alone. Return: whether all were told what the two ranks do.
 */
static bool is_named(struct far_scene *scene, far_body_fn body, const char *const *shown,
                     const char *first, const char *second)
{
	char words[256];
	bool is_told = true;

	far_start(scene, body);
	for (; *shown; shown++)
		await_shown(scene, *shown);
	far_raise(scene, AWAY);
	(void)snprintf(words, sizeof(words),
	               "(f32 x 1, max): rank 2 (pid %d) did not come within 2 s: %s; rank 3 (pid "
	               "%d) did not come: %s",
	               scene->pids[2], first, scene->pids[3], second); /* Fits. */
	for (uint32_t i = 0; i < far_world(scene); i++) {
		if (i / scene->per_node == 1)
			continue;
		expect_told(scene, i, "rank");
		is_told = is_told && strstr(scene->shared->reports[i].text, words) &&
		          strstr(scene->shared->reports[i].text, " (on node 1, ");
	}
	far_raise(scene, OVER);
	for (uint32_t i = 0; i < scene->per_node; i++) {
		expect_told(scene, scene->per_node + i, "rank");
		is_told =
			is_told && strstr(scene->shared->reports[scene->per_node + i].text, words);
	}
	return is_told;
}

/* One time of several is in time on any machine that still works. Then they begin anew. */
static void expect_named(struct far_scene *scene, far_body_fn body, const char *const *shown,
                         const char *first, const char *second)
{
	for (uint32_t i = 0; !is_named(scene, body, shown, first, second); i++)
		cr_assert_lt(i, 5, "not named in %u times, but: %s", i + 1,
		             scene->shared->reports[0].text);
	far_run(scene, far_sum_once);
}

static const char *const nothing_shown[] = { NULL };

static void stay_away(uint32_t node_count)
{
	static const char *const messages[] = { "rank 2 waits in recv", "rank 3 waits in recv",
		                                NULL };
	struct far_scene scene;

	far_open_on_loopback(&scene, node_count, 2);
	expect_named(&scene, nothing_at_all, nothing_shown, "it has made no call there",
	             "likewise");
	expect_named(&scene, one_call_less, nothing_shown,
	             "its last call there is barrier #1 of group 0", "likewise");
	expect_named(&scene, messages_of_the_group, messages,
	             "it is in recv of group 0 (f32 x 1, from rank 3)",
	             "it is in recv of group 0 (f32 x 1, from rank 2)");
	far_close_scene(&scene);
}

Test(far_absent, what_one_of_two_nodes_does_instead_is_told_on_both)
{
	stay_away(2);
}

Test(far_absent, what_one_of_three_nodes_does_instead_is_told_on_all)
{
	stay_away(3);
}

Test(far_absent, who_is_in_another_groups_call_is_told_with_that)
{
	static const char *const shown[] = { "barrier", NULL };
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 2);
	expect_named(&scene, another_groups_call, shown,
	             "it is in barrier #1 of group 1, which waits for ranks of other nodes",
	             "likewise");
	far_close_scene(&scene);
}

/* Nobody of nodes 1 and 2 comes: one of them is told with what it does, the other with its ranks.
 */
static int first_node_alone(struct far_rank *rank)
{
	if (rank->rank / rank->scene->per_node == 0)
		return call_in_vain(rank, ZINF_GROUP_WORLD);
	far_await(rank, OVER);
	return far_note(rank, zinf_coll_barrier(rank->zinf, NULL)) == -ETIMEDOUT ? 0 : 2;
}

/* Return: whether all were told what a rank does, and whose nodes said nothing. */
static bool are_both_named(struct far_scene *scene)
{
	static const char *const words = "did not come within 2 s: it has made no call there";
	bool is_told = true;

	far_start(scene, first_node_alone);
	for (uint32_t i = 0; i < far_world(scene); i++) {
		const char *told = scene->shared->reports[i].text;

		if (i == scene->per_node)
			far_raise(scene, OVER);
		expect_told(scene, i, "did not come within 2 s");
		is_told = is_told && strstr(told, words);
		is_told = is_told &&
		          (i >= scene->per_node ||
		           strstr(told, "; nothing came from ranks 4, 5 either (on node 1, ") ||
		           strstr(told, "; nothing came from ranks 2, 3 either (on node 2, "));
	}
	return is_told;
}

Test(far_absent, of_two_nodes_that_stay_away_both_are_named)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 2);
	for (uint32_t i = 0; !are_both_named(&scene); i++)
		cr_assert_lt(i, 5, "not named in %u times, but: %s", i + 1,
		             scene.shared->reports[0].text);
	far_close_scene(&scene);
}
