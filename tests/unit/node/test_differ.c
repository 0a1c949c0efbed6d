/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: as soon as two members' calls contradict each other, or one refuses, everybody who has come
 * is told so, whoever has not; who is wrong is named once more than half call the same, else both
 * sides are; the group stands. What a newer libzinf may post is told by its number. Method: members
 * polled by one thread, one after the other, so that it is known who sees what (world.h).
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "libclient/coll/node/call.h"
#include "tests/unit/node/world.h"

#define RANKS_MAX 4u

static struct world world;
static struct rank ranks[RANKS_MAX];
static struct zi_meet_wants wants[RANKS_MAX];
static int32_t words[RANKS_MAX][2];

static void begin_world(uint32_t count)
{
	world_open(&world, ranks, count, 3);
}

static void end_world(void)
{
	world_close(&world, ranks);
}

static int poll_again(uint32_t member)
{
	wants[member] = (struct zi_meet_wants){ .count = 0 };
	return zi_node_poll(&ranks[member].group, &wants[member], &ranks[member].text);
}

/* @member makes the call number 1 of its life, a sum of @count elements; 0: a barrier. */
static int come(uint32_t member, uint64_t count)
{
	struct zi_node_call call = { .operation = ZI_COLL_BARRIER };

	if (count)
		call = (struct zi_node_call){ .operation = ZI_COLL_ALL_REDUCE,
			                      .dtype = ZI_DTYPE_I32,
			                      .reduce_op = ZI_REDUCE_SUM,
			                      .element_count = count,
			                      .source = words[member],
			                      .target = words[member] };
	zi_node_begin(&ranks[member].group, &call);
	return poll_again(member);
}

/* What a thread that sleeps on its wants would be woken by. */
static bool is_woken(uint32_t member)
{
	for (uint32_t i = 0; i < wants[member].count; i++)
		if (zi_meet_has_come(wants[member].wants[i].word, wants[member].wants[i].value))
			return true;
	return false;
}

static void expect(uint32_t member, const char *text, uint32_t culprit)
{
	cr_expect_str_eq(ranks[member].text.chars, text, "member %u: %s", member,
	                 ranks[member].text.chars);
	cr_expect_eq(ranks[member].group.culprit, culprit);
	cr_expect_eq(ranks[member].group.over, 0);
}

/* All but member 0 of 4 have come; then it comes, and the next call of all is right. */
Test(differ, members_that_contradict_each_other_do_not_wait_for_the_last_one)
{
	begin_world(4);
	cr_assert_eq(come(1, 1), ZI_NODE_E_WAITS);
	cr_assert_not(is_woken(1));
	cr_assert_eq(come(3, 2), -EINVAL);
	expect(3,
	       "call 1: member 3 calls all_reduce of 2 × i32 (sum), member 1 all_reduce of 1 × i32 "
	       "(sum); 2 of 4 members have come, so it is open who is wrong",
	       ZI_NODE_NOBODY);
	cr_assert(is_woken(1), "it waits for member 0");
	cr_assert_eq(poll_again(1), -EINVAL);
	expect(1, ranks[3].text.chars, ZI_NODE_NOBODY);
	cr_assert_eq(come(2, 1), -EINVAL);
	expect(2,
	       "call 1: member 3 calls all_reduce of 2 × i32 (sum), member 1 all_reduce of 1 × i32 "
	       "(sum); 3 of 4 members have come, so it is open who is wrong",
	       ZI_NODE_NOBODY);
	/* The next calls wait until all have posted this one. */
	cr_assert_eq(come(1, 1), ZI_NODE_E_WAITS);
	cr_assert_eq(come(0, 1), -EINVAL);
	expect(0,
	       "call 1: member 3 calls all_reduce of 2 × i32 (sum), member 0 all_reduce of 1 × i32 "
	       "(sum)",
	       3);
	cr_assert(is_woken(1));
	for (uint32_t i = 0; i < 4; i++)
		words[i][0] = 1;
	cr_assert_eq(poll_again(1), ZI_NODE_E_WAITS);
	cr_assert_eq(come(2, 1), ZI_NODE_E_WAITS);
	cr_assert_eq(come(3, 1), ZI_NODE_E_WAITS);
	cr_assert_eq(come(0, 1), 0);
	for (uint32_t i = 1; i < 4; i++)
		cr_assert_eq(poll_again(i), 0);
	cr_expect_eq(words[2][0], 4);
	end_world();
}

Test(differ, two_against_two_are_both_named)
{
	begin_world(4);
	cr_assert_eq(come(0, 1), ZI_NODE_E_WAITS);
	cr_assert_eq(come(1, 1), ZI_NODE_E_WAITS);
	cr_assert_eq(come(2, 0), -EINVAL);
	cr_assert_eq(come(3, 0), -EINVAL);
	expect(3,
	       "call 1: member 2 calls barrier, member 0 all_reduce of 1 × i32 (sum); no call is "
	       "that of more than half of the members",
	       ZI_NODE_NOBODY);
	cr_assert_eq(poll_again(0), -EINVAL);
	cr_assert_eq(poll_again(1), -EINVAL);
	end_world();
}

Test(differ, members_of_a_group_are_named_with_their_ranks)
{
	static const uint32_t numbers[] = { 1, 4, 6 };

	begin_world(3);
	for (uint32_t i = 0; i < 3; i++)
		ranks[i].group.ranks = numbers;
	cr_assert_eq(come(1, 0), ZI_NODE_E_WAITS);
	cr_assert_eq(come(2, 0), ZI_NODE_E_WAITS);
	cr_assert_eq(come(0, 1), -EINVAL);
	expect(0,
	       "call 1: member 0 (rank 1) calls all_reduce of 1 × i32 (sum), member 1 (rank 4) "
	       "barrier",
	       0);
	end_world();
}

Test(differ, a_refusal_is_told_to_those_who_wait_for_somebody_else)
{
	struct zi_node_call call = { .operation = ZI_COLL_BARRIER,
		                     .refused = -EACCES,
		                     .reason = "not today" };

	begin_world(3);
	cr_assert_eq(come(1, 0), ZI_NODE_E_WAITS);
	zi_node_begin(&ranks[2].group, &call);
	cr_assert_eq(poll_again(2), -EACCES);
	cr_assert(is_woken(1), "it waits for member 0");
	cr_assert_eq(poll_again(1), -EACCES);
	expect(1, "call 1: member 2 refuses it: not today", 2);
	cr_assert_eq(come(0, 0), -EACCES);
	expect(0, "call 1: member 2 refuses it: not today", 2);
	end_world();
}

/* Member 1 is of another libzinf: what it posts is written here. */
static void post_unknown(uint32_t operation, uint32_t dtype, uint32_t reduce_op)
{
	struct zi_board_call call = { .operation = (uint8_t)operation,
		                      .dtype = (uint8_t)dtype,
		                      .reduce_op = (uint8_t)reduce_op,
		                      .element_count = 1,
		                      .source = ZI_BOARD_NOWHERE,
		                      .target = ZI_BOARD_NOWHERE };

	zi_meet_post(&ranks[1].group.meet, 1, 0, &call, 0, NULL, 0);
}

Test(differ, what_a_newer_member_posts_is_told_by_its_number)
{
	static const struct {
		uint32_t operation, dtype, reduce_op;
		const char *words;
	} cases[] = {
		{ ZI_COLL_ALL_REDUCE, 77, ZI_REDUCE_SUM,
		  "all_reduce of 1 × dtype 77 (unknown here) (sum)" },
		{ ZI_COLL_ALL_REDUCE, ZI_DTYPE_I32, 99,
		  "all_reduce of 1 × i32 (reduction 99, unknown here)" },
		{ 200, ZI_DTYPE_I32, 0, "operation 200, unknown here" },
		{ ZI_COLL_BROADCAST, 255, 0, "broadcast of 1 × dtype 255 (unknown here), root 0" },
	};

	for (uint32_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		char text[200];

		begin_world(2);
		post_unknown(cases[i].operation, cases[i].dtype, cases[i].reduce_op);
		cr_assert_eq(come(0, 1), -EINVAL);
		(void)snprintf(text, sizeof(text),
		               "call 1: member 1 calls %s, member 0 all_reduce of 1 × i32 (sum); "
		               "no call is that of more than half of the members",
		               cases[i].words);
		expect(0, text, ZI_NODE_NOBODY);
		end_world();
	}
}

/* ---- who is ahead ---- */

/* Member 2's is a broadcast of its own, in which it waits for nobody. */
static void go_ahead(uint64_t count)
{
	struct zi_node_call call = { .operation = ZI_COLL_BROADCAST,
		                     .dtype = ZI_DTYPE_I32,
		                     .root = 2,
		                     .element_count = count,
		                     .source = words[2] };

	zi_node_begin(&ranks[2].group, &call);
	cr_assert_eq(poll_again(2), 0);
}

static void come_to_broadcast(uint32_t member)
{
	struct zi_node_call call = { .operation = ZI_COLL_BROADCAST,
		                     .dtype = ZI_DTYPE_I32,
		                     .root = 2,
		                     .element_count = 2,
		                     .target = words[member] };

	zi_node_begin(&ranks[member].group, &call);
	cr_assert_eq(poll_again(member), ZI_NODE_E_WAITS);
}

/* Member 0 waits for 1, which does not come; 2, which is ahead, contradicts it. */
Test(differ, who_sleeps_is_told_by_a_member_that_is_ahead)
{
	begin_world(3);
	cr_assert_eq(come(0, 1), ZI_NODE_E_WAITS);
	zi_line_store(&world.board[0].sleeping, 1); /* as while it does */
	go_ahead(1);
	cr_assert(is_woken(0));
	zi_line_store(&world.board[0].sleeping, 0);
	cr_assert_eq(poll_again(0), -EINVAL);
	cr_expect_not_null(
		strstr(ranks[0].text.chars, "member 2 calls broadcast of 1 × i32, root 2"), "%s",
		ranks[0].text.chars);
	end_world();
}

/* Member 0 is about to sleep: it looks at the post of 2 once more before. */
Test(differ, who_is_about_to_sleep_looks_at_members_that_may_be_ahead)
{
	bool is_seen = false;

	begin_world(3);
	cr_assert_eq(come(0, 1), ZI_NODE_E_WAITS);
	go_ahead(1);
	cr_assert_not(is_woken(0), "it does not sleep");
	for (uint32_t i = 0; i < wants[0].glance_count; i++)
		is_seen |= zi_meet_has_come(wants[0].glances[i].word, wants[0].glances[i].value);
	cr_assert(is_seen);
	cr_assert_eq(poll_again(0), -EINVAL);
	end_world();
}

/* Member 0 leans on 2, whose post wakes it, and no alarm. */
Test(differ, who_is_ahead_alarms_nobody_that_agrees)
{
	begin_world(3);
	come_to_broadcast(0);
	zi_line_store(&world.board[0].sleeping, 1);
	zi_line_store(&world.board[1].sleeping, 1); /* in a call before */
	go_ahead(2);
	cr_assert(is_woken(0));
	cr_expect_eq(world.board[2].alarm.value, 0);
	end_world();
}
