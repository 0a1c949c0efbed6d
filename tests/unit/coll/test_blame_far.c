/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: of a group that spans nodes no rank of this node is named for what ranks of other nodes did
 * not do. Method: as in test_blame.c; the worker's part of the board is the test's as well. */
#include "tests/unit/coll/board.h"

TestSuite(blame_far, .init = board_setup, .fini = board_teardown);

#define SUM ZI_REDUCE_SUM

/* Ranks 0 and 1 are here, 2 and 3 on another node; the worker's part follows. */
static struct zi_board_member *far_group_in_pieces(uint32_t number)
{
	add_group(number, 0x3);
	coll->groups[number].far_mask = 0xf;
	for (uint32_t i = 0; i < 2; i++) {
		post(number, i, 6, a_call(ZI_COLL_ALL_REDUCE, 1 << 20, SUM, 0));
		boards[number][i].finished.value = 5;
		boards[number][i].step.value = 4;
	}
	boards[number][2].step.value = 4;
	return boards[number];
}

static void expect_other_nodes(uint32_t number)
{
	cr_assert_eq(fail(0, failure(number, 6, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "wait for those of other nodes, which did not do "
	                                      "their part within 10 s"),
	                   "%s", text.chars);
	cr_expect_null(strstr(text.chars, "(pid"), "%s", text.chars);
	cr_expect_eq(coll->groups[number].culprit, COLL_NOBODY);
}

Test(blame_far, across_nodes_who_waits_for_the_worker_is_not_named)
{
	struct zi_board_member *members;

	/* The nodes have not told each other of the call. */
	(void)far_group_in_pieces(1);
	expect_other_nodes(1);
	/* Both have done what the worker exchanges, one even more. */
	members = far_group_in_pieces(2);
	post(2, 2, 6, a_call(ZI_COLL_ALL_REDUCE, 1 << 20, SUM, 0));
	members[0].step.value = 6;
	members[1].step.value = 5;
	expect_other_nodes(2);
	/* The worker waits for rank 1 alone. */
	members = far_group_in_pieces(3);
	post(3, 2, 6, a_call(ZI_COLL_ALL_REDUCE, 1 << 20, SUM, 0));
	members[0].step.value = 5;
	cr_assert_eq(fail(0, failure(3, 6, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_not_null(
		strstr(text.chars, ": rank 1 (pid 101) came, but did not do its part within 10 s"),
		"%s", text.chars);
	cr_expect_eq(coll->groups[3].culprit, 1);
}
