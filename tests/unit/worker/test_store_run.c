/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the store lets those in who are of its job, its run and know its token, tells both sides
 * where it does not, and forgets what goes with a client. Method: a server in a thread, clients
 * with right and wrong greetings.
 */
#include "tests/unit/worker/store_fixture.h"

static uint32_t refusal_count; /* writer: the server's thread */

static void count_refusal(const struct zi_text *text)
{
	(void)text;
	__atomic_fetch_add(&refusal_count, 1, __ATOMIC_RELEASE);
}

Test(store_run, other_jobs_runs_and_tokens_are_refused_and_told)
{
	static const struct {
		const char *job, *incarnation, *token;
		int error;
		const char *says;
	} cases[] = {
		{ "gpt", "run.0", "secret", 0, "" },
		{ "gpt", "run.0", NULL, -EACCES, "ZINF_TOKEN" },
		{ "gpt", "run.0", "secret2", -EACCES, "ZINF_TOKEN" },
		{ "other", "run.0", "secret", -EEXIST, "the store of job 'gpt', not of 'other'" },
		{ "gpt", "run.1", "secret", -ESTALE,
		  "runs as 'run.0' here, the client as 'run.1'" },
	};
	struct store_server_options options = store_options();
	struct store_client *friend = NULL;
	struct store_fixture store;
	struct zi_text text = { "" };
	char refused[ZI_TEXT_BYTES] = "";
	uint32_t bytes;

	options.token = "secret";
	options.refused = count_refusal;
	refusal_count = 0;
	store_start(&store, &options);
	for (uint32_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		_cleanup_(store_client_closep) struct store_client *client = NULL;
		struct zi_text text = { "" };

		cr_expect_eq(store_join(&store, cases[i].job, cases[i].incarnation, cases[i].token,
		                        &text, &client),
		             cases[i].error);
		cr_expect(strstr(text.chars, cases[i].says), "%s", text.chars);
		cr_expect(!strstr(text.chars, "secret"), "%s", text.chars);
	}
	/* Those who know it hear who did not, and not what they said instead. */
	cr_assert_eq(store_join(&store, "gpt", "run.0", "secret", &text, &friend), 0);
	cr_assert_eq(store_client_get(friend, STORE_REFUSED_KEY, refused, sizeof(refused) - 1,
	                              soon_ns(60000), &text, &bytes),
	             0, "%s", text.chars);
	cr_expect(strstr(refused, "test at 127.0.0.1 was refused: "), "%s", refused);
	cr_expect(!strstr(refused, "secret"), "%s", refused);
	cr_expect_eq(__atomic_load_n(&refusal_count, __ATOMIC_ACQUIRE), 2);
	store_client_close(friend);
	store_stop(&store);
}

static int join_run(const struct store_fixture *store, uint32_t run, struct zi_text *text,
                    struct store_client **ret_client)
{
	return store_client_open(
		&(struct store_client_options){ .host = "127.0.0.1",
	                                        .port = store_server_port(store->server),
	                                        .job = "gpt",
	                                        .incarnation = "run.0",
	                                        .run = run,
	                                        .name = "test" },
		zi_clock_deadline_ns(STORE_TEST_NS), text, ret_client);
}

Test(store_run, once_all_have_met_only_those_who_know_the_run_are_let_in)
{
	struct store_server_options options = store_options();
	struct store_client *first, *other = NULL;
	struct store_fixture store;
	struct zi_text text;
	uint32_t run;

	store_start(&store, &options);
	first = store_client_of(&store);
	run = store_client_run(first);
	cr_expect_neq(run, 0);
	cr_expect_eq(join_run(&store, run, &text, &other), 0);
	cr_expect_eq(store_client_run(other), run);
	other = store_client_close(other);
	cr_expect_eq(join_run(&store, run + 1 ? run + 1 : 1, &text, &other), -ESTALE);
	cr_expect(strstr(text.chars, "job 'gpt' was started again"), "%s", text.chars);
	other = store_client_close(store_client_of(&store)); /* Not yet. */
	cr_assert_eq(store_client_set(first, STORE_MET_KEY, NULL, 0, soon_ns(60000), NULL), 0);
	cr_expect_eq(join_run(&store, 0, &text, &other), -EEXIST);
	cr_expect(strstr(text.chars, "the ranks of job 'gpt' have met here (port "), "%s",
	          text.chars);
	cr_expect_eq(join_run(&store, run, &text, &other), 0);
	store_client_close(other);
	store_client_close(first);
	store_stop(&store);
}

/* A run that all have met in and that is whole goes on: to wait for its end would be in vain. As
 * soon as one of its claims is given back it is about to end. */
Test(store_run, a_run_that_goes_on_is_told_from_one_that_ends)
{
	struct store_server_options options = store_options();
	struct store_client *first, *second, *stranger = NULL;
	uint64_t deadline_ns = soon_ns(60000);
	struct store_fixture store;
	struct zi_text text;
	bool is_present;
	int r;

	store_start(&store, &options);
	first = store_client_of(&store);
	second = store_client_of(&store);
	cr_expect_eq(store_client_claim(first, "rank/0", "", 0, deadline_ns, NULL, &is_present), 0);
	cr_expect_eq(store_client_claim(second, "rank/1", "", 0, deadline_ns, NULL, &is_present),
	             0);
	cr_expect_eq(store_join(&store, "gpt", "run.1", NULL, &text, &stranger), -ESTALE);
	cr_assert_eq(store_client_set(first, STORE_MET_KEY, NULL, 0, deadline_ns, NULL), 0);
	cr_expect_eq(store_join(&store, "gpt", "run.1", NULL, &text, &stranger), -EEXIST);
	cr_expect(strstr(text.chars, "runs as 'run.0' here, with all its ranks, the client as"),
	          "%s", text.chars);
	cr_expect_eq(join_run(&store, 0, &text, &stranger), -EEXIST);
	cr_expect(strstr(text.chars, ", and none has left: a second job"), "%s", text.chars);
	store_client_close(second);
	do
		r = join_run(&store, 0, &text, &stranger); /* The server may see it later. */
	while (r == -EEXIST && zi_clock_now_ns() < deadline_ns);
	cr_expect_eq(r, -ESTALE);
	cr_expect_eq(store_join(&store, "gpt", "run.1", NULL, &text, &stranger), -ESTALE);
	cr_expect(!strstr(text.chars, "with all its ranks"), "%s", text.chars);
	store_client_close(first);
	store_stop(&store);
}

/* Its ranks may wait long for what does not come any more. Of a smaller group it says nothing. */
Test(store_run, a_run_whose_group_of_all_has_broken_goes_on_no_more)
{
	struct store_server_options options = store_options();
	struct store_client *first, *stranger = NULL;
	uint64_t deadline_ns = soon_ns(60000);
	struct store_fixture store;
	struct zi_text text;

	store_start(&store, &options);
	first = store_client_of(&store);
	cr_assert_eq(store_client_set(first, STORE_MET_KEY, NULL, 0, deadline_ns, NULL), 0);
	cr_assert_eq(store_client_set(first, "2/abort", NULL, 0, deadline_ns, NULL), 0);
	cr_expect_eq(join_run(&store, 0, &text, &stranger), -EEXIST);
	cr_assert_eq(store_client_set(first, STORE_ENDED_KEY, NULL, 0, deadline_ns, NULL), 0);
	cr_expect_eq(join_run(&store, 0, &text, &stranger), -ESTALE);
	cr_expect_eq(store_join(&store, "gpt", "run.1", NULL, &text, &stranger), -ESTALE);
	cr_expect(!strstr(text.chars, "with all its ranks"), "%s", text.chars);
	store_client_close(first);
	store_stop(&store);
}

/* Its end may come a moment later than ours: the key is there until the server has seen it. */
Test(store_run, what_a_client_claims_goes_with_it)
{
	struct store_server_options options = store_options();
	struct store_client *owner, *other;
	struct store_fixture store;
	bool is_present = true;
	char got[8];
	uint32_t bytes;
	uint64_t deadline_ns = soon_ns(60000);

	store_start(&store, &options);
	owner = store_client_of(&store);
	other = store_client_of(&store);
	cr_expect_eq(store_client_claim(owner, "rank/1", "a", 1, soon_ns(60000), NULL, &is_present),
	             0);
	cr_expect(!is_present);
	cr_expect_eq(store_client_claim(owner, "rank/2", "a", 1, soon_ns(60000), NULL, &is_present),
	             0);
	/* Set anew it is nobody's; what is claimed cannot be claimed again. */
	cr_expect_eq(store_client_set(other, "rank/2", "b", 1, soon_ns(60000), NULL), 0);
	cr_expect_eq(store_client_claim(other, "rank/1", "b", 1, soon_ns(60000), NULL, &is_present),
	             0);
	cr_expect(is_present);
	store_client_close(owner);
	while (is_present && zi_clock_now_ns() < deadline_ns)
		cr_assert_eq(
			store_client_claim(other, "rank/1", "b", 1, deadline_ns, NULL, &is_present),
			0);
	cr_expect(!is_present);
	cr_expect_eq(
		store_client_get(other, "rank/2", got, sizeof(got), soon_ns(60000), NULL, &bytes),
		0);
	store_client_close(other);
	store_stop(&store);
}

Test(store_run, a_prefix_is_forgotten)
{
	struct store_server_options options = store_options();
	struct store_client *client;
	struct store_fixture store;
	char got[8];
	uint32_t bytes;

	store_start(&store, &options);
	client = store_client_of(&store);
	cr_expect_eq(store_client_set(client, "1/a", "x", 1, soon_ns(60000), NULL), 0);
	cr_expect_eq(store_client_set(client, "1/b", "x", 1, soon_ns(60000), NULL), 0);
	cr_expect_eq(store_client_set(client, "11/a", "x", 1, soon_ns(60000), NULL), 0);
	cr_expect_eq(store_client_forget(client, "1/", soon_ns(60000), NULL), 0);
	cr_expect_eq(store_client_forget(client, "none/", soon_ns(60000), NULL), 0);
	cr_expect_eq(
		store_client_get(client, "1/a", got, sizeof(got), soon_ns(60000), NULL, &bytes),
		-ENOENT);
	cr_expect_eq(
		store_client_get(client, "1/b", got, sizeof(got), soon_ns(60000), NULL, &bytes),
		-ENOENT);
	cr_expect_eq(
		store_client_get(client, "11/a", got, sizeof(got), soon_ns(60000), NULL, &bytes),
		0);
	store_client_close(client);
	store_stop(&store);
}

/* Nobody meets there any more: whoever wants the place has it in a moment. */
Test(store_run, a_store_where_nodes_failed_to_meet_is_waited_out_by_other_jobs)
{
	struct store_server_options options = store_options();
	struct store_client *first, *stranger = NULL;
	struct store_fixture store;
	struct zi_text text;

	store_start(&store, &options);
	first = store_client_of(&store);
	cr_expect_eq(store_join(&store, "other", "run.0", NULL, &text, &stranger), -EEXIST);
	cr_assert_eq(store_client_set(first, STORE_ENDED_KEY, NULL, 0, soon_ns(60000), NULL), 0);
	cr_expect_eq(store_join(&store, "other", "run.0", NULL, &text, &stranger), -ESTALE);
	/* Its own nodes are to hear why. */
	cr_assert_eq(store_join(&store, "gpt", "run.0", NULL, &text, &stranger), 0);
	store_client_close(stranger);
	store_client_close(first);
	store_stop(&store);
}
