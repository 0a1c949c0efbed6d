/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: `zctl jobs JOB --collectives` shows which rank of its node waits in which message to or
 * from a rank elsewhere, and no more once it is over. Method: two daemons on the loopback interface
 * with a rank each.
 */
#include "tests/system/far.h"

TestSuite(far_show, .timeout = 120);

/* Rank 0 sends what rank 1 takes when the test says so; then both wait for the test again. */
static int send_one(struct far_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	zinf_ticket ticket;
	int32_t words[3] = { 1, 2, 3 };
	int r;

	options.ret_ticket = &ticket;
	if (rank->rank == 0) {
		r = zinf_coll_send(rank->zinf, words, 3, ZINF_I32, 1, &options);
		far_tell(rank);
		if (!r)
			r = zinf_wait(rank->zinf, ticket, NULL);
	} else {
		far_await(rank, 1);
		r = zinf_coll_recv(rank->zinf, words, 3, ZINF_I32, 0, NULL);
	}
	if (!r)
		r = zinf_coll_barrier(rank->zinf, NULL);
	far_tell(rank);
	far_await(rank, 2);
	return r ? far_fail(rank, r, 1) : 0;
}

static void ask(const struct far_scene *scene, char *words, size_t bytes)
{
	const char *const question[] = { "jobs", "far", "--collectives", NULL };

	cr_assert_eq(harness_zctl(scene->harness[0].socket_path, question, words, bytes), 0, "%s",
	             words);
}

Test(far_show, a_message_to_another_node_is_shown_while_it_is_waited_for)
{
	static const char shown[] = "group 0: rank 0 waits in send (i32 x 3, to rank 1)";
	struct far_scene scene;
	char words[8192];

	far_open_on_loopback(&scene, 2, 1);
	far_start(&scene, send_one);
	far_hear(&scene, 1);
	do /* the ticket's thread may be about to post it */
		ask(&scene, words, sizeof(words));
	while (!strstr(words, shown));
	far_raise(&scene, 1);
	far_hear(&scene, 2);
	ask(&scene, words, sizeof(words));
	cr_expect_null(strstr(words, "waits in"), "%s", words);
	far_raise(&scene, 2);
	for (uint32_t i = 0; i < 2; i++)
		far_join_one(&scene, i, 0);
	far_close_scene(&scene);
}
