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
#include "tests/unit/node/pair.h"

#define ROUNDS 40u

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

		pair_world(&world, ranks, count);
		world_run(ranks, exchange);
		for (uint32_t i = 0; i < count; i++) {
			cr_assert_eq(ranks[i].result, 0, "%u ranks: rank %u: %d %s", count, i,
			             ranks[i].result, ranks[i].text.chars);
			cr_assert_eq(ranks[i].failed_call, -1, "%u ranks: rank %u, round %d", count,
			             i, ranks[i].failed_call);
		}
		pair_world_end(&world, ranks);
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

	pair_world(&world, ranks, 2);
	world_run(ranks, stream);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(ranks[i].result, 0, "rank %u: %d", i, ranks[i].result);
		cr_assert_eq(ranks[i].failed_call, -1, "rank %u, message %d", i,
		             ranks[i].failed_call);
	}
	pair_world_end(&world, ranks);
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

	pair_world(&world, ranks, 2);
	world_run(ranks, mismatch);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(ranks[i].result, 0, "rank %u: %s", i, ranks[i].text.chars);
		cr_assert_eq(ranks[i].failed_call, -1);
	}
	pair_world_end(&world, ranks);
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
		{ MESSAGE(true, 9, 1, 1, words), -EINVAL, "send: dtype 9 does not exist" },
		{ MESSAGE(false, ZI_DTYPE_I64, 1, UINT64_MAX / 4, words), -EOVERFLOW, "overflows" },
		{ MESSAGE(false, ZI_DTYPE_F32, 1, 1, (char *)words + 1), -EINVAL, "not aligned" },
		{ MESSAGE(true, ZI_DTYPE_F32, 1, 1, NULL), -EINVAL, "no buffer" },
		{ MESSAGE(true, ZI_DTYPE_F32, 0, 1, words), -EINVAL, "to this member itself" },
	};

	pair_world(&world, ranks, 2);
	for (uint32_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		struct zi_node_p2p p2p = cases[i].p2p;

		cr_assert_eq(zi_node_batch(&ranks[0].group, &p2p, 1, ZI_DEADLINE_NEVER, &text),
		             cases[i].error, "case %u", i);
		cr_assert(strstr(text.chars, cases[i].words), "%s", text.chars);
		cr_assert_eq(ranks[0].group.over, 0);
		cr_assert_eq(ranks[0].group.culprit, 0);
	}
	pair_world_end(&world, ranks);
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

	pair_world(&world, ranks, 2);
	cr_assert_eq(
		zi_node_batch(&ranks[0].group, &p2p, 1, zi_clock_deadline_ns(ZI_NS_PER_MS), &text),
		-ETIMEDOUT);
	cr_assert_str_eq(text.chars, "recv of 1 × f32: member 1 did not send it in time");
	cr_assert_eq(ranks[0].group.culprit, 1);
	cr_assert_eq(zi_node_batch(&ranks[0].group, &p2p, 1, ZI_DEADLINE_NEVER, &text), -ETIMEDOUT);
	cr_assert_str_eq(text.chars, "group 0 is broken (ETIMEDOUT): make another one");
	pair_world_end(&world, ranks);
}
