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
	struct coll_description seen;
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
	cr_expect_eq(newest.sequence, 1, "the call that it waits in");
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.sequence, 1);
	cr_expect_eq(seen.awaited_mask, 0x8);
	/* If it sleeps in a message, then it is in no call. */
	boards[0][2].takes[3].sequence = 1;
	coll_look_newest(&coll->groups[0], 2, &newest);
	cr_expect_eq(coll_look_awaited(&coll->groups[0], 2, &newest), 0);
}

/* Member 1 leans on 2, and 3 on 0: each waits for that one alone, and for nobody once it has come,
 * unless it sleeps behind that: then for who lacks the oldest call that it has yet to look at. */
Test(describe, who_leans_waits_for_the_root_alone)
{
	struct zi_board_call leans = a_call(ZI_COLL_BROADCAST, 5, 0, 2);
	struct coll_description seen;
	struct coll_call newest;

	leans.flags = ZI_BOARD_LEANS;
	post(0, 1, 1, leans);
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.sequence, 1);
	cr_expect_eq(seen.come_mask, 0x2);
	cr_expect_eq(seen.awaited_mask, 0x4);
	leans.root = 0;
	post(0, 3, 1, leans); /* another call: what is told is who waits for whom */
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.awaited_mask, 0x5);
	leans.root = 2;
	post(0, 3, 1, leans);
	leans.flags = ZI_BOARD_AHEAD;
	post(0, 2, 1, leans);
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.come_mask, 0xe);
	cr_expect_eq(seen.awaited_mask, 0, "nobody waits");
	/* In its second call it would wait for 2 again, … */
	leans.flags = ZI_BOARD_LEANS;
	post(0, 1, 2, leans);
	boards[0][1].posts[2].unseen = 1;
	zi_line_store(&boards[0][1].sleeping, 1);
	coll_look_newest(&coll->groups[0], 1, &newest);
	cr_expect_eq(coll_look_awaited(&coll->groups[0], 1, &newest), 0x4);
	cr_expect_eq(newest.sequence, 2);
	/* … and behind it for 0, which has not come to the first. */
	leans.flags = ZI_BOARD_AHEAD;
	post(0, 2, 2, leans);
	coll_look_newest(&coll->groups[0], 1, &newest);
	cr_expect_eq(coll_look_awaited(&coll->groups[0], 1, &newest), 0x1);
	cr_expect_eq(newest.sequence, 1);
}

/* A peer may write anything: nobody leans on who is none, nor on itself. */
Test(describe, who_leans_on_nobody_waits_for_nobody)
{
	static const uint32_t roots[] = { 1, RANKS, 64, UINT32_MAX };

	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
		struct zi_board_call leans = a_call(ZI_COLL_SCATTER, 5, 0, roots[i]);
		struct coll_description seen;

		leans.flags = ZI_BOARD_LEANS;
		post(0, 1, 1, leans);
		cr_assert(coll_describe(coll, 0, &seen));
		cr_expect_eq(seen.awaited_mask, 0, "root %u: %lx", roots[i], seen.awaited_mask);
	}
}

/* Member 0 was ahead with calls 1 and 2, refused call 3 by an echo, and in its fourth call catches
 * up: it waits for 3's post of call 1, not for all that lack call 3. */
Test(describe, who_refused_a_call_while_it_was_ahead_waits_for_the_oldest)
{
	struct zi_board_call call = a_call(ZI_COLL_BROADCAST, 5, 0, 0);
	struct coll_call newest;

	for (uint32_t i = 1; i <= 3; i++) {
		call.flags = i < 3 ? ZI_BOARD_AHEAD : ZI_BOARD_REFUSED | ZI_BOARD_ECHO;
		post(0, 0, i, call);
		boards[0][0].posts[i].unseen = (uint16_t)(i - 1);
	}
	for (uint32_t i = 1; i <= 2; i++)
		post(0, i, 1, a_call(ZI_COLL_BROADCAST, 5, 0, 0));
	zi_line_store(&boards[0][0].alarm, 3);
	coll_look_newest(&coll->groups[0], 0, &newest);
	cr_expect_eq(coll_look_awaited(&coll->groups[0], 0, &newest), 0, "it is through");
	zi_line_store(&boards[0][0].sleeping, 1);
	cr_expect_eq(coll_look_awaited(&coll->groups[0], 0, &newest), 0x8);
	cr_expect_eq(newest.sequence, 1, "the call that it waits in");
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

/* Who raised the alarm of call 1 is through with it: as one who was ahead, or was told. When it
 * sleeps all the same, it makes the next call, and waits until all have come to this one. */
Test(describe, who_raised_an_alarm_and_sleeps_waits_for_those_who_have_not_come)
{
	for (uint32_t is_ahead = 0; is_ahead < 2; is_ahead++) {
		struct zi_board_call call = a_call(ZI_COLL_BROADCAST, is_ahead ? 5 : 5000, 0, 0);
		struct coll_call newest;

		call.flags = is_ahead ? ZI_BOARD_AHEAD : 0;
		post(0, 0, 1, call);
		post(0, 1, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
		zi_line_store(&boards[0][0].alarm, 1);
		zi_line_store(&boards[0][0].sleeping, 1);
		coll_look_newest(&coll->groups[0], 0, &newest);
		cr_expect_eq(coll_look_awaited(&coll->groups[0], 0, &newest), 0xc);
		zi_line_store(&boards[0][0].sleeping, 0);
		cr_expect_eq(coll_look_awaited(&coll->groups[0], 0, &newest), 0);
		/* Nor does it wait for anybody's part in it when all have come. */
		zi_line_store(&boards[0][0].sleeping, 1);
		post(0, 2, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
		post(0, 3, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
		cr_expect_eq(coll_look_awaited(&coll->groups[0], 0, &newest), 0);
		boards[0][2].posts[1].sequence = boards[0][3].posts[1].sequence = 0;
	}
}

/* ---- messages ---- */

static void send_to(uint32_t from, uint32_t to, uint32_t sequence, uint32_t refused)
{
	boards[0][from].sends[to] = (struct zi_board_send){
		.sequence = sequence, .refused = refused, .dtype = ZI_DTYPE_F32, .element_count = 7
	};
}

static void expect_messages(uint32_t count, const char *first)
{
	struct coll_description seen;

	cr_assert(coll_describe(coll, 0, &seen));
	cr_assert_eq(seen.message_count, count, "%u", seen.message_count);
	if (count)
		cr_expect_str_eq(seen.messages[0].call.chars, first);
}

Test(describe, who_is_in_a_message_is_told_with_its_peer)
{
	struct coll_description seen;

	send_to(1, 3, 4, 3);
	boards[0][3].takes[1] = (struct zi_board_take){ .sequence = 3, .done = 3 };
	boards[0][3].takes[0] =
		(struct zi_board_take){ .sequence = 1, .dtype = ZI_DTYPE_I8, .element_count = 5 };
	cr_assert(coll_describe(coll, 0, &seen));
	cr_assert_eq(seen.message_count, 2);
	cr_expect_eq(seen.messages[0].rank, 1);
	cr_expect_eq(seen.messages[0].peer, 3);
	cr_expect_str_eq(seen.messages[0].call.chars, "send (f32 x 7, to rank 3)");
	cr_expect_eq(seen.messages[1].rank, 3);
	cr_expect_eq(seen.messages[1].peer, 0);
	cr_expect_str_eq(seen.messages[1].call.chars, "recv (i8 x 5, from rank 0)");
	coll->groups[0].left_mask = 1u << 1; /* it left: it waits no more */
	expect_messages(1, "recv (i8 x 5, from rank 0)");
	coll->groups[0].error = -EPIPE;
	expect_messages(0, NULL);
}

/* Numbers of messages run over 2^32. */
Test(describe, a_send_is_over_when_it_was_left_or_is_refused)
{
	static const struct {
		uint32_t sent, refused, done, taker_refused;
		bool is_in;
	} cases[] = {
		{ 0, 0, 0, 0, false },
		{ 1, 0, 0, 0, true },
		{ 4, 3, 4, 3, false },
		{ 4, 4, 3, 3, false },         /* by its sender */
		{ 4, 3, 3, 4, false },         /* by its receiver */
		{ 4, 3, 3, 6, false },         /* so, and later ones as well */
		{ 5, 4, 4, 4, true },          /* the one after such a one */
		{ 2, 1, UINT32_MAX, 1, true }, /* after some that were refused */
		{ 1, 0, UINT32_MAX, UINT32_MAX, true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		send_to(0, 2, cases[i].sent, cases[i].refused);
		boards[0][2].takes[0] = (struct zi_board_take){ .sequence = cases[i].done,
			                                        .done = cases[i].done,
			                                        .refused = cases[i].taker_refused };
		expect_messages(cases[i].is_in, "send (f32 x 7, to rank 2)");
	}
}

/* Ranks 0 and 1 are here. What a peer elsewhere has taken the sender's own line says. */
Test(describe, messages_to_other_nodes_are_told_as_far_as_the_board_does)
{
	add_group(1, 0x3);
	coll->groups[1].far_mask = 0xf;
	boards[1][1].sends[3] = (struct zi_board_send){
		.sequence = 2, .dtype = ZI_DTYPE_F32, .element_count = 7, .refused = 1
	};
	for (uint32_t is_over = 0; is_over < 2; is_over++) {
		struct coll_description seen;

		boards[1][1].sends[3].is_over = (uint8_t)is_over;
		cr_assert(coll_describe(coll, 1, &seen));
		cr_expect_eq(seen.message_count, !is_over);
		cr_expect(is_over ||
		          !strcmp(seen.messages[0].call.chars, "send (f32 x 7, to rank 3)"));
	}
}

Test(describe, of_many_messages_the_first_are_told_and_how_many_there_are)
{
	struct coll_description seen;

	for (uint32_t i = 0; i < RANKS; i++)
		for (uint32_t k = 0; k < RANKS; k++) {
			send_to(i, k, 3, 2);
			boards[0][i].takes[k].sequence = 3;
			boards[0][i].takes[k].done = 2;
		}
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.message_count, 2 * RANKS * RANKS);
	cr_expect_eq(seen.messages[COLL_MESSAGES_TOLD - 1].rank, 3);
}

Test(describe, whose_private_memory_is_read_and_whose_cannot_be)
{
	static const struct {
		uint64_t tried[3], reads[3], read, unread;
	} cases[] = {
		{ { 0, 0, 0 }, { 0, 0, 0 }, 0, 0 },     { { 6, 5, 3 }, { 6, 5, 3 }, 7, 0 },
		{ { 6, 5, 3 }, { 6, 4, 3 }, 6, 1 },     /* rank 1 cannot read rank 0 */
		{ { 6, 4, 3 }, { 6, 4, 3 }, 6, 0 },     /* it has not tried */
		{ { ~0ull, 0, 0 }, { 0, 0, 0 }, 0, 7 }, /* members that are none are not told */
	};

	add_group(1, 0x7);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct coll_description seen;

		for (uint32_t k = 0; k < 3; k++) {
			boards[1][k].cma.tried = cases[i].tried[k];
			boards[1][k].cma.reads = cases[i].reads[k];
		}
		cr_assert(coll_describe(coll, 1, &seen));
		cr_expect_eq(seen.read_mask, cases[i].read, "case %zu: %lx", i, seen.read_mask);
		cr_expect_eq(seen.unread_mask, cases[i].unread, "case %zu: %lx", i,
		             seen.unread_mask);
	}
}
