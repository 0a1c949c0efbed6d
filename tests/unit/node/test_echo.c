/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what is wrong with a call that members were ahead of is told by one later call of each, and
 * that is the end of it; nor does it hide what is wrong with the call at hand. Who waits waits for
 * something, however many calls there were.
 * Method: members in one thread (ahead.h), polled in the order that a case needs.
 */
#include "libclient/coll/node/posts.h"
#include "tests/unit/node/ahead.h"

/* Member 1 refuses a broadcast that 0 was ahead of, and each is ahead in every other call from then
 * on: 0 refuses the first call that it looks at, and that is all. */
Test(echo, a_refusal_is_told_once)
{
	int32_t value = 0;

	world_of(2);
	begin_broadcast(0, 0, 1);
	cr_assert_eq(poll(0), 0);
	begin_refused(1, ZI_COLL_BROADCAST);
	cr_assert_eq(poll(1), -EACCES);
	for (uint32_t i = 0; i < 20; i++) {
		enum zi_coll_operation operation = i % 2 ? ZI_COLL_BROADCAST : ZI_COLL_REDUCE;
		uint32_t looks = i % 2; /* the other is ahead */
		struct zi_node_call calls[2] = { small(0, operation, 0), small(1, operation, 0) };

		value++;
		for (uint32_t k = 0; k < 64; k++)
			((int32_t *)ranks[0].outside[0])[k] = value;
		for (uint32_t k = 0; k < 64; k++)
			((int32_t *)ranks[1].outside[0])[k] = 100;
		zi_node_begin(&ranks[!looks].group, &calls[!looks]);
		cr_assert_eq(poll(!looks), 0, "call %u: %s", i + 2, ranks[!looks].text.chars);
		zi_node_begin(&ranks[looks].group, &calls[looks]);
		cr_assert_eq(poll(looks), i ? 0 : -EACCES, "call %u: %s", i + 2,
		             ranks[looks].text.chars);
		if (i)
			cr_assert(has_got(looks, looks ? value : value + 100), "call %u", i + 2);
	}
	meet_all();
	world_end();
}

/* Nothing but small reduces to member 0, of which 2 refuses one: 0 is told at once, 1 when it would
 * be too far ahead, and nobody ever again. */
Test(echo, members_that_are_always_ahead_do_not_refuse_in_turns)
{
	uint32_t failures[RANKS] = { 0 };

	world_of(RANKS);
	for (uint32_t i = 0; i < 10 * ZI_BOARD_SLOTS; i++)
		for (uint32_t member = RANKS; member-- > 0;) {
			struct zi_node_call call = small(member, ZI_COLL_REDUCE, 0);

			if (i == 1 && member == 2)
				begin_refused(member, ZI_COLL_REDUCE);
			else
				zi_node_begin(&ranks[member].group, &call);
			failures[member] += poll(member) != 0;
		}
	/* 0 looks at each call: at the refusal, and at the echo of 1. */
	cr_expect_eq(failures[0], 2, "%u", failures[0]);
	cr_expect_eq(failures[1], 1, "%u", failures[1]);
	cr_expect_eq(failures[2], 1, "%u", failures[2]);
	meet_all();
	world_end();
}

/* What is wrong with the call itself is not lost, nor is it an echo. */
Test(echo, an_own_fault_goes_before_an_older_one)
{
	world_of(2);
	begin_broadcast(0, 0, 1);
	cr_assert_eq(poll(0), 0);
	begin_refused(1, ZI_COLL_BROADCAST);
	cr_assert_eq(poll(1), -EACCES);
	begin_barrier(1);
	cr_assert_eq(poll(1), ZI_NODE_E_WAITS);
	zi_node_begin(&ranks[0].group, &(struct zi_node_call){ .operation = ZI_COLL_BARRIER,
	                                                       .refused = -EOVERFLOW,
	                                                       .reason = "too long" });
	cr_assert_eq(poll(0), -EOVERFLOW);
	cr_assert(strstr(ranks[0].text.chars, "too long; and call 1: member 1 refuses it: the "
	                                      "target is not writable"),
	          "%s", ranks[0].text.chars);
	cr_assert_eq(world.board[0].posts[2].call.flags, ZI_BOARD_REFUSED);
	cr_assert_eq(poll(1), -EOVERFLOW);
	meet_all();
	world_end();
}

/* Member 0 gives up a call in which it found out that 1 refuses one before: its next one tells. */
Test(echo, a_call_that_is_given_up_hides_nothing)
{
	struct zi_meet_wants wants = { .count = 0 };

	world_of(RANKS);
	begin_broadcast(0, 0, 1);
	cr_assert_eq(poll(0), 0);
	begin_refused(1, ZI_COLL_BROADCAST);
	cr_assert_eq(poll(1), -EACCES);
	begin_barrier(0);
	cr_assert_eq(zi_node_ready(&ranks[0].group, &wants, &ranks[0].text), ZI_NODE_E_WAITS,
	             "2 has not come to call 1");
	cr_assert_eq(ranks[0].group.sequence, 1, "nothing is posted");
	begin_barrier(0);
	cr_assert_eq(poll(0), ZI_NODE_E_WAITS);
	begin_broadcast(2, 0, 0);
	cr_assert_eq(poll(2), 0);
	cr_assert_eq(poll(0), -EACCES);
	cr_expect_str_eq(ranks[0].text.chars,
	                 "call 1: member 1 refuses it: the target is not writable");
	cr_expect_eq(ranks[0].group.culprit, 1);
	for (uint32_t i = 1; i < RANKS; i++) {
		begin_barrier(i);
		cr_assert_eq(poll(i), -EACCES, "call 2 is that one");
	}
	meet_all();
	world_end();
}

/* The same where what is given up is itself wrong, or two are given up. */
Test(echo, a_faulty_call_that_is_given_up_hides_nothing)
{
	for (uint32_t is_late = 0; is_late < 2; is_late++) {
		struct zi_meet_wants wants = { .count = 0 };

		world_of(RANKS);
		begin_broadcast(0, 0, 1);
		cr_assert_eq(poll(0), 0);
		/* The fault comes before what is due, or after it. */
		if (is_late)
			begin_barrier(0);
		else
			begin_refused(0, ZI_COLL_ALL_REDUCE);
		begin_refused(1, ZI_COLL_BROADCAST);
		cr_assert_eq(poll(1), -EACCES);
		cr_assert_eq(zi_node_ready(&ranks[0].group, &wants, &ranks[0].text),
		             ZI_NODE_E_WAITS, "2 has not come to call 1");
		if (is_late) {
			begin_refused(0, ZI_COLL_ALL_REDUCE);
			cr_assert_eq(zi_node_ready(&ranks[0].group, &wants, &ranks[0].text),
			             ZI_NODE_E_WAITS);
		}
		begin_barrier(0);
		begin_broadcast(2, 0, 0);
		cr_assert_eq(poll(2), 0);
		cr_assert_eq(poll(0), -EACCES, "%d", ranks[0].group.run.refused);
		cr_expect_str_eq(ranks[0].text.chars,
		                 "call 1: member 1 refuses it: the target is not writable");
		cr_expect_eq(ranks[0].group.culprit, 1);
		cr_expect_eq(world.board[0].posts[2].call.flags, ZI_BOARD_REFUSED | ZI_BOARD_ECHO);
		for (uint32_t i = 1; i < RANKS; i++) {
			begin_barrier(i);
			cr_assert_eq(poll(i), -EACCES, "call 2 is that one");
		}
		meet_all();
		world_end();
	}
}

/* The words are those of the call that 1 does not come to, which 0 refused, not of the next one. */
Test(echo, who_waits_behind_its_own_refusal_is_told_which_call_is_awaited)
{
	struct zi_node_call call;
	struct zi_board_post *post;

	world_of(2);
	call = small(0, ZI_COLL_BROADCAST, 1);
	call.refused = -EACCES;
	call.reason = "the target is not writable";
	cr_assert_eq(zi_node_call(&ranks[0].group, &call, &ranks[0].text), -EACCES);
	call = (struct zi_node_call){ .operation = ZI_COLL_BARRIER, .timeout_ns = 1 };
	cr_assert_eq(zi_node_call(&ranks[0].group, &call, &ranks[0].text), -ETIMEDOUT);
	cr_expect_str_eq(ranks[0].text.chars, "call 1, broadcast of 64 × i32, root 1: member 1 did "
	                                      "not come in time");
	cr_expect_eq(ranks[0].group.failure.sequence, 1);
	/* And for the daemon, whose words are of the post. */
	post = &world.board[0].posts[1];
	cr_expect_eq(post->call.dtype, ZI_DTYPE_I32);
	cr_expect_eq(post->call.element_count, 64);
	cr_expect_eq(post->call.root, EACCES);
	world_end();
}

/* Numbers as they are after two thousand million calls, in which nobody raised its alarm: that is
 * no reason to look for ever. */
Test(echo, who_waits_waits_for_something_after_many_calls_too)
{
	const uint32_t start = (1u << 31) - 2;
	struct zi_meet_wants wants = { .count = 0 };

	world_of(RANKS);
	for (uint32_t i = 0; i < RANKS; i++) {
		struct zi_node_group *group = &ranks[i].group;

		group->sequence = group->seen = group->left = start;
		for (uint32_t k = 0; k < ZI_BOARD_SLOTS; k++)
			world.board[i].posts[(start - k) % ZI_BOARD_SLOTS].sequence = start - k;
	}
	for (uint32_t i = 0; i < 4; i++)
		meet_all();
	begin_barrier(0);
	cr_assert_eq(zi_node_poll(&ranks[0].group, &wants, &ranks[0].text), ZI_NODE_E_WAITS);
	cr_assert_eq(ranks[0].group.sequence, (1u << 31) + 3);
	cr_assert_eq(wants.count, 2);
	for (uint32_t i = 0; i < wants.count; i++)
		cr_expect_not(zi_meet_has_come(wants.wants[i].word, wants.wants[i].value),
		              "want %u: %u for %u", i, *wants.wants[i].word, wants.wants[i].value);
	world_end();
}
