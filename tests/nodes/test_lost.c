/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job of which a node was lost without a word, by power or by a cable, is not taken for one
 * that goes on: who starts it again is let wait for its end, not refused. And a cable that was out
 * for a while costs nobody his connection. Method: the store in one network namespace, one who
 * claims a rank in another, whose cable is taken out and put in again.
 */
#include "tests/harness/network.h"
#include "tests/unit/worker/store_fixture.h"

TestSuite(lost, .timeout = 240);

struct lost {
	struct network network;
	struct store_fixture store;
	struct store_client *first, *far; /* where the store is, and beyond the cable */
};

static struct store_client_options client_options(const struct lost *lost, const char *incarnation)
{
	return (struct store_client_options){ .host = "10.99.0.1",
		                              .port = store_server_port(lost->store.server),
		                              .job = "gpt",
		                              .incarnation = incarnation,
		                              .name = "test" };
}

static struct store_client *open_on(const struct lost *lost, uint32_t node)
{
	struct store_client_options options = client_options(lost, "run.0");
	struct store_client *client = NULL;
	struct zi_text text = { "" };

	network_enter(lost->network.nodes[node]);
	cr_assert_eq(store_client_open(&options, soon_ns(60000), &text, &client), 0, "%s",
	             text.chars);
	network_enter(lost->network.home);
	return client;
}

static void claim(struct store_client *client, const char *key)
{
	bool is_present;

	cr_assert_eq(store_client_claim(client, key, "", 0, soon_ns(60000), NULL, &is_present), 0);
	cr_assert_not(is_present);
}

static bool lost_init(struct lost *lost)
{
	struct store_server_options options = store_options();
	const char *missing = network_missing();

	if (missing) {
		cr_skip_test("%s", missing);
		return false;
	}
	cr_assert_eq(network_init(&lost->network, 2), 0);
	options.host = "10.99.0.1";
	network_enter(lost->network.nodes[0]);
	store_start(&lost->store, &options);
	network_enter(lost->network.home);
	lost->first = open_on(lost, 0);
	lost->far = open_on(lost, 1);
	claim(lost->first, "rank/0");
	claim(lost->far, "rank/1");
	cr_assert_eq(store_client_set(lost->first, STORE_MET_KEY, NULL, 0, soon_ns(60000), NULL),
	             0);
	return true;
}

static void lost_deinit(struct lost *lost)
{
	store_client_close(lost->far);
	store_client_close(lost->first);
	store_stop(&lost->store);
	network_deinit(&lost->network);
}

/* What a newer start on the store's node is told, asked again until it is @error. */
static void expect_told(const struct lost *lost, int error)
{
	struct store_client_options options = client_options(lost, "run.1");
	uint64_t deadline_ns = soon_ns(60000);
	struct store_client *client = NULL;
	struct zi_text text = { "" };
	int r;

	network_enter(lost->network.nodes[0]);
	do {
		(void)poll(NULL, 0, 20); /* Beside others; what is awaited says when. */
		r = store_client_open(&options, soon_ns(60000), &text, &client);
	} while (r != error && zi_clock_now_ns() < deadline_ns);
	network_enter(lost->network.home);
	cr_assert_eq(r, error, "%d: %s", r, text.chars);
}

static void plug(const struct lost *lost, bool is_in)
{
	cr_assert_eq(network_plug(&lost->network, 1, is_in), 0);
}

Test(lost, a_cable_that_is_out_is_noticed_and_ends_nothing)
{
	struct lost lost;
	bool is_present = false;

	if (!lost_init(&lost))
		return;
	expect_told(&lost, -EEXIST);
	plug(&lost, false);
	expect_told(&lost, -ESTALE);
	plug(&lost, true);
	expect_told(&lost, -EEXIST);
	cr_expect_eq(
		store_client_claim(lost.far, "rank/1", "", 0, soon_ns(60000), NULL, &is_present),
		0);
	cr_expect(is_present);
	lost_deinit(&lost);
}

/* Its reset finds no way; the next question to it brings another one. */
Test(lost, who_goes_while_its_cable_is_out_is_missed_when_it_is_in_again)
{
	struct lost lost;
	bool is_present = true;
	uint64_t deadline_ns = soon_ns(60000);

	if (!lost_init(&lost))
		return;
	plug(&lost, false);
	lost.far = store_client_close(lost.far);
	plug(&lost, true);
	while (is_present && zi_clock_now_ns() < deadline_ns) {
		(void)poll(NULL, 0, 20); /* As above. */
		cr_assert_eq(store_client_claim(lost.first, "rank/1", "", 0, soon_ns(60000), NULL,
		                                &is_present),
		             0);
	}
	cr_expect_not(is_present);
	expect_told(&lost, -ESTALE);
	lost_deinit(&lost);
}
