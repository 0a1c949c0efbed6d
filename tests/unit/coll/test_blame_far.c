/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: of a group that spans nodes no rank of this node is named for what ranks of other nodes did
 * not do. Method: as in test_blame.c; the worker's part of the board is the test's as well. */
#include "daemon/coll/look.h"
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

/* ---- what other nodes ask ---- */

/* Ranks 0 and 1 of group @number are asked for by other nodes, of whose members nothing came from
 * @silent. */
static void ask(uint32_t number, uint32_t sequence, uint64_t silent)
{
	const struct coll_call call = { .sequence = sequence,
		                        .operation = ZI_COLL_ALL_REDUCE,
		                        .dtype = ZI_DTYPE_F32,
		                        .reduce_op = SUM,
		                        .element_count = 5 };

	coll_fail_absent(coll, &coll->groups[number], &call, silent, 2500);
}

static struct zi_board_member *far_group(uint32_t number)
{
	add_group(number, 0x3);
	coll->groups[number].far_mask = 0xf;
	return boards[number];
}

Test(blame_far, who_is_asked_for_is_told_with_what_it_does_instead)
{
	(void)far_group(1);
	post(1, 0, 6, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	ask(1, 7, 0x3);
	cr_expect_str_eq(coll->groups[1].text.chars,
	                 "all_reduce #7 of group 1 (f32 x 5, sum): rank 0 (pid 100) did not come "
	                 "within 2.5 s: its last call there is barrier #6 of group 1; rank 1 (pid "
	                 "101) did not come: it has made no call there");
	cr_expect_eq(coll->groups[1].error, -ETIMEDOUT);
	cr_expect_eq(coll->groups[1].culprit, 0);
	cr_expect_str_eq(broken_words.chars, coll->groups[1].text.chars);
	/* The first words stand. */
	ask(1, 8, 0);
	cr_expect_str_eq(broken_words.chars, coll->groups[1].text.chars);
}

Test(blame_far, who_does_the_same_and_who_else_said_nothing_is_told_in_short)
{
	(void)far_group(1);
	/* Of rank 9 there is none, and what rank 0 does is known. */
	ask(1, 7, 1u << 9 | 0xd);
	cr_expect_str_eq(coll->groups[1].text.chars,
	                 "all_reduce #7 of group 1 (f32 x 5, sum): rank 0 (pid 100) did not come "
	                 "within 2.5 s: it has made no call there; rank 1 (pid 101) did not come: "
	                 "likewise; nothing came from ranks 2, 3 either");
}

Test(blame_far, who_has_come_is_not_told)
{
	(void)far_group(1);
	post(1, 0, 7, a_call(ZI_COLL_ALL_REDUCE, 5, SUM, 0));
	post(1, 1, 9, a_call(ZI_COLL_ALL_REDUCE, 5, SUM, 0)); /* Even more. */
	ask(1, 7, 0x3);
	cr_expect_eq(coll->groups[1].error, 0);
	ask(1, 8, 0x3);
	cr_expect_not_null(strstr(coll->groups[1].text.chars,
	                          ": rank 0 (pid 100) did not come within 2.5 s: its last call "
	                          "there is all_reduce #7"),
	                   "%s", coll->groups[1].text.chars);
	cr_expect_null(strstr(coll->groups[1].text.chars, "rank 1"));
}

/* A link is cut amid call 6, which some nodes have left: they ask in 7 for who is in 6 still. */
Test(blame_far, who_waits_for_other_nodes_a_call_behind_is_not_told)
{
	(void)far_group(1);
	post(1, 0, 6, a_call(ZI_COLL_ALL_REDUCE, 5, SUM, 0));
	post(1, 1, 6, a_call(ZI_COLL_ALL_REDUCE, 5, SUM, 0));
	post(1, 2, 5, a_call(ZI_COLL_ALL_REDUCE, 5, SUM, 0));
	ask(1, 7, 0x3);
	cr_expect_eq(coll->groups[1].error, 0);
	post(1, 2, 6, a_call(ZI_COLL_ALL_REDUCE, 5, SUM, 0)); /* It was over. */
	boards[1][0].finished.value = boards[1][1].finished.value = 6;
	ask(1, 7, 0x3);
	cr_expect_eq(coll->groups[1].error, -ETIMEDOUT);
}

/* Another node may ask anything. */
Test(blame_far, a_question_about_nothing_that_there_is_has_its_number)
{
	const struct coll_call none = { .sequence = UINT32_MAX,
		                        .operation = 77,
		                        .dtype = 99,
		                        .reduce_op = 1000,
		                        .root = UINT32_MAX,
		                        .element_count = UINT64_MAX };
	struct coll_call odd = none;

	(void)far_group(1);
	coll_fail_absent(coll, &coll->groups[1], &none, UINT64_MAX, UINT32_MAX);
	cr_expect_not_null(strstr(coll->groups[1].text.chars,
	                          "call #4294967295 of group 1: rank 0 (pid 100) did not come"),
	                   "%s", coll->groups[1].text.chars);
	(void)far_group(2);
	odd.operation = ZI_COLL_BROADCAST;
	coll_fail_absent(coll, &coll->groups[2], &odd, UINT64_MAX, UINT32_MAX);
	cr_expect_not_null(strstr(coll->groups[2].text.chars, "from no member"), "%s",
	                   coll->groups[2].text.chars);
}

/* Both ranks of this node are in call 6 of a group, of which the worker has posted @posted last,
 * with @flags, and they have made @steps: what is said of them when they are asked for in another.
 */
static const char *words_beside(uint32_t posted, uint8_t flags, uint32_t steps)
{
	static uint32_t number;
	struct zi_board_member *members = far_group_in_pieces(++number);

	post(number, 2, posted, a_call(ZI_COLL_ALL_REDUCE, 1 << 20, SUM, 0));
	members[2].posts[posted % ZI_BOARD_SLOTS].call.flags = flags;
	members[0].step.value = members[1].step.value = steps;
	(void)far_group(number + 1);
	ask(number + 1, 1, 0);
	coll->groups[number].error = -EPIPE; /* Not of the next. */
	return coll->groups[++number].text.chars;
}

Test(blame_far, who_waits_for_other_nodes_in_another_group_is_told_so)
{
	const char *words = words_beside(5, 0, 4);

	cr_expect_not_null(strstr(words, "it is in all_reduce #6 of group 1 (f32 x 1048576, sum), "
	                                 "which waits for ranks of other nodes; rank 1 (pid 101) "
	                                 "did not come: likewise"),
	                   "%s", words);
	words = words_beside(6, 0, 5); /* They have done what the worker exchanges. */
	cr_expect_not_null(strstr(words, "it is in all_reduce #6 of group 3 (f32 x 1048576, sum), "
	                                 "which waits for ranks of other nodes"),
	                   "%s", words);
	words = words_beside(6, ZI_BOARD_REFUSED, 4);
	cr_expect_null(strstr(words, "it is in"), "%s", words);
	words = words_beside(6, 0, 4); /* It waits for those of this node. */
	cr_expect_null(strstr(words, "other nodes"), "%s", words);
}
