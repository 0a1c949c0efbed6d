/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an administrator sees who has come to a call and who is waited for, also where some need
 * not wait. Method: as test_blame.c. */
#include "daemon/coll/look.h"
#include "tests/unit/coll/board.h"

TestSuite(describe, .init = board_setup, .fini = board_teardown);

Test(describe, who_has_come_and_who_is_waited_for_is_described)
{
	struct coll_description seen;

	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.sequence, 0);
	cr_expect_eq(seen.come_mask, 0);
	cr_expect_eq(seen.awaited_mask, 0);
	cr_expect_str_eq(seen.call.chars, "");
	post(0, 1, 7, a_call(ZI_COLL_SCATTER, 5, 0, 2));
	post(0, 3, 7, a_call(ZI_COLL_SCATTER, 5, 0, 2));
	for (uint32_t i = 0; i < RANKS; i++)
		post(0, i, 6, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.sequence, 7);
	cr_expect_eq(seen.come_mask, 0xa);
	cr_expect_eq(seen.awaited_mask, 0x5);
	cr_expect_str_eq(seen.call.chars, "scatter (f32 x 5, from rank 2)");
	cr_expect_eq(seen.error, 0);
	cr_expect_eq(seen.timeout_ns, 10000000000ull);
	cr_expect_not(coll_describe(coll, 1, &seen));
}

/* Member 2 is the root of broadcasts 3 to 5 and does not wait; 1 waits in the first of them for 0
 * and 3. */
Test(describe, who_goes_ahead_is_not_said_to_wait)
{
	struct zi_board_call ahead = a_call(ZI_COLL_BROADCAST, 5, 0, 2);
	struct coll_description seen;

	ahead.flags = ZI_BOARD_AHEAD;
	for (uint32_t i = 0; i < RANKS; i++)
		post(0, i, 2, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	for (uint32_t i = 3; i <= 5; i++)
		post(0, 2, i, ahead);
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.sequence, 5);
	cr_expect_eq(seen.come_mask, 0x4);
	cr_expect_eq(seen.awaited_mask, 0, "nobody waits");
	post(0, 1, 3, a_call(ZI_COLL_BROADCAST, 5, 0, 2));
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.sequence, 3);
	cr_expect_eq(seen.come_mask, 0x6);
	cr_expect_eq(seen.awaited_mask, 0x9);
	for (uint32_t i = 0; i < RANKS; i++)
		for (uint32_t k = 3; k <= 4; k++)
			post(0, i, k, i == 2 ? ahead : a_call(ZI_COLL_BROADCAST, 5, 0, 2));
	zi_line_store(&boards[0][2].sleeping, 1); /* before its sixth call */
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.sequence, 5);
	cr_expect_eq(seen.awaited_mask, 0xb);
}

/* Member 2 is ahead with calls 1 to 8 and waits for posts of call 1: only 3 has not come to it. */
Test(describe, who_is_too_far_ahead_waits_for_the_last_alone)
{
	struct zi_board_call ahead = a_call(ZI_COLL_BROADCAST, 5, 0, 2);
	struct coll_call newest;

	ahead.flags = ZI_BOARD_AHEAD;
	for (uint32_t i = 1; i <= ZI_BOARD_SLOTS; i++) {
		post(0, 2, i, ahead);
		boards[0][2].posts[i % ZI_BOARD_SLOTS].unseen = (uint16_t)(i - 1);
	}
	post(0, 0, 1, a_call(ZI_COLL_BROADCAST, 5, 0, 2));
	post(0, 1, 1, a_call(ZI_COLL_BROADCAST, 5, 0, 2));
	zi_line_store(&boards[0][2].sleeping, 1);
	coll_look_newest(&coll->groups[0], 2, &newest);
	cr_expect_eq(newest.sequence, ZI_BOARD_SLOTS);
	cr_expect_eq(coll_look_awaited(&coll->groups[0], 2, &newest), 0x8);
}

/* Members 0 and 1 contradict each other in call 1: each was told, so that neither waits for 2 and
 * 3, which have not come. */
Test(describe, who_was_told_of_a_mismatch_is_not_said_to_wait)
{
	struct coll_description seen;

	post(0, 0, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	post(0, 1, 1, a_call(ZI_COLL_BROADCAST, 5, 0, 2));
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.awaited_mask, 0xc);
	zi_line_store(&boards[0][0].alarm, 1);
	zi_line_store(&boards[0][1].alarm, 1);
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.awaited_mask, 0);
}
