/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a peer of a later version calls, of which this one knows not even the name, is told by
 * its number and the member's, and the group stands. Method: the board of member 1 is written by
 * the test, with a dtype, an operation and a reduction that there are not yet.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "libclient/coll/node/node.h"
#include "tests/unit/node/world.h"

#define RANKS 2u

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

TestSuite(unknown, .init = start, .fini = stop, .timeout = 60);

/* Member 0 sums 8 floats, member 1 seems to have posted @said as the first call. */
static int sum_beside(const struct zi_board_call *said)
{
	const struct zi_node_call call = { .operation = ZI_COLL_ALL_REDUCE,
		                           .dtype = ZI_DTYPE_F32,
		                           .reduce_op = ZI_REDUCE_SUM,
		                           .element_count = 8,
		                           .source = ranks[0].outside[0],
		                           .target = ranks[0].outside[1],
		                           .deadline_ns = ZI_DEADLINE_NEVER };
	struct zi_board_post *post = &world.board[1].posts[1];

	post->call = *said;
	post->sequence = 1;
	return zi_node_call(&ranks[0].group, &call, &ranks[0].text);
}

static void expect_words(const struct zi_board_call *said, const char *words)
{
	cr_assert_eq(sum_beside(said), -EINVAL);
	cr_assert(strstr(ranks[0].text.chars, "all_reduce of 8 × f32 (sum)"), "%s",
	          ranks[0].text.chars);
	cr_assert(strstr(ranks[0].text.chars, "member 1 "), "%s", ranks[0].text.chars);
	cr_assert(strstr(ranks[0].text.chars, words), "'%s' is not in: %s", words,
	          ranks[0].text.chars);
	cr_assert_eq(ranks[0].group.over, 0, "the group stands");
}

Test(unknown, a_dtype_is_told_by_its_number)
{
	expect_words(&(struct zi_board_call){ .operation = ZI_COLL_ALL_REDUCE,
	                                      .dtype = 200,
	                                      .reduce_op = ZI_REDUCE_SUM,
	                                      .element_count = 8 },
	             "all_reduce of 8 × dtype 200 (unknown here) (sum)");
}

Test(unknown, an_operation_is_told_by_its_number)
{
	expect_words(&(struct zi_board_call){ .operation = 77, .dtype = ZI_DTYPE_F32 },
	             "operation 77");
}

Test(unknown, a_message_is_told_by_its_number)
{
	struct zi_node_p2p take = {
		.dtype = ZI_DTYPE_F32, .peer = 1, .element_count = 8, .buffer = ranks[0].outside[0]
	};
	struct zi_board_send *send = &world.board[1].sends[0];

	send->dtype = 200;
	send->element_count = 8;
	send->source = 0;
	send->sequence = 1;
	cr_assert_eq(zi_node_batch(&ranks[0].group, &take, 1, ZI_DEADLINE_NEVER, &ranks[0].text),
	             -EINVAL);
	cr_assert(strstr(ranks[0].text.chars, "from member 1"), "%s", ranks[0].text.chars);
	cr_assert(strstr(ranks[0].text.chars, "8 × dtype 200 (unknown here) are sent"), "%s",
	          ranks[0].text.chars);
}
