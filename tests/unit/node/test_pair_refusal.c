/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what one member refuses of a message is told to the other at once, with who and why,
 * whoever comes first; both count on, and the next message is whole.
 * Method: threads as ranks (world.h); one of them has what it alone can see to be wrong.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>

#include "libclient/coll/node/queue.h"
#include "tests/unit/node/pair.h"

static int message(struct rank *rank, bool is_send, void *buffer, uint64_t count,
                   struct zi_text *text)
{
	struct zi_node_p2p p2p = { .is_send = is_send,
		                   .dtype = ZI_DTYPE_F32,
		                   .peer = 1 - rank->number,
		                   .element_count = count,
		                   .buffer = buffer };

	return zi_node_batch(&rank->group, &p2p, 1, ZI_DEADLINE_NEVER, text);
}

/* Whether the peer has come to its message number @sequence, or refused it. */
static bool has_come(const struct rank *rank, uint32_t sequence)
{
	const struct zi_board_member *peer = &rank->world->board[1 - rank->number];

	return zi_meet_has_come(&peer->sends[rank->number].sequence, sequence) ||
	       zi_meet_has_come(&peer->takes[rank->number].sequence, sequence) ||
	       zi_meet_has_come(&peer->takes[rank->number].refused, sequence);
}

/* Rank `world->seed` makes ten messages, of which it refuses every other one, some of them twice in
 * a row; its peer makes the same ten. Each waits for the other in some rounds, in others not. */
static void *refuse_some(void *arg)
{
	struct rank *rank = arg;
	uint32_t bad = (uint32_t)(rank->world->seed & 1);
	bool is_send = rank->world->seed & 2 ? rank->number : !rank->number;
	bool is_ahead = rank->world->seed & 4;
	char *buffer = rank->world->seed & 8 ? rank->inside[0] : rank->outside[0];

	for (uint32_t i = 1; i <= 10; i++) {
		bool is_refused = i % 2 == 0 || i == 5 || i == 7;
		uint64_t count = i % 3 ? 20000 : 5; /* in pieces, or not */
		struct zi_text text = { "" };
		int r;

		/* The other is in the message, or about to be, when this one refuses it. */
		if (is_refused && !is_ahead && rank->number == bad)
			while (!has_come(rank, i))
				(void)sched_yield();
		memset(buffer, is_send ? (int)i : 0, 80000);
		r = message(rank, is_send, is_refused && rank->number == bad ? buffer + 1 : buffer,
		            count, &text);
		if (r != (is_refused ? -EINVAL : 0) ||
		    (is_refused && rank->number == bad && !strstr(text.chars, "not aligned")) ||
		    (is_refused && rank->number != bad && !strstr(text.chars, "refuses it: ")) ||
		    (is_refused && rank->number != bad && !is_ahead &&
		     !strstr(text.chars, "is not aligned to the 4 bytes of f32")) ||
		    (!is_refused && buffer[4 * count - 1] != (char)i)) {
			rank->failed_call = (int)i;
			rank->text = text;
			rank->result = r;
			zi_line_store(&rank->world->verdict, EPIPE);
			return NULL;
		}
	}
	return NULL;
}

Test(pair_refusal, what_one_refuses_is_told_to_the_other_and_the_next_message_is_whole)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		struct rank ranks[WORLD_RANKS_MAX];
		struct world world;

		pair_world(&world, ranks, 2);
		world.seed = seed;
		world_run(ranks, refuse_some);
		for (uint32_t i = 0; i < 2; i++)
			cr_expect_eq(ranks[i].failed_call, -1,
			             "seed %lu, rank %u, message %d: %d %s", seed, i,
			             ranks[i].failed_call, ranks[i].result, ranks[i].text.chars);
		pair_world_end(&world, ranks);
	}
}

Test(pair_refusal, a_refusal_is_told_with_who_and_why_and_the_group_stands)
{
	struct rank ranks[WORLD_RANKS_MAX];
	struct world world;
	struct zi_text text;
	char *buffer;

	pair_world(&world, ranks, 2);
	buffer = ranks[0].outside[0];
	cr_assert_eq(message(&ranks[0], true, NULL, 3, &text), -EINVAL);
	cr_expect_str_eq(text.chars, "send: no buffer, of 12 bytes");
	cr_assert_eq(message(&ranks[1], false, ranks[1].outside[0], 3, &text), -EINVAL);
	cr_expect_str_eq(text.chars, "message 1 from member 0 to member 1: member 0 refuses it: "
	                             "send: no buffer, of 12 bytes");
	cr_expect_eq(ranks[1].group.culprit, 0);
	cr_expect_eq(ranks[1].group.over, 0);
	/* The other way round, and of a size that cannot be. */
	cr_assert_eq(message(&ranks[1], false, buffer, UINT64_MAX / 2, &text), -EOVERFLOW);
	cr_assert_eq(message(&ranks[0], true, buffer, 3, &text), -EOVERFLOW);
	cr_expect_not_null(strstr(text.chars, "message 2 from member 0 to member 1: member 1 "
	                                      "refuses it: recv of 9223372036854775807 × f32"),
	                   "%s", text.chars);
	/* More of them than reasons are kept: the peer is told that much. */
	for (uint32_t i = 0; i < 20; i++)
		cr_assert_eq(message(&ranks[0], true, NULL, 3, &text), -EINVAL);
	cr_assert_eq(message(&ranks[1], false, buffer, 3, &text), -EINVAL);
	cr_expect_not_null(strstr(text.chars, "message 3 from member 0 to member 1: member 0 "
	                                      "refuses it: the reason has made room"),
	                   "%s", text.chars);
	pair_world_end(&world, ranks);
}

/* A batch with one fault: all of its peers are told, those of invalid numbers cannot be. */
Test(pair_refusal, all_peers_of_a_batch_are_told_of_its_fault)
{
	struct rank ranks[WORLD_RANKS_MAX];
	struct world world;
	struct zi_text text;
	float word = 0;
	struct zi_node_p2p batch[] = { MESSAGE(true, ZI_DTYPE_F32, 1, 1, &word),
		                       MESSAGE(false, ZI_DTYPE_F32, 2, 1, &word),
		                       MESSAGE(true, ZI_DTYPE_F32, 3, 1, &word),
		                       MESSAGE(true, ZI_DTYPE_F32, 0, 1, &word) };

	pair_world(&world, ranks, 3);
	cr_assert_eq(zi_node_batch(&ranks[0].group, batch, 4, ZI_DEADLINE_NEVER, &text), -EINVAL);
	cr_expect_str_eq(text.chars, "send: peer 3 of a group of 3 members");
	for (uint32_t i = 1; i < 3; i++) {
		struct zi_node_p2p p2p = MESSAGE(i == 2, ZI_DTYPE_F32, 0, 1, &word);

		cr_assert_eq(zi_node_batch(&ranks[i].group, &p2p, 1, ZI_DEADLINE_NEVER, &text),
		             -EINVAL);
		cr_expect_not_null(strstr(text.chars, "member 0 refuses it: send: peer 3 of a"),
		                   "%s", text.chars);
	}
	pair_world_end(&world, ranks);
}

/* A refusal behind a message that is under way is posted in its turn. */
Test(pair_refusal, a_refused_message_keeps_its_place_behind_others)
{
	struct rank ranks[WORLD_RANKS_MAX];
	struct world world;
	struct zi_node_queue *queue;
	struct zi_node_p2p p2ps[2] = { MESSAGE(true, ZI_DTYPE_F32, 1, 2, NULL),
		                       MESSAGE(true, ZI_DTYPE_F32, 1, 2, NULL) };
	struct zi_node_op ops[2] = { 0 };
	float source[2] = { 1, 2 }, target[2] = { 0 };
	struct zi_text text;

	pair_world(&world, ranks, 2);
	p2ps[0].buffer = source;
	cr_assert_eq(zi_node_queue_new(&queue), 0);
	for (uint32_t i = 0; i < 2; i++) {
		ops[i] = (struct zi_node_op){ .group = &ranks[0].group,
			                      .call.deadline_ns = ZI_DEADLINE_NEVER,
			                      .p2ps = &p2ps[i],
			                      .p2p_count = 1 };
		cr_assert_eq(zi_node_queue_submit(queue, &ops[i]), 0);
	}
	cr_assert_eq(message(&ranks[1], false, target, 2, &text), 0);
	cr_expect_eq(target[1], 2.0f);
	cr_assert_eq(message(&ranks[1], false, target, 2, &text), -EINVAL);
	cr_expect_not_null(strstr(text.chars, "message 2 from member 0"), "%s", text.chars);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert(zi_node_queue_wait(queue, &ops[i], ZI_DEADLINE_NEVER));
	cr_expect_eq(ops[0].result, 0);
	cr_expect_eq(ops[1].result, -EINVAL);
	cr_expect_str_eq(ops[1].text.chars, "send: no buffer, of 8 bytes");
	queue = zi_node_queue_free(queue);
	pair_world_end(&world, ranks);
}

/* Member 0 is of a newer libzinf, or an older one: its part of the board is written here. */
Test(pair_refusal, a_type_that_the_peer_does_not_know_is_told_by_its_number)
{
	struct rank ranks[WORLD_RANKS_MAX];
	struct world world;
	struct zi_board_send *send;
	struct zi_board_take *take;
	struct zi_text text;
	float words[2] = { 0 };

	pair_world(&world, ranks, 2);
	send = &world.board[0].sends[1];
	*send = (struct zi_board_send){
		.sequence = 1, .element_count = 5, .source = ZI_BOARD_NOWHERE, .dtype = 99
	};
	cr_assert_eq(message(&ranks[1], false, words, 2, &text), -EINVAL);
	cr_expect_str_eq(text.chars, "message 1 from member 0 to member 1: 5 × dtype 99 (unknown "
	                             "here) are sent and 2 × f32 taken");
	cr_expect_eq(ranks[1].group.over, 0);
	/* What its sender is told: by which type and count it would have been taken. */
	take = &world.board[1].takes[0];
	cr_expect_eq(take->refused, 1);
	cr_expect_eq(take->refused_dtype, ZI_DTYPE_F32);
	cr_expect_eq(take->refused_count, 2);
	/* And the other way round. */
	take = &world.board[0].takes[1];
	take->refused_dtype = 99;
	take->refused_count = 5;
	zi_board_refuse_message(&world.board[0], 0, 1, 1, false, 0);
	take->refused = 1;
	cr_assert_eq(message(&ranks[1], true, words, 2, &text), -EINVAL);
	cr_expect_str_eq(text.chars, "message 1 from member 1 to member 0: 2 × f32 are sent and 5 "
	                             "× dtype 99 (unknown here) taken");
	pair_world_end(&world, ranks);
}
