/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever a peer writes on the board, nobody waits or works past its own time for it.
 * Method: the board of member 1 is written by the test, with words that promise steps and pieces
 * without end, or take back a call that was waited for.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "libclient/coll/node/node.h"
#include "tests/unit/node/world.h"

#define RANKS   2u
#define TIME_NS (20 * ZI_NS_PER_MS)

static struct world world;
static struct rank ranks[RANKS];

static void start(void)
{
	world_open(&world, ranks, RANKS, 1);
}

static void stop(void)
{
	world_close(&world, ranks);
}

/* Without an end of its own each of them takes minutes, or for ever. */
TestSuite(wild, .init = start, .fini = stop, .timeout = 30);

/* Member 1 has come, but its word says no more that it has. */
Test(wild, who_leaves_waits_no_longer_than_its_calls_would_have)
{
	const struct zi_node_call call = { .operation = ZI_COLL_BROADCAST,
		                           .dtype = ZI_DTYPE_I32,
		                           .element_count = 1,
		                           .source = ranks[0].outside[0],
		                           .timeout_ns = TIME_NS };
	uint64_t begin_ns = zi_clock_now_ns();

	cr_assert_eq(zi_node_call(&ranks[0].group, &call, &ranks[0].text), 0, "it is ahead");
	world.board[1].posts[1].sequence = 0;
	zi_node_settle(&ranks[0].group, begin_ns);
	cr_assert_geq(zi_clock_now_ns(), begin_ns + TIME_NS);
	/* Once more: the time of both, from when it began. */
	zi_node_settle(&ranks[0].group, begin_ns);
}

/* Only the calls that were not looked at count: of two the longer. */
Test(wild, what_all_have_come_to_is_waited_for_no_more)
{
	struct zi_node_call call = { .operation = ZI_COLL_BROADCAST,
		                     .dtype = ZI_DTYPE_I32,
		                     .element_count = 1,
		                     .source = ranks[0].outside[0],
		                     .timeout_ns = 1000 * ZI_NS_PER_S };
	struct zi_board_post *posts = world.board[1].posts;

	cr_assert_eq(zi_node_call(&ranks[0].group, &call, &ranks[0].text), 0);
	cr_assert_eq(ranks[0].group.unseen_timeout_ns, 1000 * ZI_NS_PER_S);
	posts[1].call = world.board[0].posts[1].call;
	posts[1].sequence = 1;
	zi_node_settle(&ranks[0].group, zi_clock_now_ns());
	cr_assert_eq(ranks[0].group.seen, 1);
	for (uint32_t i = 0; i < 2; i++) {
		call.timeout_ns = i ? TIME_NS / 2 : TIME_NS;
		cr_assert_eq(zi_node_call(&ranks[0].group, &call, &ranks[0].text), 0);
		cr_assert_eq(ranks[0].group.unseen_timeout_ns, TIME_NS);
	}
}

static void *leave(void *arg)
{
	struct rank *rank = arg;

	zi_node_settle(&rank->group, zi_clock_now_ns());
	return NULL;
}

/* Both were ahead in call 1, whose posts their peer has taken back: they have time to leave, and do
 * not need it, for each says again what it posted. */
Test(wild, who_was_ahead_of_each_other_leave_although_their_posts_are_written_over)
{
	struct rank others[RANKS];
	struct world alone;

	world_open(&alone, others, RANKS, 1);
	for (uint32_t i = 0; i < RANKS; i++) {
		/* Each is ahead, as the root of its own call: the mismatch nobody asks for. */
		const struct zi_node_call call = { .operation = ZI_COLL_BROADCAST,
			                           .dtype = ZI_DTYPE_I32,
			                           .element_count = 1,
			                           .root = i,
			                           .source = others[i].outside[0],
			                           .timeout_ns = 300 * ZI_NS_PER_S };

		cr_assert_eq(zi_node_call(&others[i].group, &call, &others[i].text), 0);
	}
	for (uint32_t i = 0; i < RANKS; i++)
		alone.board[i].posts[1].sequence = 0;
	world_run(others, leave);
	for (uint32_t i = 0; i < RANKS; i++)
		cr_expect_eq(others[i].group.seen, 1, "rank %u waited until its time was over", i);
	world_close(&alone, others);
}

/* Member 1 says that it keeps a block for itself that has 2^32 pieces, and that it has made half of
 * the steps. */
Test(wild, steps_without_end_are_not_made)
{
	const uint64_t counts[RANKS] = { 0, 0 };
	const uint64_t wild = 2048ull * (UINT32_MAX - 2);
	const uint64_t said[2 * RANKS] = { 0, wild, 0, wild };
	struct zi_board_member *peer = &world.board[1];
	const struct zi_node_call call = { .operation = ZI_COLL_ALL_TO_ALLV,
		                           .dtype = ZI_DTYPE_I32,
		                           .source = ranks[0].outside[0],
		                           .target = ranks[0].outside[1],
		                           .source_counts = counts,
		                           .target_counts = counts,
		                           .timeout_ns = TIME_NS };

	peer->posts[1] = (struct zi_board_post){ .sequence = 1,
		                                 .payload_bytes = sizeof(said),
		                                 .call = { .operation = ZI_COLL_ALL_TO_ALLV,
		                                           .dtype = ZI_DTYPE_I32,
		                                           .source = ZI_BOARD_NOWHERE,
		                                           .target = ZI_BOARD_NOWHERE },
		                                 .staging = WORLD_ARENA_BYTES };
	memcpy(peer->inlined[1], said, sizeof(said));
	peer->step.value = INT32_MAX;
	cr_assert_eq(zi_node_call(&ranks[0].group, &call, &ranks[0].text), -ETIMEDOUT, "%s",
	             ranks[0].text.chars);
	cr_assert_gt(ranks[0].group.run.step, 16, "%s", "they were counted on");
}

/* Member 1 says that what it sends comes byte by byte. */
Test(wild, letters_have_the_size_that_all_know)
{
	struct zi_node_p2p take = { .dtype = ZI_DTYPE_U8,
		                    .peer = 1,
		                    .element_count = 1000,
		                    .buffer = ranks[0].outside[0] };
	struct zi_board_send *send = &world.board[1].sends[0];

	*send = (struct zi_board_send){ .sequence = 1,
		                        .filled = 1000,
		                        .element_count = 1000,
		                        .source = ZI_BOARD_NOWHERE,
		                        .staging = WORLD_ARENA_BYTES,
		                        .piece_bytes = 1,
		                        .dtype = ZI_DTYPE_U8 };
	cr_assert_eq(zi_node_batch(&ranks[0].group, &take, 1, ZI_DEADLINE_NEVER, &ranks[0].text),
	             -EPROTO);
	cr_assert(strstr(ranks[0].text.chars, "makes no sense"), "%s", ranks[0].text.chars);
}
