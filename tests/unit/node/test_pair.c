/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: messages between members arrive whole, in order, whoever comes first and wherever their
 * buffers lie; a batch progresses together, also to oneself; what does not match is named on both
 * sides; collectives in between are not disturbed.
 * Method: threads as ranks (world.h), each message filled with a pattern of its own.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>

#include "libclient/coll/node/queue.h"
#include "tests/unit/node/world.h"

#define ROUNDS 40u

#define MESSAGE(send, type, member, count, memory)                                              \
	{                                                                                       \
		.is_send = (send), .dtype = (type), .peer = (member), .element_count = (count), \
		.buffer = (memory)                                                              \
	}

static void world_of(struct world *world, struct rank *ranks, uint32_t count)
{
	world_init(world, count, 99 + count);
	for (uint32_t i = 0; i < count; i++)
		rank_init(&ranks[i], world, i);
}

static void world_end(struct world *world, struct rank *ranks)
{
	for (uint32_t i = 0; i < world->ranks; i++)
		rank_deinit(&ranks[i]);
	world_deinit(world);
}

static uint64_t bytes_of(const struct world *world, uint32_t round, uint32_t from, uint32_t to)
{
	static const uint64_t sizes[] = { 0, 4, 100, 4096, 20000, 3000 };

	return sizes[world_random(world, round, from * 16 + to) % ZI_COUNT_OF(sizes)];
}

/* Everybody sends to everybody, itself too, and adds up a word in between. */
static void *exchange(void *arg)
{
	struct rank *rank = arg;
	struct world *world = rank->world;
	uint32_t ranks = world->ranks, self = rank->number;

	for (uint32_t round = 0; round < ROUNDS && !rank->result && rank->failed_call < 0;
	     round++) {
		struct zi_node_p2p p2ps[2 * WORLD_RANKS_MAX] = { 0 };
		uint64_t mix = world_random(world, round, 1000 + self);
		char *sources = mix & 1 ? rank->inside[0] : rank->outside[0];
		char *targets = mix & 2 ? rank->inside[1] : rank->outside[1];
		int32_t word = 1;

		for (uint32_t i = 0; i < ranks; i++) {
			uint64_t out = bytes_of(world, round, self, i);
			/* Some ranks send first, others receive first. */
			uint32_t send = mix & 4 ? i : ranks + i, take = mix & 4 ? ranks + i : i;

			world_contribute(sources + i * 20480, out, round, self, i);
			p2ps[send] = (struct zi_node_p2p){ .is_send = true,
				                           .dtype = ZI_DTYPE_F32,
				                           .peer = i,
				                           .element_count = out / 4,
				                           .buffer = sources + i * 20480 };
			p2ps[take] =
				(struct zi_node_p2p){ .dtype = ZI_DTYPE_F32,
				                      .peer = i,
				                      .element_count =
				                              bytes_of(world, round, i, self) / 4,
				                      .buffer = targets + i * 20480 };
		}
		rank->result = zi_node_batch(&rank->group, p2ps, 2 * ranks, ZI_DEADLINE_NEVER,
		                             &rank->text);
		for (uint32_t i = 0; i < ranks && !rank->result; i++) {
			uint64_t in = bytes_of(world, round, i, self);

			world_contribute(rank->expected, in, round, i, self);
			if (memcmp(targets + i * 20480, rank->expected, in))
				rank->failed_call = (int)round;
		}
		if (rank->result)
			break;
		rank->result =
			zi_node_call(&rank->group,
		                     &(struct zi_node_call){ .operation = ZI_COLL_ALL_REDUCE,
		                                             .dtype = ZI_DTYPE_I32,
		                                             .reduce_op = ZI_REDUCE_SUM,
		                                             .element_count = 1,
		                                             .source = &word,
		                                             .target = &word,
		                                             .deadline_ns = ZI_DEADLINE_NEVER },
		                     &rank->text);
		/* A turn that was taken here must not look like one of a queue's. */
		if (word != (int32_t)ranks || rank->group.turn.pass)
			rank->failed_call = (int)round;
	}
	if (rank->result || rank->failed_call >= 0)
		zi_line_store(&world->verdict, EPIPE);
	return NULL;
}

Test(pair, everybody_sends_to_everybody_in_any_order)
{
	for (uint32_t count = 1; count <= WORLD_RANKS_MAX; count++) {
		struct rank ranks[WORLD_RANKS_MAX];
		struct world world;

		world_of(&world, ranks, count);
		world_run(ranks, exchange);
		for (uint32_t i = 0; i < count; i++) {
			cr_assert_eq(ranks[i].result, 0, "%u ranks: rank %u: %d %s", count, i,
			             ranks[i].result, ranks[i].text.chars);
			cr_assert_eq(ranks[i].failed_call, -1, "%u ranks: rank %u, round %d", count,
			             i, ranks[i].failed_call);
		}
		world_end(&world, ranks);
	}
}

/* Ten messages each way, of which the peer's order of calls differs. */
static void *stream(void *arg)
{
	struct rank *rank = arg;
	struct zi_node_queue *queue = NULL;
	struct zi_node_op ops[20] = { 0 };
	struct zi_node_p2p p2ps[20] = { 0 };
	int32_t words[20];

	rank->result = zi_node_queue_new(&queue);
	for (uint32_t i = 0; i < 20; i++) {
		bool is_send = rank->number ? i >= 10 : i < 10;

		words[i] = is_send ? (int32_t)(100 * rank->number + i % 10) : -1;
		p2ps[i] = (struct zi_node_p2p){ .is_send = is_send,
			                        .dtype = ZI_DTYPE_I32,
			                        .peer = 1 - rank->number,
			                        .element_count = 1,
			                        .buffer = &words[i] };
		ops[i] = (struct zi_node_op){ .group = &rank->group,
			                      .call.deadline_ns = ZI_DEADLINE_NEVER,
			                      .p2ps = &p2ps[i],
			                      .p2p_count = 1 };
		rank->result |= zi_node_queue_submit(queue, &ops[i]);
	}
	for (uint32_t i = 0; i < 20; i++) {
		cr_assert(zi_node_queue_wait(queue, &ops[i], ZI_DEADLINE_NEVER));
		rank->result |= ops[i].result;
		if (words[i] !=
		    (int32_t)(100 * (p2ps[i].is_send == !rank->number ? 0 : 1) + i % 10))
			rank->failed_call = (int)i;
	}
	queue = zi_node_queue_free(queue);
	return NULL;
}

Test(pair, messages_of_a_pair_keep_their_order)
{
	struct rank ranks[WORLD_RANKS_MAX];
	struct world world;

	world_of(&world, ranks, 2);
	world_run(ranks, stream);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(ranks[i].result, 0, "rank %u: %d", i, ranks[i].result);
		cr_assert_eq(ranks[i].failed_call, -1, "rank %u, message %d", i,
		             ranks[i].failed_call);
	}
	world_end(&world, ranks);
}

/* Two messages that do not match, in type and in count, then one that does. */
static void *mismatch(void *arg)
{
	struct rank *rank = arg;
	bool is_send = rank->number == 0;
	char *buffer = is_send ? rank->outside[0] : rank->inside[0];
	struct zi_text texts[2] = { 0 };
	int results[2];

	memset(buffer, is_send ? 7 : 0, 10000);
	for (uint32_t i = 0; i < 2; i++) {
		struct zi_node_p2p p2p = { .is_send = is_send,
			                   .dtype = is_send || i ? ZI_DTYPE_F32 : ZI_DTYPE_I32,
			                   .peer = 1 - rank->number,
			                   .element_count = is_send || !i ? 2500 : 2499,
			                   .buffer = buffer };

		results[i] = zi_node_batch(&rank->group, &p2p, 1, ZI_DEADLINE_NEVER, &texts[i]);
	}
	cr_assert_eq(results[0], -EINVAL);
	cr_assert_str_eq(texts[0].chars, "message 1 from member 0 to member 1: 2500 × f32 are sent "
	                                 "and 2500 × i32 taken");
	cr_assert_eq(results[1], -EINVAL);
	cr_assert_str_eq(texts[1].chars, "message 2 from member 0 to member 1: 2500 × f32 are sent "
	                                 "and 2499 × f32 taken");
	rank->result = zi_node_batch(&rank->group,
	                             &(struct zi_node_p2p){ .is_send = is_send,
	                                                    .dtype = ZI_DTYPE_F32,
	                                                    .peer = 1 - rank->number,
	                                                    .element_count = 2500,
	                                                    .buffer = buffer },
	                             1, ZI_DEADLINE_NEVER, &rank->text);
	if (buffer[0] != 7 || buffer[9999] != 7)
		rank->failed_call = 0;
	return NULL;
}

Test(pair, what_does_not_match_is_named_on_both_sides)
{
	struct rank ranks[WORLD_RANKS_MAX];
	struct world world;

	world_of(&world, ranks, 2);
	world_run(ranks, mismatch);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(ranks[i].result, 0, "rank %u: %s", i, ranks[i].text.chars);
		cr_assert_eq(ranks[i].failed_call, -1);
	}
	world_end(&world, ranks);
}

Test(pair, what_one_refuses_has_no_effect)
{
	struct rank ranks[WORLD_RANKS_MAX];
	struct world world;
	struct zi_text text;
	uint64_t words[2] = { 0 };
	const struct {
		struct zi_node_p2p p2p;
		int error;
		const char *words;
	} cases[] = {
		{ MESSAGE(true, ZI_DTYPE_F32, 2, 1, words), -EINVAL, "peer 2 of a group of 2" },
		{ MESSAGE(true, 9, 1, 1, words), -EINVAL, "send: dtype 9 is none" },
		{ MESSAGE(false, ZI_DTYPE_I64, 1, UINT64_MAX / 4, words), -EOVERFLOW, "overflows" },
		{ MESSAGE(false, ZI_DTYPE_F32, 1, 1, (char *)words + 1), -EINVAL, "not aligned" },
		{ MESSAGE(true, ZI_DTYPE_F32, 1, 1, NULL), -EINVAL, "no buffer" },
		{ MESSAGE(true, ZI_DTYPE_F32, 0, 1, words), -EINVAL, "to oneself" },
	};

	world_of(&world, ranks, 2);
	for (uint32_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		struct zi_node_p2p p2p = cases[i].p2p;

		cr_assert_eq(zi_node_batch(&ranks[0].group, &p2p, 1, ZI_DEADLINE_NEVER, &text),
		             cases[i].error, "case %u", i);
		cr_assert(strstr(text.chars, cases[i].words), "%s", text.chars);
		cr_assert_eq(ranks[0].group.over, 0);
		cr_assert_eq(ranks[0].group.culprit, 0);
	}
	world_end(&world, ranks);
}

/* ---- what one refuses is told to the other ---- */

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

Test(pair, what_one_refuses_is_told_to_the_other_and_the_next_message_is_whole)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		struct rank ranks[WORLD_RANKS_MAX];
		struct world world;

		world_of(&world, ranks, 2);
		world.seed = seed;
		world_run(ranks, refuse_some);
		for (uint32_t i = 0; i < 2; i++)
			cr_expect_eq(ranks[i].failed_call, -1,
			             "seed %lu, rank %u, message %d: %d %s", seed, i,
			             ranks[i].failed_call, ranks[i].result, ranks[i].text.chars);
		world_end(&world, ranks);
	}
}

Test(pair, a_refusal_is_told_with_who_and_why_and_the_group_stands)
{
	struct rank ranks[WORLD_RANKS_MAX];
	struct world world;
	struct zi_text text;
	char *buffer;

	world_of(&world, ranks, 2);
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
	world_end(&world, ranks);
}

/* A batch with one fault: all of its peers are told, those of invalid numbers cannot be. */
Test(pair, all_peers_of_a_batch_are_told_of_its_fault)
{
	struct rank ranks[WORLD_RANKS_MAX];
	struct world world;
	struct zi_text text;
	float word = 0;
	struct zi_node_p2p batch[] = { MESSAGE(true, ZI_DTYPE_F32, 1, 1, &word),
		                       MESSAGE(false, ZI_DTYPE_F32, 2, 1, &word),
		                       MESSAGE(true, ZI_DTYPE_F32, 3, 1, &word),
		                       MESSAGE(true, ZI_DTYPE_F32, 0, 1, &word) };

	world_of(&world, ranks, 3);
	cr_assert_eq(zi_node_batch(&ranks[0].group, batch, 4, ZI_DEADLINE_NEVER, &text), -EINVAL);
	cr_expect_str_eq(text.chars, "send: peer 3 of a group of 3 members");
	for (uint32_t i = 1; i < 3; i++) {
		struct zi_node_p2p p2p = MESSAGE(i == 2, ZI_DTYPE_F32, 0, 1, &word);

		cr_assert_eq(zi_node_batch(&ranks[i].group, &p2p, 1, ZI_DEADLINE_NEVER, &text),
		             -EINVAL);
		cr_expect_not_null(strstr(text.chars, "member 0 refuses it: send: peer 3 of a"),
		                   "%s", text.chars);
	}
	world_end(&world, ranks);
}

/* A refusal behind a message that is under way is posted in its turn. */
Test(pair, a_refused_message_keeps_its_place_behind_others)
{
	struct rank ranks[WORLD_RANKS_MAX];
	struct world world;
	struct zi_node_queue *queue;
	struct zi_node_p2p p2ps[2] = { MESSAGE(true, ZI_DTYPE_F32, 1, 2, NULL),
		                       MESSAGE(true, ZI_DTYPE_F32, 1, 2, NULL) };
	struct zi_node_op ops[2] = { 0 };
	float source[2] = { 1, 2 }, target[2] = { 0 };
	struct zi_text text;

	world_of(&world, ranks, 2);
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
	world_end(&world, ranks);
}

/* Member 0 is of a newer libzinf, or an older one: its part of the board is written here. */
Test(pair, a_type_that_the_peer_does_not_know_is_told_by_its_number)
{
	struct rank ranks[WORLD_RANKS_MAX];
	struct world world;
	struct zi_board_send *send;
	struct zi_board_take *take;
	struct zi_text text;
	float words[2] = { 0 };

	world_of(&world, ranks, 2);
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
	world_end(&world, ranks);
}

Test(pair, one_that_does_not_come_is_named)
{
	struct rank ranks[WORLD_RANKS_MAX];
	struct world world;
	struct zi_text text;
	uint32_t word = 0;
	struct zi_node_p2p p2p = {
		.dtype = ZI_DTYPE_F32, .peer = 1, .element_count = 1, .buffer = &word
	};

	world_of(&world, ranks, 2);
	cr_assert_eq(
		zi_node_batch(&ranks[0].group, &p2p, 1, zi_clock_deadline_ns(ZI_NS_PER_MS), &text),
		-ETIMEDOUT);
	cr_assert_str_eq(text.chars, "recv of 1 × f32: member 1 did not send it in time");
	cr_assert_eq(ranks[0].group.culprit, 1);
	cr_assert_eq(zi_node_batch(&ranks[0].group, &p2p, 1, ZI_DEADLINE_NEVER, &text), -ETIMEDOUT);
	cr_assert_str_eq(text.chars, "group 0 is broken (ETIMEDOUT): make another one");
	world_end(&world, ranks);
}
