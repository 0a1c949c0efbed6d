/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: members of a group make it without the other ranks; calls are matched by their name; each
 * way in which one fails is told to all of its members, with the ranks, and late members hear it
 * too. Method: ranks of the tests' node call zero, in several orders. */
#include "tests/unit/zero/coll.h"

static void start(uint32_t rank, const char *name, uint64_t mask)
{
	actor_start(&actors[rank], 0, zero_coll_group,
	            &(struct zero_op){ .name = name, .members = { mask } });
}

static int wait_for(uint32_t rank)
{
	return actor_wait(&actors[rank], 0);
}

static void call_two(uint32_t first, uint32_t second, const char *name)
{
	uint64_t mask = 1ull << first | 1ull << second;

	start(first, name, mask);
	start(second, name, mask);
	cr_expect_eq(wait_for(first), 0, "%s", actors[first].text.chars);
	cr_expect_eq(wait_for(second), 0, "%s", actors[second].text.chars);
	cr_expect_eq(actors[first].calls[0].op.id, actors[second].calls[0].op.id);
}

Test(coll_named, members_make_a_group_without_the_others)
{
	struct zero_coll_grouped grouped;

	begin(4);
	cr_assert_eq(open_all(4), 0);
	call_two(3, 1, "tp.1");
	cr_assert(zero_coll_grouped(actors[3].rank, 1, &grouped));
	cr_expect_eq(grouped.member_count, 2);
	cr_expect_eq(grouped.self, 1);
	cr_expect_not_null(grouped.board);
	call_two(3, 1, "tp.1");
	cr_expect_eq(actors[1].calls[0].op.id, 2, "the name is free again");
	start(2, "alone", 0x4);
	cr_expect_eq(wait_for(2), 0, "%s", actors[2].text.chars);
	cr_expect_eq(group_all(4, 0xf), 0, "%s", actors[0].text.chars);
	end();
}

Test(coll_named, two_groups_are_made_at_once_and_told_apart_by_name)
{
	begin(4);
	cr_assert_eq(open_all(4), 0);
	start(0, "even", 0x5);
	start(1, "odd", 0xa);
	start(3, "odd", 0xa);
	cr_expect_eq(wait_for(1), 0, "%s", actors[1].text.chars);
	cr_expect_not(actors[0].calls[0].is_done);
	start(2, "even", 0x5);
	cr_expect_eq(wait_for(0), 0, "%s", actors[0].text.chars);
	cr_expect_eq(wait_for(2), 0);
	cr_expect_eq(wait_for(3), 0);
	cr_expect_neq(actors[0].calls[0].op.id, actors[1].calls[0].op.id);
	end();
}

Test(coll_named, other_lists_fail_for_all_members_also_for_late_ones)
{
	begin(4);
	cr_assert_eq(open_all(4), 0);
	start(0, "g", 0x7);
	start(1, "g", 0x3);
	for (uint32_t i = 0; i < 2; i++) {
		cr_expect_eq(wait_for(i), -EINVAL);
		says(&actors[i], "group 'g' has ranks 0, 1 says rank 1 (pid");
		says(&actors[i], "ranks 0, 1, 2 says rank 0 (pid");
	}
	start(2, "g", 0x7);
	cr_expect_eq(wait_for(2), -EINVAL, "at once");
	says(&actors[2], "ranks 0, 1 says rank 1 (pid");
	start(0, "g", 0x7);
	start(1, "g", 0x7);
	start(2, "g", 0x7);
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(wait_for(i), 0, "%s", actors[i].text.chars);
	end();
}

Test(coll_named, lists_that_cannot_be_are_refused_by_name)
{
	begin(2);
	cr_assert_eq(open_all(2), 0);
	start(0, "g", 0x5);
	cr_expect_eq(wait_for(0), -EINVAL);
	says(&actors[0], "names rank 2 in group 'g': the job has 2 ranks");
	start(0, "h", 0x2);
	cr_expect_eq(wait_for(0), -EINVAL);
	says(&actors[0], "does not name itself");
	start(0, "i", 0);
	cr_expect_eq(wait_for(0), -EINVAL);
	actor_start(&actors[0], 0, zero_coll_group,
	            &(struct zero_op){ .name = "j", .members = { 1, 0, 0, 1ull << 63 } });
	cr_expect_eq(wait_for(0), -EINVAL);
	says(&actors[0], "rank 255");
	call_two(0, 1, "k");
	end();
}

Test(coll_named, what_a_rank_refuses_itself_ends_the_wait_of_the_others)
{
	begin(3);
	cr_assert_eq(open_all(3), 0);
	start(0, "g", 0x7);
	actor_start(&actors[1], 0, zero_coll_group,
	            &(struct zero_op){ .name = "g",
	                               .refusal = -EINVAL,
	                               .reason = "ranks[2]: rank 1 is named twice" });
	cr_expect_eq(wait_for(1), -EINVAL);
	cr_expect_eq(wait_for(0), -EINVAL);
	start(2, "g", 0x7);
	cr_expect_eq(wait_for(2), -EINVAL);
	for (uint32_t i = 0; i < 3; i++) {
		says(&actors[i], "rank 1 (pid");
		says(&actors[i], "ranks[2]: rank 1 is named twice");
	}
	end();
}

Test(coll_named, who_does_not_come_is_named_in_time)
{
	begin(3);
	cr_assert_eq(open_all(3), 0);
	cr_expect_eq(actor_call(&actors[0], zero_coll_group,
	                        &(struct zero_op){ .name = "g",
	                                           .members = { 0x6 | 1 },
	                                           .timeout_ns = ZI_NS_PER_MS }),
	             -ETIMEDOUT);
	says(&actors[0], "group 'g' timed out");
	says(&actors[0], "rank 1 (pid");
	says(&actors[0], "rank 2 (pid");
	says(&actors[0], "its last call was coll_open");
	start(1, "g", 0x7);
	cr_expect_eq(wait_for(1), -ETIMEDOUT, "the call that it missed");
	call_two(0, 1, "h");
	end();
}

Test(coll_named, a_member_that_left_or_leaves_is_named)
{
	begin(3);
	cr_assert_eq(open_all(3), 0);
	start(0, "g", 0x5);
	actor_leave(&actors[2], true);
	cr_expect_eq(wait_for(0), -EPIPE);
	says(&actors[0], "rank 2 (pid");
	says(&actors[0], "left");
	start(1, "h", 0x6);
	cr_expect_eq(wait_for(1), -EPIPE);
	says(&actors[1], "rank 2, a member of group 'h', has left");
	call_two(0, 1, "i");
	end();
}

Test(coll_named, a_death_ends_every_wait)
{
	begin(3);
	cr_assert_eq(open_all(3), 0);
	start(0, "g", 0x3);
	actor_leave(&actors[2], false);
	cr_expect_eq(wait_for(0), -EPIPE);
	says(&actors[0], "rank 2 (pid");
	says(&actors[0], "died");
	end();
}

Test(coll_named, failures_are_forgotten_from_the_oldest_on)
{
	char name[8];

	begin(3);
	cr_assert_eq(open_all(3), 0);
	for (uint32_t i = 0; i <= NAMED_MISSED_MAX; i++) {
		(void)snprintf(name, sizeof(name), "g%u", i);
		start(0, name, 0x7);
		start(1, name, 0x3);
		cr_expect_eq(wait_for(0), -EINVAL);
		cr_expect_eq(wait_for(1), -EINVAL);
	}
	start(2, "g1", 0x7);
	cr_expect_eq(wait_for(2), -EINVAL);
	start(2, "g0", 0x4);
	cr_expect_eq(wait_for(2), 0, "%s", actors[2].text.chars);
	end();
}

Test(coll_named, numbers_run_out_with_a_figure_for_all_members)
{
	begin(2);
	cr_assert_eq(open_all(2), 0);
	for (uint32_t i = 1; i < ZI_GROUPS_MAX; i++)
		call_two(0, 1, "g");
	start(0, "g", 0x3);
	start(1, "g", 0x3);
	for (uint32_t i = 0; i < 2; i++) {
		cr_expect_eq(wait_for(i), -ENOSPC);
		says(&actors[i], "64 groups");
	}
	end();
}
