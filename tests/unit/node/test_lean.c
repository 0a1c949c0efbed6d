/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: who takes from the root of a small broadcast or scatter waits for that one alone. What is
 * wrong with others' side of it is told by its next call that waits for everybody, or when it would
 * be too far ahead, or at once where it still waits; what is wrong with the root's, always at once.
 * Who is late is named: the root, or whoever keeps it from going on. Who leaves waits until all
 * have come. Method: members in one thread (ahead.h), polled in the order that a case needs.
 */
#include "libclient/coll/node/op.h"
#include "libclient/coll/node/posts.h"
#include "tests/unit/node/ahead.h"

static const char mismatch[] = "call 1: member 2 calls barrier, member 0 broadcast of 64";
static const char refusal[] = "call 1: member 2 refuses it: the target is not writable";

/* Root 0 and member 1 have made call 1, and 2 refuses it, or makes another one. */
static void begin_wrong(bool is_refused)
{
	world_of(RANKS);
	begin_broadcast(0, 0, 5);
	cr_assert_eq(poll(0), 0);
	begin_broadcast(1, 0, 0);
	cr_assert_eq(poll(1), 0);
	cr_assert(has_got(1, 5));
	if (is_refused)
		begin_refused(2, ZI_COLL_BROADCAST);
	else
		begin_barrier(2);
	cr_assert_eq(poll(2), is_refused ? -EACCES : -EINVAL);
	cr_assert(is_refused || strstr(ranks[2].text.chars, mismatch), "%s", ranks[2].text.chars);
}

/* A barrier of all fails everywhere with @words; the next one does not. */
static void expect_told(int error, const char *words)
{
	int results[RANKS];

	for (uint32_t i = 0; i < RANKS; i++)
		begin_barrier(i);
	for (uint32_t round = 0; round < 2; round++)
		for (uint32_t i = 0; i < RANKS; i++)
			if (!round || results[i] == ZI_NODE_E_WAITS)
				results[i] = poll(i);
	for (uint32_t i = 0; i < RANKS; i++) {
		cr_expect_eq(results[i], error, "member %u: %d", i, results[i]);
		cr_expect(strstr(ranks[i].text.chars, words), "member %u: %s", i,
		          ranks[i].text.chars);
	}
	cr_expect_eq(ranks[1].group.culprit, 2);
	meet_all();
}

/* ---- what is wrong with others ---- */

Test(lean, what_others_make_wrong_is_told_by_the_next_call_that_waits)
{
	for (uint32_t is_refused = 0; is_refused < 2; is_refused++) {
		begin_wrong(is_refused);
		expect_told(is_refused ? -EACCES : -EINVAL, is_refused ? refusal : mismatch);
		world_end();
	}
}

/* Calls in which nobody waits for 2 tell nothing of it, and take nothing away. */
Test(lean, broadcasts_in_between_go_on_and_hide_nothing)
{
	begin_wrong(false);
	for (int32_t i = 0; i < 5; i++)
		for (uint32_t member = 0; member < RANKS; member++) {
			begin_broadcast(member, 0, 10 + i);
			cr_assert_eq(poll(member), 0, "%s", ranks[member].text.chars);
			cr_assert(!member || has_got(member, 10 + i));
		}
	expect_told(-EINVAL, mismatch);
	world_end();
}

/* Nor does a message, which is none of the group's calls. */
Test(lean, a_message_in_between_hides_nothing)
{
	struct zi_node_op ops[2];
	struct zi_node_p2p p2ps[2];
	int32_t words[2] = { 7, 0 };

	begin_wrong(false);
	for (uint32_t i = 0; i < 2; i++) {
		struct zi_meet_wants wants = { .count = 0 };

		p2ps[i] = (struct zi_node_p2p){ .is_send = i == 0,
			                        .dtype = ZI_DTYPE_I32,
			                        .peer = 1 - i,
			                        .element_count = 1,
			                        .buffer = &words[i] };
		ops[i] = (struct zi_node_op){ .group = &ranks[i].group,
			                      .call = { .deadline_ns = ZI_DEADLINE_NEVER },
			                      .p2ps = &p2ps[i],
			                      .p2p_count = 1,
			                      .state = ZI_NODE_QUEUED };
		(void)zi_node_op_poll(&ops[i], 1, &wants);
	}
	cr_assert_eq(ops[1].result, 0, "%s", ops[1].text.chars);
	cr_assert_eq(words[1], 7);
	expect_told(-EINVAL, mismatch);
	world_end();
}

/* A ticket that is canceled before it is posted takes nothing along, and the next one tells. */
Test(lean, a_ticket_tells_it_and_one_that_is_canceled_hides_nothing)
{
	for (uint32_t is_canceled = 0; is_canceled < 2; is_canceled++) {
		struct zi_meet_wants wants = { .count = 0 };
		struct zi_node_op op = { .group = &ranks[1].group,
			                 .call = { .operation = ZI_COLL_BARRIER,
			                           .deadline_ns = ZI_DEADLINE_NEVER },
			                 .state = ZI_NODE_QUEUED };

		begin_wrong(false);
		if (is_canceled) {
			op.state = ZI_NODE_CANCELED;
			cr_assert_eq(zi_node_op_poll(&op, 1, &wants), 0);
			cr_assert_eq(op.result, -ECANCELED);
			op.state = ZI_NODE_QUEUED;
		}
		cr_assert_eq(zi_node_op_poll(&op, 2, &wants), 0);
		cr_expect_eq(op.result, -EINVAL);
		cr_expect(strstr(op.text.chars, mismatch), "%s", op.text.chars);
		for (uint32_t i = 0; i < RANKS; i += 2) {
			begin_barrier(i);
			cr_expect_eq(poll(i), -EINVAL);
		}
		meet_all();
		world_end();
	}
}

/* Nothing but broadcasts: each is told once, within as many calls as there are slots, and the
 * receivers with the root's words when it is the root that refuses. */
Test(lean, who_only_broadcasts_is_told_before_it_is_too_far_ahead)
{
	uint32_t failures[RANKS] = { 0 };

	begin_wrong(true);
	for (uint32_t i = 1; i < 10 * ZI_BOARD_SLOTS; i++)
		for (uint32_t member = 0; member < RANKS; member++) {
			int r;

			begin_broadcast(member, 0, (int32_t)i);
			r = poll(member);
			cr_assert(r == 0 || r == -EACCES, "%d", r);
			failures[member] += r != 0;
			cr_expect(r == 0 || i < ZI_BOARD_SLOTS, "call %u", i + 1);
			cr_expect(r == 0 || strstr(ranks[member].text.chars, refusal), "%s",
			          ranks[member].text.chars);
			cr_expect(r || !member || has_got(member, (int32_t)i));
		}
	/* The root's; 1 finds it out as well in that very call, and 2 is told by the root. */
	for (uint32_t i = 0; i < RANKS; i++)
		cr_expect_eq(failures[i], 1, "member %u: %u", i, failures[i]);
	meet_all();
	world_end();
}

/* Who waits is told at once, whoever has come, and not again. */
Test(lean, who_still_waits_for_the_root_is_told_of_others_at_once)
{
	for (uint32_t is_refused = 0; is_refused < 2; is_refused++) {
		int r;

		world_of(RANKS);
		begin_broadcast(1, 0, 0);
		cr_assert_eq(poll(1), ZI_NODE_E_WAITS);
		if (is_refused)
			begin_refused(2, ZI_COLL_BROADCAST);
		else
			begin_barrier(2);
		r = poll(2);
		cr_assert_eq(r, is_refused ? -EACCES : -EINVAL);
		cr_expect_eq(poll(1), r, "%s", ranks[1].text.chars);
		begin_broadcast(0, 0, 1);
		cr_assert_eq(poll(0), 0);
		/* The root alone has yet to be told; the others hear it from there. */
		for (uint32_t i = RANKS; i-- > 1;) {
			begin_barrier(i);
			cr_assert_eq(poll(i), ZI_NODE_E_WAITS, "member %u", i);
		}
		begin_barrier(0);
		for (uint32_t i = 0; i < RANKS; i++)
			cr_expect_eq(poll(i), r, "member %u", i);
		meet_all();
		world_end();
	}
}

/* An echo of another one than the root concerns nobody who leans; the root's ends the call. */
Test(lean, an_echo_is_passed_over_unless_it_is_the_roots)
{
	for (uint32_t is_root = 0; is_root < 2; is_root++) {
		struct zi_text reason = { "an older one" };
		uint32_t who = is_root ? 0 : 2;

		world_of(RANKS);
		begin_broadcast(1, 0, 0);
		cr_assert_eq(poll(1), ZI_NODE_E_WAITS);
		ranks[who].group.due = (struct zi_node_due){ .error = -EACCES, .reason = reason };
		begin_broadcast(who, 0, 0);
		cr_assert_eq(poll(who), -EACCES);
		cr_assert(world.board[who].posts[1].call.flags & ZI_BOARD_ECHO);
		cr_expect_eq(poll(1), is_root ? -EACCES : ZI_NODE_E_WAITS);
		if (!is_root) {
			begin_broadcast(0, 0, 3);
			cr_assert_eq(poll(0), 0);
			cr_expect_eq(poll(1), 0);
			cr_expect(has_got(1, 3));
		} else {
			begin_broadcast(2, 0, 0);
			cr_expect_eq(poll(2), -EACCES);
		}
		meet_all();
		world_end();
	}
}

/* ---- what is wrong with the root ---- */

Test(lean, what_the_root_makes_otherwise_is_told_at_once_and_nothing_is_taken)
{
	for (uint32_t is_refused = 0; is_refused < 2; is_refused++)
		for (uint32_t is_late = 0; is_late < 2; is_late++) {
			struct zi_node_call call = small(0, ZI_COLL_BROADCAST, 0);
			int r;

			world_of(RANKS);
			memset(ranks[1].outside[1], 1, 64 * sizeof(int32_t));
			begin_broadcast(1, 0, 0);
			if (is_late)
				cr_assert_eq(poll(1), ZI_NODE_E_WAITS);
			call.source = ranks[0].outside[0];
			call.element_count = 63;
			if (is_refused)
				begin_refused(0, ZI_COLL_BROADCAST);
			else
				zi_node_begin(&ranks[0].group, &call);
			(void)poll(0);
			r = poll(1);
			cr_expect_eq(r, is_refused ? -EACCES : -EINVAL, "%d", r);
			cr_expect(has_got(1, 0x01010101));
			world_end();
		}
}

/* What it posted is not what such a call takes: it is not believed. */
Test(lean, data_of_the_root_that_are_too_short_are_refused)
{
	world_of(RANKS);
	begin_broadcast(0, 0, 1);
	cr_assert_eq(poll(0), 0);
	world.board[0].posts[1].payload_bytes = 4;
	begin_broadcast(1, 0, 0);
	cr_expect_eq(poll(1), -EPROTO);
	cr_expect_eq(ranks[1].group.culprit, 0);
	world_end();
}

/* ---- who is late ---- */

static int call_within(uint32_t member, enum zi_coll_operation operation, uint64_t timeout_ns)
{
	struct zi_node_call call = small(member, operation, 0);

	call.deadline_ns = zi_clock_deadline_ns(timeout_ns);
	return zi_node_call(&ranks[member].group, &call, &ranks[member].text);
}

Test(lean, the_root_is_named_when_it_does_not_come_whoever_else_has_not)
{
	world_of(RANKS);
	cr_expect_eq(call_within(2, ZI_COLL_SCATTER, 20 * ZI_NS_PER_MS), -ETIMEDOUT);
	cr_expect_str_eq(ranks[2].text.chars, "call 1, scatter of 64 × i32, root 0: member 0 did "
	                                      "not come in time");
	cr_expect_eq(ranks[2].group.culprit, 0);
	cr_expect_eq(ranks[2].group.failure.sequence, 1);
	cr_expect_eq(ranks[2].group.failure.culprit, 0);
	world_end();
}

Test(lean, who_stays_away_is_named_by_the_next_call_that_waits)
{
	world_of(RANKS);
	begin_broadcast(0, 0, 1);
	cr_assert_eq(poll(0), 0);
	cr_assert_eq(call_within(1, ZI_COLL_BROADCAST, ZI_NS_PER_MS), 0);
	cr_expect_eq(call_within(1, ZI_COLL_ALL_REDUCE, 20 * ZI_NS_PER_MS), -ETIMEDOUT);
	cr_expect_str_eq(ranks[1].text.chars, "call 1, broadcast of 64 × i32, root 0: member 2 did "
	                                      "not come in time");
	cr_expect_eq(ranks[1].group.culprit, 2);
	world_end();
}

/* Member 2 stays away: the others make as many broadcasts as there are slots but one, then wait for
 * it until their deadlines. What it has yet to take lies there until it does. */
Test(lean, nobody_is_further_ahead_of_who_stays_away_than_there_are_slots)
{
	world_of(RANKS);
	for (uint32_t i = 1; i < ZI_BOARD_SLOTS; i++)
		for (uint32_t member = 0; member < 2; member++) {
			begin_broadcast(member, 0, (int32_t)i);
			cr_assert_eq(poll(member), 0, "call %u", i);
		}
	for (uint32_t member = 0; member < 2; member++) {
		begin_broadcast(member, 0, (int32_t)ZI_BOARD_SLOTS);
		cr_assert_eq(poll(member), ZI_NODE_E_WAITS);
		cr_expect_eq(ranks[member].group.run.member, 2);
		cr_expect_eq(zi_node_awaited(&ranks[member].group), 1);
	}
	for (uint32_t i = 1; i < ZI_BOARD_SLOTS; i++) {
		begin_broadcast(2, 0, 0);
		cr_assert_eq(poll(2), 0, "call %u", i);
		cr_assert(has_got(2, (int32_t)i), "call %u", i);
	}
	for (uint32_t member = 0; member < 2; member++)
		cr_assert_eq(poll(member), 0);
	cr_assert(has_got(1, (int32_t)ZI_BOARD_SLOTS));
	world_end();
	/* It does not come at all. */
	world_of(RANKS);
	for (uint32_t i = 1; i <= ZI_BOARD_SLOTS; i++)
		for (uint32_t member = 0; member < 2; member++) {
			int r = call_within(member, ZI_COLL_BROADCAST, 20 * ZI_NS_PER_MS);

			cr_expect_eq(r, i < ZI_BOARD_SLOTS ? 0 : -ETIMEDOUT, "call %u: %d", i, r);
			cr_expect(i < ZI_BOARD_SLOTS || ranks[member].group.culprit == 2);
		}
	world_end();
}

/* ---- who leaves ---- */

/* All have come to what it leant on, or what it was given has passed. */
Test(lean, who_leaves_waits_until_all_have_come)
{
	for (uint32_t has_come = 0; has_come < 2; has_come++) {
		struct zi_node_call call;
		uint64_t start_ns;

		world_of(RANKS);
		begin_broadcast(0, 0, 1);
		cr_assert_eq(poll(0), 0);
		call = small(1, ZI_COLL_BROADCAST, 0);
		call.deadline_ns = 0;
		call.timeout_ns = 20 * ZI_NS_PER_MS;
		cr_assert_eq(zi_node_call(&ranks[1].group, &call, &ranks[1].text), 0);
		if (has_come) {
			begin_broadcast(2, 0, 0);
			cr_assert_eq(poll(2), 0);
			ranks[1].group.unseen_timeout_ns = 600 * ZI_NS_PER_S;
		}
		start_ns = zi_clock_now_ns();
		zi_node_settle(&ranks[1].group, start_ns);
		cr_expect(has_come || zi_clock_now_ns() - start_ns >= 20 * ZI_NS_PER_MS);
		cr_expect_eq(ranks[1].group.seen, has_come);
		world_end();
	}
}

/* The root has left, which breaks the group, and so has 2: what they posted lies there. */
Test(lean, who_has_come_has_its_data_when_the_others_have_left)
{
	world_of(RANKS);
	begin_broadcast(1, 0, 0);
	cr_assert_eq(poll(1), ZI_NODE_E_WAITS);
	begin_broadcast(0, 0, 9);
	cr_assert_eq(poll(0), 0);
	begin_broadcast(2, 0, 0);
	cr_assert_eq(poll(2), 0);
	zi_node_settle(&ranks[0].group, zi_clock_now_ns());
	zi_node_settle(&ranks[2].group, zi_clock_now_ns());
	zi_line_store(&world.verdict, EPIPE);
	cr_assert_eq(poll(1), 0);
	cr_assert(has_got(1, 9));
	world_end();
}
