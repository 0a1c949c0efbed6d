/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: over a slow link what daemons say to each other does not wait behind all that is pulled,
 * and over one that is cut the talk ends on both sides as soon as their daemons give it up. Method:
 * a worker in each of two network namespaces (network.h), a link of 100 Mbit/s, a cable that is
 * taken out; the test is both daemons.
 */
#include "tests/harness/network.h"
#include "tests/unit/worker/talk_fixture.h"

#define LARGE_COUNT 6u
#define LARGE_BYTES (4u << 20)  /* all of them: 2 s */
#define SMALL       LARGE_COUNT /* its tag */
#define MBIT_PER_S  100u
/* As in test_nodes.c: the blame, and a crowded machine. */
#define LATE_MS 8000u

TestSuite(talk, .timeout = 240);

struct talk {
	struct network network;
	struct net_test test;
};

/* What node @index's daemon heard, and how many of it. */
static uint64_t heard[2][_TALK_KIND_COUNT];
static uint64_t came_before_because; /* of the large ones */

static void say(struct net_node *node, struct talk_entry entry)
{
	send_one(node, !index_of(node), entry);
}

/* Node 0 asks when the small one has come, amid the large ones; node 1 answers. */
static void talked(void *arg, const struct talk_entry *entries, uint32_t count)
{
	struct net_node *node = arg;
	uint64_t *counts = heard[index_of(node)];

	for (uint32_t i = 0; i < count; i++) {
		struct talk_entry entry = entries[i];

		counts[entry.kind]++;
		if (entry.kind == TALK_PULL) {
			entry.kind = TALK_SERVE;
			entry.slab = NET_SLAB_TALK;
			entry.offset_bytes = entry.tag * LARGE_BYTES;
			say(node, entry);
		} else if (entry.kind == TALK_CAME && entry.tag == SMALL) {
			say(node, (struct talk_entry){ .kind = TALK_WHY });
		} else if (entry.kind == TALK_WHY) {
			say(node, (struct talk_entry){ .kind = TALK_BECAUSE });
		} else if (entry.kind == TALK_BECAUSE) {
			came_before_because = counts[TALK_CAME] - 1;
		}
	}
	zi_loop_stop(node->test->loop);
}

static void begin(struct talk *talk)
{
	memset(heard, 0, sizeof(heard));
	talk_all(&talk->test);
}

static bool open_link(struct talk *talk)
{
	const char *missing = network_missing();

	*talk = (struct talk){ .test = { .host = "10.99.0.1", .talked = talked } };
	if (!net_test_is_built(&talk->test))
		missing = "zinf-net is not built (libgloo-dev)";
	if (missing) {
		cr_skip_test("%s", missing);
		return false;
	}
	cr_assert_eq(network_init(&talk->network, 2), 0);
	talk->test.home = talk->network.home;
	for (uint32_t i = 0; i < 2; i++)
		talk->test.namespaces[i] = talk->network.nodes[i];
	net_test_init(&talk->test, 2);
	begin(talk);
	return true;
}

static void pull_all(struct talk *talk)
{
	for (uint32_t i = 0; i < LARGE_COUNT; i++) {
		memset(talk->test.nodes[1].slab + i * LARGE_BYTES, (int)i + 1, LARGE_BYTES);
		say(&talk->test.nodes[0], (struct talk_entry){ .kind = TALK_PULL,
		                                               .tag = i,
		                                               .slab = NET_SLAB_TALK,
		                                               .offset_bytes = i * LARGE_BYTES,
		                                               .bytes = LARGE_BYTES });
	}
	say(&talk->test.nodes[0], (struct talk_entry){ .kind = TALK_PULL,
	                                               .tag = SMALL,
	                                               .slab = NET_SLAB_TALK,
	                                               .offset_bytes = SMALL * LARGE_BYTES,
	                                               .bytes = 1 });
}

/* Both daemons give it up; the other's word may not come. */
static void end(struct talk *talk)
{
	uint64_t started_ns = zi_clock_now_ns();
	uint64_t took_ms;

	for (uint32_t i = 0; i < 2; i++)
		net_worker_abort(talk->test.nodes[i].worker, -ETIMEDOUT,
		                 &(struct zi_text){ "node 1 says nothing" });
	await_over(&talk->test);
	took_ms = (zi_clock_now_ns() - started_ns) / ZI_NS_PER_MS;
	cr_expect_lt(took_ms, LATE_MS, "%lu ms", took_ms);
	for (uint32_t i = 0; i < 2; i++) {
		const struct net_request *request = &talk->test.nodes[i].request;

		cr_expect_eq(request->error, -ETIMEDOUT, "node %u: %d", i, request->error);
		cr_expect(strstr(request->text.chars, "node 1 says nothing"), "node %u: %s", i,
		          request->text.chars);
	}
}

static void close_link(struct talk *talk)
{
	net_test_deinit(&talk->test);
	network_deinit(&talk->network);
}

Test(talk, a_question_and_its_answer_do_not_wait_behind_all_that_is_pulled)
{
	struct talk talk;

	if (!open_link(&talk))
		return;
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(network_limit(&talk.network, i, MBIT_PER_S), 0);
	pull_all(&talk);
	run_until(&talk.test, &heard[0][TALK_BECAUSE], 1);
	cr_expect_eq(came_before_because, 0);
	run_until(&talk.test, &heard[0][TALK_CAME], LARGE_COUNT + 1);
	run_until(&talk.test, &heard[1][TALK_GONE], LARGE_COUNT + 1);
	cr_expect_eq(
		memcmp(talk.test.nodes[0].slab, talk.test.nodes[1].slab, LARGE_COUNT * LARGE_BYTES),
		0);
	end(&talk);
	close_link(&talk);
}

Test(talk, over_a_cut_link_it_ends_when_the_daemons_say_so_and_can_begin_anew)
{
	struct talk talk;

	if (!open_link(&talk))
		return;
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(network_limit(&talk.network, i, MBIT_PER_S), 0);
	pull_all(&talk);
	run_until(&talk.test, &heard[0][TALK_CAME], 1);
	cr_assert_eq(network_plug(&talk.network, 1, false), 0);
	end(&talk);
	cr_assert_eq(network_plug(&talk.network, 1, true), 0);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(network_limit(&talk.network, i, 0), 0);
	begin(&talk);
	pull_all(&talk);
	run_until(&talk.test, &heard[0][TALK_CAME], LARGE_COUNT + 1);
	end(&talk);
	close_link(&talk);
}
