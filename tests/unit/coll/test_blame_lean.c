/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: when who waits for the root alone is late, the root is named, or who keeps it from coming;
 * and nobody whom it did not wait for. Method: as test_blame.c. */
#include "daemon/coll/look.h"
#include "tests/unit/coll/board.h"

TestSuite(blame_lean, .init = board_setup, .fini = board_teardown);

/* Rank 1 leans on 2 in call 3. Of what others lack there only what keeps 2 from coming counts. */
static void lean(uint32_t newest_of_root, uint32_t newest_of_others)
{
	struct zi_board_call call = a_call(ZI_COLL_BROADCAST, 5, 0, 2);

	for (uint32_t i = 1; i <= 3; i++)
		for (uint32_t member = 0; member < RANKS; member++) {
			bool is_other = member == 0 || member == 3;

			if (i > (member == 2 ? newest_of_root : is_other ? newest_of_others : 3))
				continue;
			call.flags = member == 2 ? ZI_BOARD_AHEAD : ZI_BOARD_LEANS;
			post(0, member, i, call);
			boards[0][member].posts[i].unseen = (uint16_t)(i - 1);
		}
}

Test(blame_lean, who_leans_has_waited_for_the_root_whoever_else_has_not_come)
{
	struct zi_coll_fail report = failure(0, 3, -ETIMEDOUT);

	lean(2, 2);
	report.culprit = 2;
	cr_assert_eq(fail(1, report), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "broadcast #3 of group 0 (f32 x 5, from rank 2): "
	                                      "rank 2 (pid 102) did not come within 10 s: its last "
	                                      "call there is broadcast #2"),
	                   "%s", text.chars);
	cr_expect_eq(coll->groups[0].culprit, 2);
}

/* The root waits for 0 and 3, which have come to nothing. */
Test(blame_lean, who_keeps_the_root_from_coming_is_named_before_it)
{
	struct zi_coll_fail report = failure(0, 3, -ETIMEDOUT);

	lean(2, 0);
	boards[0][2].posts[2].unseen = 1;
	zi_line_store(&boards[0][2].sleeping, 1);
	report.culprit = 2;
	cr_assert_eq(fail(1, report), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "rank 0 (pid 100) did not come within 10 s: it has "
	                                      "made no call there; rank 3 (pid 103) did not come: "
	                                      "likewise; nor did rank 2"),
	                   "%s", text.chars);
	cr_expect_eq(coll->groups[0].culprit, 0);
}

/* It came too late, and is named though others have not come at all. */
Test(blame_lean, a_root_that_came_too_late_is_named)
{
	struct zi_coll_fail report = failure(0, 3, -ETIMEDOUT);

	lean(3, 2);
	report.culprit = 2;
	cr_assert_eq(fail(1, report), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, ": rank 2 (pid 102) has come, but not within 10 s"),
	                   "%s", text.chars);
	cr_expect_eq(coll->groups[0].culprit, 2);
}

/* In its next call rank 1 waits for who has not come to this one: not for the root. */
Test(blame_lean, who_has_leant_and_waits_behind_it_blames_who_has_not_come)
{
	struct zi_coll_fail report = failure(0, 3, -ETIMEDOUT);

	lean(3, 2);
	report.culprit = 0;
	cr_assert_eq(fail(1, report), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, ": rank 0 (pid 100) did not come within 10 s: "),
	                   "%s", text.chars);
	cr_expect_eq(coll->groups[0].culprit, 0);
}
