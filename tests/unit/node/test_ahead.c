/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: who needs nothing from the others of a small call goes on without them, as far as there are
 * slots, and everybody still has the data of each call; what is wrong with a call that it was ahead
 * of is told at its next call that looks, to all members and with the same words; who holds it up
 * is named.
 * Method: three members in one thread (world.h), polled in the order that a case needs; and threads
 * as ranks that make small calls with changing roots only.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>

#include "libclient/coll/node/posts.h"
#include "tests/unit/node/ahead.h"

#define AHEAD_CALLS (ZI_BOARD_SLOTS - 1)

/* The root is ahead by as many calls as there are slots but one, and so is member 1, which leans on
 * it; their next ones wait until member 2 is half as far behind; each call has its own data. */
Test(ahead, a_root_goes_on_as_far_as_there_are_slots)
{
	world_of(RANKS);
	for (uint32_t round = 0; round < 3; round++) {
		int32_t first = 1000 * (int32_t)round;

		for (int32_t i = 0; i < (int32_t)AHEAD_CALLS; i++) {
			begin_broadcast(0, 0, first + i);
			cr_assert_eq(poll(0), 0, "call %d", i);
		}
		begin_broadcast(0, 0, first + (int32_t)AHEAD_CALLS);
		cr_assert_eq(poll(0), ZI_NODE_E_WAITS);
		for (int32_t i = 0; i < (int32_t)AHEAD_CALLS; i++) {
			begin_broadcast(1, 0, 0);
			cr_assert_eq(poll(1), 0, "call %d", i);
			cr_assert(has_got(1, first + i), "call %d", i);
		}
		begin_broadcast(1, 0, 0);
		for (int32_t i = 0; i <= (int32_t)AHEAD_CALLS; i++) {
			int expected = i <= (int32_t)ZI_BOARD_SLOTS / 2 ? ZI_NODE_E_WAITS : 0;

			cr_assert_eq(poll(0), expected, "call %d", i);
			cr_assert_eq(poll(1), expected, "call %d", i);
			begin_broadcast(2, 0, 0);
			cr_assert_eq(poll(2), 0);
			cr_assert(has_got(2, first + i), "call %d", i);
		}
		cr_assert(has_got(1, first + (int32_t)AHEAD_CALLS));
		meet_all();
	}
	world_end();
}

/* Member 0 was ahead in the first two calls and has not looked at them: they lie there until it has
 * said that it did, whatever member 1 is ahead with. */
Test(ahead, what_somebody_has_yet_to_look_at_is_not_written_over)
{
	world_of(2);
	for (int32_t i = 0; i < 2; i++) {
		begin_broadcast(0, 0, i);
		cr_assert_eq(poll(0), 0);
		begin_broadcast(1, 0, 0);
		cr_assert_eq(poll(1), 0);
		cr_assert(has_got(1, i));
	}
	for (uint32_t i = 3; i <= ZI_BOARD_SLOTS; i++) {
		begin_broadcast(1, 1, (int32_t)i);
		cr_assert_eq(poll(1), 0, "call %u", i);
	}
	begin_broadcast(1, 1, (int32_t)ZI_BOARD_SLOTS + 1);
	cr_assert_eq(poll(1), ZI_NODE_E_WAITS);
	cr_assert_eq(world.board[1].posts[1].sequence, 1);
	begin_broadcast(0, 1, 0);
	cr_assert_eq(poll(0), 0, "%s", ranks[0].text.chars);
	cr_assert(has_got(0, 3));
	cr_assert_eq(poll(1), 0);
	cr_assert_eq(world.board[1].posts[1].sequence, ZI_BOARD_SLOTS + 1);
	world_end();
}

/* Every member of a gather but its root is ahead, and of a scatter its root. (Nobody has come.) */
Test(ahead, whoever_needs_nothing_goes_on)
{
	static const struct {
		enum zi_coll_operation operation;
		uint64_t element_count;
		bool is_ahead[RANKS]; /* with root 1 */
	} cases[] = {
		{ ZI_COLL_BROADCAST, 1024, { false, true, false } },
		{ ZI_COLL_BROADCAST, 1025, { false, false, false } },
		{ ZI_COLL_SCATTER, 341, { false, true, false } },
		{ ZI_COLL_SCATTER, 342, { false, false, false } },
		{ ZI_COLL_GATHER, 1024, { true, false, true } },
		{ ZI_COLL_REDUCE, 1024, { true, false, true } },
		{ ZI_COLL_REDUCE, 1025, { false, false, false } },
		{ ZI_COLL_ALL_GATHER, 1, { false, false, false } },
		{ ZI_COLL_ALL_REDUCE, 1, { false, false, false } },
		{ ZI_COLL_ALL_TO_ALL, 1, { false, false, false } },
	};

	for (uint32_t i = 0; i < ZI_COUNT_OF(cases); i++)
		for (uint32_t member = 0; member < RANKS; member++) {
			struct zi_node_call call;

			world_of(RANKS);
			call = small(member, cases[i].operation, 1);
			call.element_count = cases[i].element_count;
			zi_node_begin(&ranks[member].group, &call);
			cr_expect_eq(poll(member), cases[i].is_ahead[member] ? 0 : ZI_NODE_E_WAITS,
			             "case %u, member %u", i, member);
			world_end();
		}
}

/* Member 1 calls something else than the broadcasts that member 0 is ahead with. */
Test(ahead, a_mismatch_is_told_at_the_next_call_that_looks)
{
	static const char words[] = "call 2: member 1 calls barrier, member 0 broadcast of 64";
	int results[RANKS];

	world_of(RANKS);
	for (int32_t i = 0; i < 3; i++) {
		begin_broadcast(0, 0, i);
		cr_assert_eq(poll(0), 0);
	}
	for (uint32_t i = 0; i < 3; i++) {
		begin_broadcast(2, 0, 0);
		(void)poll(2);
		if (i == 1)
			begin_barrier(1);
		else
			begin_broadcast(1, 0, 0);
		results[1] = poll(1);
		results[2] = poll(2);
		cr_assert_eq(results[1], i == 1 ? -EINVAL : 0, "%d", results[1]);
		cr_assert_eq(results[2], 0, "%d", results[2]);
		if (i == 1)
			cr_assert(strstr(ranks[1].text.chars, words), "%s", ranks[1].text.chars);
	}
	/* Call 4 looks, and fails for all. */
	for (uint32_t i = 0; i < RANKS; i++)
		begin_barrier(i);
	for (uint32_t i = 0; i < RANKS; i++)
		results[i] = poll(i);
	for (uint32_t i = 0; i < RANKS; i++) {
		cr_expect_eq(results[i], -EINVAL, "member %u: %d", i, results[i]);
		cr_expect(strstr(ranks[i].text.chars, words), "member %u: %s", i,
		          ranks[i].text.chars);
	}
	cr_expect_eq(ranks[0].group.culprit, 1);
	meet_all();
	world_end();
}

/* Nobody looks at a call that each believes to be the root of; 2 leans on one of them. */
Test(ahead, two_roots_are_both_told)
{
	int results[RANKS];

	world_of(RANKS);
	for (uint32_t i = 0; i < RANKS; i++) {
		begin_broadcast(i, i ? 1 : 0, 7);
		results[i] = poll(i);
	}
	cr_assert_eq(results[0], 0);
	cr_assert_eq(results[1], 0);
	cr_assert_eq(results[2], 0);
	for (uint32_t i = 0; i < RANKS; i++)
		begin_barrier(i);
	for (uint32_t round = 0; round < 2; round++)
		for (uint32_t i = 0; i < RANKS; i++)
			if (!round || results[i] == ZI_NODE_E_WAITS)
				results[i] = poll(i);
	for (uint32_t i = 0; i < RANKS; i++) {
		cr_expect_eq(results[i], -EINVAL, "member %u: %d", i, results[i]);
		cr_expect(strstr(ranks[i].text.chars, "call 1: member 0 calls broadcast of 64 × "
		                                      "i32, root 0, member 1 broadcast"),
		          "member %u: %s", i, ranks[i].text.chars);
	}
	meet_all();
	world_end();
}

/* A refusal that it was ahead of is told as a mismatch is. */
Test(ahead, a_refusal_is_told_at_the_next_call_that_looks)
{
	int r;

	world_of(2);
	begin_broadcast(0, 0, 1);
	cr_assert_eq(poll(0), 0);
	begin_refused(1, ZI_COLL_BROADCAST);
	cr_assert_eq(poll(1), -EACCES);
	for (uint32_t i = 0; i < 2; i++) {
		begin_barrier(i);
		r = poll(i);
		cr_expect_eq(r, -EACCES, "member %u: %d", i, r);
		cr_expect(strstr(ranks[i].text.chars,
		                 "call 1: member 1 refuses it: the target is not writable"),
		          "%s", ranks[i].text.chars);
	}
	world_end();
}

/* Who holds up the slots is named, with the call that it has not come to. */
Test(ahead, who_holds_it_up_is_named)
{
	struct zi_node_call call;
	int r;

	world_of(RANKS);
	for (int32_t i = 0; i < (int32_t)AHEAD_CALLS; i++) {
		begin_broadcast(0, 0, i);
		cr_assert_eq(poll(0), 0);
	}
	begin_broadcast(1, 0, 0);
	cr_assert_eq(poll(1), 0);
	call = small(0, ZI_COLL_SCATTER, 0);
	call.element_count = 5;
	call.deadline_ns = zi_clock_deadline_ns(20 * ZI_NS_PER_MS);
	r = zi_node_call(&ranks[0].group, &call, &ranks[0].text);
	cr_expect_eq(r, -ETIMEDOUT, "%d", r);
	cr_expect_str_eq(ranks[0].text.chars, "call 1, broadcast of 64 × i32, root 0: member 2 did "
	                                      "not come in time");
	cr_expect_eq(ranks[0].group.culprit, 2);
	cr_expect_eq(zi_node_awaited(&ranks[0].group), 1);
	world_end();
}

/* A peer that says it has looked at nothing for ever holds up nobody but until the deadline. */
Test(ahead, what_a_peer_says_it_has_seen_is_not_believed_too_far)
{
	world_of(2);
	for (uint32_t round = 0; round < 3 * ZI_BOARD_SLOTS; round++) {
		begin_broadcast(1, 0, 0);
		(void)poll(1);
		world.board[1].posts[(round + 1) % ZI_BOARD_SLOTS].unseen = 40000;
		begin_broadcast(0, 0, (int32_t)round);
		cr_assert_eq(poll(0), 0, "call %u", round);
		cr_assert_eq(poll(1), 0, "call %u", round);
	}
	world_end();
}

/* ---- threads ---- */

#define CALLS 4000u

static int32_t value_of(uint32_t index, uint32_t member)
{
	return (int32_t)(index * 16 + member);
}

/* Call @index of @rank. Return: whether what it got is right. */
static bool make(struct rank *rank, uint32_t index)
{
	static const enum zi_coll_operation operations[] = { ZI_COLL_BROADCAST, ZI_COLL_SCATTER,
		                                             ZI_COLL_GATHER, ZI_COLL_REDUCE };
	uint32_t count = rank->world->ranks, self = rank->number;
	uint32_t root = (uint32_t)(world_random(rank->world, index, 0) % count);
	struct zi_node_call call =
		small(self, operations[world_random(rank->world, index, 1) % 4], root);
	int32_t *source = (int32_t *)rank->outside[0], *target = (int32_t *)rank->outside[1];
	int32_t sum = 0;

	for (uint32_t i = 0; i < 64 * count; i++)
		source[i] = value_of(index, call.operation == ZI_COLL_SCATTER ? i / 64 : self);
	rank->result = zi_node_call(&rank->group, &call, &rank->text);
	if (rank->result)
		return false;
	for (uint32_t i = 0; i < count; i++)
		sum += value_of(index, i);
	switch (call.operation) {
	case ZI_COLL_BROADCAST:
		return self == root || target[63] == value_of(index, root);
	case ZI_COLL_SCATTER:
		return target[0] == value_of(index, self) && target[63] == value_of(index, self);
	case ZI_COLL_REDUCE:
		return self != root || (target[0] == sum && target[63] == sum);
	default:
		for (uint32_t i = 0; i < count && self == root; i++)
			if (target[i * 64] != value_of(index, i))
				return false;
		return true;
	}
}

static void *rank_main(void *arg)
{
	struct rank *rank = arg;

	for (uint32_t i = 0; i < CALLS && rank->failed_call < 0; i++) {
		/* One is late for a while, then another. */
		for (uint32_t k = 0; k < 20 && i / 10 % rank->world->ranks == rank->number; k++)
			(void)sched_yield();
		if (make(rank, i))
			continue;
		rank->failed_call = (int)i;
		zi_line_store(&rank->world->verdict, EPIPE); /* The others need not wait. */
	}
	return NULL;
}

Test(ahead, small_calls_with_changing_roots_move_what_they_should)
{
	static const uint32_t counts[] = { 1, 2, 3, 5 };

	for (uint32_t i = 0; i < ZI_COUNT_OF(counts); i++) {
		world_of(counts[i]);
		world_run(ranks, rank_main);
		for (uint32_t k = 0; k < counts[i]; k++)
			cr_assert(ranks[k].failed_call < 0 || ranks[k].result == -EPIPE,
			          "%u ranks: call %d of rank %u: %d %s", counts[i],
			          ranks[k].failed_call, k, ranks[k].result, ranks[k].text.chars);
		for (uint32_t k = 0; k < counts[i]; k++)
			cr_assert_eq(ranks[k].failed_call, -1);
		world_end();
	}
}
