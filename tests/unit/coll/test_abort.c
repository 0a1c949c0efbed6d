/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: who aborts a group is named to all of its members with its reason, of which only what can
 * be printed is told; the first failure stands. Method: as test_blame.c. */
#include "tests/unit/coll/board.h"

TestSuite(coll_abort, .init = board_setup, .fini = board_teardown);

Test(coll_abort, who_aborts_a_group_is_named_with_its_reason_to_all_members)
{
	add_group(2, 0x6);
	cr_assert_eq(coll_abort(coll, 1, 2, "loss is NaN", &text), 0);
	cr_expect_eq(verdict(2), ECONNABORTED);
	cr_expect_eq(verdict(0), 0, "other groups go on");
	cr_assert_eq(fail(2, failure(2, 4, 0)), -ECONNABORTED);
	cr_expect_str_eq(text.chars, "rank 1 (pid 101) aborted group 2: loss is NaN");
	cr_expect_eq(coll->groups[2].culprit, 1);
	/* The first word stands. */
	cr_assert_eq(coll_abort(coll, 2, 2, "me too", &text), 0);
	cr_assert_eq(fail(1, failure(2, 4, -ETIMEDOUT)), -ECONNABORTED);
	cr_expect_str_eq(text.chars, "rank 1 (pid 101) aborted group 2: loss is NaN");
}

Test(coll_abort, an_abort_may_have_no_reason_or_one_that_cannot_be_printed)
{
	add_group(2, 0x6);
	cr_assert_eq(coll_abort(coll, 2, 2, "", &text), 0);
	cr_assert_eq(fail(2, failure(2, 4, 0)), -ECONNABORTED);
	cr_expect_str_eq(text.chars, "rank 2 (pid 102) aborted group 2");
	cr_assert_eq(coll_abort(coll, 3, 0, "\x1b[2J\n\x7f µ", &text), 0);
	cr_assert_eq(fail(0, failure(0, 1, 0)), -ECONNABORTED);
	cr_expect_str_eq(text.chars, "rank 3 (pid 103) aborted group 0: ?[2J?? µ");
}

/* Whoever broke it, with whatever words: C1 controls, a character that was cut. */
Test(coll_abort, the_words_of_a_broken_group_can_be_printed)
{
	struct zi_text words = { "another node: \xc2\x9b"
		                 "31m \x9bx µ\xe2\x82" };

	add_group(2, 0x6);
	cr_assert_eq(coll_abort(coll, 1, 2, "loss is \xc2\x85 NaN\xc3", &text), 0);
	cr_assert_eq(fail(2, failure(2, 4, 0)), -ECONNABORTED);
	cr_expect_str_eq(text.chars, "rank 1 (pid 101) aborted group 2: loss is ? NaN?");
	coll_break(coll, &coll->groups[0], -EPIPE, COLL_NOBODY, &words);
	cr_assert_eq(fail(2, failure(0, 1, 0)), -EPIPE);
	cr_expect_str_eq(text.chars, "another node: ?31m ?x µ??");
	cr_expect_str_eq(broken_words.chars, text.chars, "the members' sessions hear the same");
}

Test(coll_abort, who_is_no_member_cannot_abort)
{
	add_group(2, 0x6);
	cr_assert_eq(coll_abort(coll, 0, 2, "", &text), -EPERM);
	cr_expect_str_eq(text.chars, "rank 0 is no member of group 2");
	cr_assert_eq(coll_abort(coll, 0, 5, "", &text), -EPERM);
	cr_assert_eq(coll_abort(coll, 0, UINT32_MAX, "", &text), -EPERM);
	cr_expect_eq(verdict(2), 0);
}

Test(coll_abort, an_abort_after_a_failure_changes_nothing)
{
	post(0, 0, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	cr_assert_eq(fail(0, failure(0, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_assert_eq(coll_abort(coll, 1, 0, "too late", &text), 0);
	cr_assert_eq(fail(1, failure(0, 1, 0)), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "did not come"));
}
