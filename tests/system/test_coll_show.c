/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that waits in a message is shown so by `zctl jobs JOB --collectives`, and named so
 * to whoever waits for it elsewhere; a reason for an abort that is no text is shown as one. Method:
 * ranks as processes of a real zinfd (coll.h).
 */
#include "tests/system/coll.h"

TestSuite(coll_show, .timeout = 120);

static void ask(struct coll_scene *scene, char *words, size_t bytes)
{
	const char *const question[] = { "jobs", scene->job, "--collectives", NULL };

	cr_assert_eq(harness_zctl(scene->harness.socket_path, question, words, bytes), 0, "%s",
	             words);
}

/* Rank 1 waits in a message that 0 does not come to. */
static int one_is_in_a_message(struct coll_rank *rank, bool is_send)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	int32_t words[3] = { 1, 2, 3 };
	char doing[64];

	(void)snprintf(doing, sizeof(doing), "it is in %s of group 0 (i32 x 3, %s rank 0)",
	               is_send ? "send" : "recv", is_send ? "to" : "from"); /* Fits. */
	options.timeout_ms = 200;
	if (rank->rank == 1)
		coll_must(rank, 0, coll_tell(rank));
	if (rank->rank == 0) {
		coll_must(rank, 0, coll_await(rank));
		coll_must(rank, -ETIMEDOUT, zinf_coll_barrier(rank->zinf, &options));
	} else if (is_send) {
		coll_must(rank, -ETIMEDOUT,
		          zinf_coll_send(rank->zinf, words, 3, ZINF_I32, 0, NULL));
	} else {
		coll_must(rank, -ETIMEDOUT,
		          zinf_coll_recv(rank->zinf, words, 3, ZINF_I32, 0, NULL));
	}
	coll_text(rank, "did not come within 0.2 s: it is in ");
	coll_text(rank, doing);
	coll_must(rank, 0, coll_tell(rank));
	return coll_await(rank);
}

static int one_is_in_a_send(struct coll_rank *rank)
{
	return one_is_in_a_message(rank, true);
}

static int one_is_in_a_recv(struct coll_rank *rank)
{
	return one_is_in_a_message(rank, false);
}

Test(coll_show, who_waits_in_a_message_is_shown_and_named)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct coll_scene scene;
		char words[8192], shown[64];

		coll_open_scene(&scene);
		coll_start(&scene, 2, i ? one_is_in_a_recv : one_is_in_a_send);
		(void)snprintf(shown, sizeof(shown), "rank 1 waits in %s (i32 x 3, %s rank 0)",
		               i ? "recv" : "send", i ? "from" : "to"); /* Fits. */
		coll_hear(&scene, 1);
		do
			ask(&scene, words, sizeof(words));
		while (!strstr(words, shown));
		coll_let_go(&scene, 1);
		coll_hear(&scene, 2);
		ask(&scene, words, sizeof(words));
		cr_expect_null(strstr(words, "waits in send"), "%s", words);
		cr_expect_null(strstr(words, "waits in recv"), "%s", words);
		coll_let_go(&scene, 2);
		for (uint32_t k = 0; k < 2; k++)
			coll_join_one(&scene, k, 0);
		coll_close_scene(&scene);
	}
}

/* A C1 control, and a character that was cut by whoever wrote it. */
static int one_aborts(struct coll_rank *rank)
{
	if (rank->rank == 1)
		coll_must(rank, 0,
		          zinf_coll_abort(rank->zinf, ZINF_GROUP_WORLD, "loss \xc2\x9b µ\xc3"));
	coll_must(rank, -ECONNABORTED, zinf_coll_barrier(rank->zinf, NULL));
	coll_text(rank, "aborted group 0: loss ? µ?");
	coll_must(rank, 0, coll_tell(rank));
	return coll_await(rank);
}

Test(coll_show, a_reason_that_is_no_text_is_shown_as_one)
{
	struct coll_scene scene;
	char words[8192];

	coll_open_scene(&scene);
	coll_start(&scene, 2, one_aborts);
	coll_hear(&scene, 2);
	ask(&scene, words, sizeof(words));
	system_expect_text(words, "ECONNABORTED");
	system_expect_text(words, "aborted group 0: loss ? µ?");
	cr_expect_null(strstr(words, "out of memory"), "%s", words);
	coll_let_go(&scene, 2);
	for (uint32_t i = 0; i < 2; i++)
		coll_join_one(&scene, i, 0);
	coll_close_scene(&scene);
}
