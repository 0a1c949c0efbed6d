/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: asynchronous calls give what synchronous ones give, in the order in which they were made,
 * also mixed with synchronous ones and with messages; they end by their deadline, by a verdict, by
 * cancel and by the end of their queue, each exactly once.
 * Method: threads as ranks (world.h), each with a queue of its own.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>

#include "common/wire/verdict.h"
#include "libclient/coll/node/queue.h"
#include "tests/unit/node/world.h"

#define ROUNDS    60u
#define IN_FLIGHT 5u

struct flight {
	struct zi_node_op op;
	struct world_call drawn;
	uint64_t source_counts[WORLD_RANKS_MAX], target_counts[WORLD_RANKS_MAX];
	int32_t words[64];
};

/* All_reduces of words that end in order, then a call of any kind, waited for at once. */
static void *rank_main(void *arg)
{
	struct rank *rank = arg;
	uint32_t ranks = rank->world->ranks;
	struct zi_node_queue *queue = NULL;
	struct flight *flights = calloc(IN_FLIGHT + 1, sizeof(*flights));

	rank->result = zi_node_queue_new(&queue);
	for (uint32_t i = 0; i < ROUNDS && !rank->result && rank->failed_call < 0; i++) {
		struct flight *last = &flights[IN_FLIGHT];
		int32_t expected = 0;

		memset(flights, 0, (IN_FLIGHT + 1) * sizeof(*flights));
		for (uint32_t k = 0; k < IN_FLIGHT; k++) {
			struct flight *flight = &flights[k];
			/* The second one waits for the results of the first. */
			int32_t *words = flights[k / 2].words;

			if (k % 2 == 0)
				words[0] = (int32_t)(rank->number + i + k);
			flight->op.group = &rank->group;
			flight->op.call = (struct zi_node_call){ .operation = ZI_COLL_ALL_REDUCE,
				                                 .dtype = ZI_DTYPE_I32,
				                                 .reduce_op = ZI_REDUCE_SUM,
				                                 .element_count = 64,
				                                 .source = words,
				                                 .target = words,
				                                 .deadline_ns = ZI_DEADLINE_NEVER };
			rank->result |= zi_node_queue_submit(queue, &flight->op);
		}
		last->drawn = world_draw(rank->world, i);
		last->op.group = &rank->group;
		last->op.call =
			world_place(rank, &last->drawn, last->source_counts, last->target_counts);
		rank->result |= zi_node_queue_run(queue, &last->op);
		if (rank->result || !world_check(rank, &last->drawn, &last->op.call))
			rank->failed_call = (int)i;
		for (uint32_t k = 0; k < IN_FLIGHT; k++) {
			cr_assert(zi_node_op_is_done(&flights[k].op), "those before are over");
			rank->result |= flights[k].op.result;
		}
		for (uint32_t r = 0; r < ranks; r++)
			expected += (int32_t)(r + i);
		if (flights[0].words[0] != expected * (int32_t)ranks)
			rank->failed_call = (int)i;
	}
	if (rank->result || rank->failed_call >= 0)
		zi_line_store(&rank->world->verdict, EPIPE);
	queue = zi_node_queue_free(queue);
	free(flights);
	return NULL;
}

Test(queue, calls_end_in_the_order_in_which_they_were_made)
{
	for (uint32_t count = 1; count <= 4; count++) {
		struct rank ranks[WORLD_RANKS_MAX];
		struct world world;

		world_open(&world, ranks, count, 5 + count);
		world_run(ranks, rank_main);
		for (uint32_t i = 0; i < count; i++) {
			cr_assert_eq(ranks[i].result, 0, "%u ranks: rank %u: %d", count, i,
			             ranks[i].result);
			cr_assert_eq(ranks[i].failed_call, -1, "%u ranks: round %d of rank %u",
			             count, ranks[i].failed_call, i);
			rank_deinit(&ranks[i]);
		}
		world_deinit(&world);
	}
}

/* ---- one rank alone, whose peer does not come ---- */

static struct zi_node_op barrier_of(struct rank *rank, uint64_t deadline_ns)
{
	return (struct zi_node_op){ .group = &rank->group,
		                    .call = { .operation = ZI_COLL_BARRIER,
		                              .deadline_ns = deadline_ns } };
}

static void until_posted(const struct world *world, uint32_t member, uint32_t sequence)
{
	while (!zi_meet_has_come(&world->board[member].posts[sequence % ZI_BOARD_SLOTS].sequence,
	                         sequence))
		(void)sched_yield();
}

struct pair_of_ranks {
	struct world world;
	struct rank ranks[2];
	struct zi_node_queue *queue;
};

static void two_init(struct pair_of_ranks *two)
{
	world_init(&two->world, 2, 1);
	rank_init(&two->ranks[0], &two->world, 0);
	rank_init(&two->ranks[1], &two->world, 1);
	cr_assert_eq(zi_node_queue_new(&two->queue), 0);
}

static void two_deinit(struct pair_of_ranks *two)
{
	two->queue = zi_node_queue_free(two->queue);
	rank_deinit(&two->ranks[0]);
	rank_deinit(&two->ranks[1]);
	world_deinit(&two->world);
}

Test(queue, what_is_not_posted_yet_can_be_canceled)
{
	struct pair_of_ranks two;
	struct zi_node_op ops[3];

	two_init(&two);
	for (uint32_t i = 0; i < 3; i++) {
		ops[i] = barrier_of(&two.ranks[0], ZI_DEADLINE_NEVER);
		cr_assert_eq(zi_node_queue_submit(two.queue, &ops[i]), 0);
	}
	until_posted(&two.world, 0, 1);
	cr_assert_not(zi_node_queue_cancel(two.queue, &ops[0]), "others count on it");
	cr_assert(zi_node_queue_cancel(two.queue, &ops[1]));
	cr_assert_not(zi_node_queue_cancel(two.queue, &ops[1]), "once is enough");
	cr_assert(zi_node_queue_wait(two.queue, &ops[1], ZI_DEADLINE_NEVER));
	cr_assert_eq(ops[1].result, -ECANCELED);
	cr_assert_str_eq(ops[1].text.chars, "canceled before it was posted");
	cr_assert_not(zi_node_op_is_done(&ops[0]));
	cr_assert_not(zi_node_queue_wait(two.queue, &ops[2], zi_clock_now_ns()));
	/* The peer comes twice, not three times. */
	for (uint32_t i = 0; i < 2; i++) {
		struct zi_node_op peer = barrier_of(&two.ranks[1], ZI_DEADLINE_NEVER);

		cr_assert_eq(zi_node_queue_run(NULL, &peer), 0);
	}
	for (uint32_t i = 0; i < 3; i += 2) {
		cr_assert(zi_node_queue_wait(two.queue, &ops[i], ZI_DEADLINE_NEVER));
		cr_assert_eq(ops[i].result, 0);
		cr_assert_eq(ops[i].sequence, i ? 2 : 1);
	}
	two_deinit(&two);
}

/* Rank 0 was ahead in call 1, a broadcast; its barrier waits for the peer's post of that. */
Test(queue, what_waits_for_older_calls_can_be_canceled)
{
	int32_t words[2] = { 0 };
	struct pair_of_ranks two;
	struct zi_node_op ops[2];
	struct zi_node_call broadcast = { .operation = ZI_COLL_BROADCAST,
		                          .dtype = ZI_DTYPE_I32,
		                          .element_count = 1,
		                          .source = &words[0],
		                          .deadline_ns = ZI_DEADLINE_NEVER };

	two_init(&two);
	ops[0] = (struct zi_node_op){ .group = &two.ranks[0].group, .call = broadcast };
	cr_assert_eq(zi_node_queue_run(two.queue, &ops[0]), 0);
	for (uint32_t i = 0; i < 2; i++) {
		ops[i] = barrier_of(&two.ranks[0], ZI_DEADLINE_NEVER);
		cr_assert_eq(zi_node_queue_submit(two.queue, &ops[i]), 0);
	}
	while (!zi_line_load(&two.world.board[0].sleeping)) /* in ops[0] */
		(void)sched_yield();
	cr_assert(zi_node_queue_cancel(two.queue, &ops[0]));
	cr_assert(zi_node_queue_wait(two.queue, &ops[0], ZI_DEADLINE_NEVER));
	cr_assert_eq(ops[0].result, -ECANCELED);
	/* The peer comes to the broadcast and one barrier. */
	broadcast.source = NULL;
	broadcast.target = &words[1];
	cr_assert_eq(zi_node_call(&two.ranks[1].group, &broadcast, &two.ranks[1].text), 0);
	ops[0] = barrier_of(&two.ranks[1], ZI_DEADLINE_NEVER);
	cr_assert_eq(zi_node_queue_run(NULL, &ops[0]), 0);
	cr_assert(zi_node_queue_wait(two.queue, &ops[1], ZI_DEADLINE_NEVER));
	cr_assert_eq(ops[1].result, 0);
	cr_assert_eq(ops[1].sequence, 2);
	two_deinit(&two);
}

Test(queue, a_deadline_ends_the_group_and_what_waits_behind)
{
	struct pair_of_ranks two;
	struct zi_node_op ops[2];

	two_init(&two);
	ops[0] = barrier_of(&two.ranks[0], zi_clock_deadline_ns(5 * ZI_NS_PER_MS));
	ops[1] = barrier_of(&two.ranks[0], ZI_DEADLINE_NEVER);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(zi_node_queue_submit(two.queue, &ops[i]), 0);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert(zi_node_queue_wait(two.queue, &ops[i], ZI_DEADLINE_NEVER));
		cr_assert_eq(ops[i].result, -ETIMEDOUT);
	}
	cr_assert_str_eq(ops[0].text.chars, "call 1, barrier: member 1 did not come in time");
	cr_assert_eq(ops[0].culprit, 1);
	cr_assert_str_eq(ops[1].text.chars, "group 0 is broken (ETIMEDOUT): make another one");
	two_deinit(&two);
}

Test(queue, a_deadline_is_kept_behind_a_call_that_has_longer)
{
	int32_t words[2] = { 0 };
	struct zi_node_p2p p2ps[2];
	struct zi_node_op ops[2];
	struct pair_of_ranks two;

	for (uint32_t with_messages = 0; with_messages < 2; with_messages++) {
		two_init(&two);
		for (uint32_t i = 0; i < 2; i++) {
			p2ps[i] = (struct zi_node_p2p){ .dtype = ZI_DTYPE_I32,
				                        .peer = 1,
				                        .element_count = 1,
				                        .buffer = &words[i] };
			ops[i] = barrier_of(&two.ranks[0], 0);
			ops[i].call.timeout_ns = i ? 5 * ZI_NS_PER_MS : 600 * ZI_NS_PER_S;
			ops[i].p2ps = with_messages ? &p2ps[i] : NULL;
			ops[i].p2p_count = with_messages;
			cr_assert_eq(zi_node_queue_submit(two.queue, &ops[i]), 0);
		}
		for (uint32_t i = 0; i < 2; i++) {
			cr_assert(zi_node_queue_wait(two.queue, &ops[i],
			                             zi_clock_deadline_ns(60 * ZI_NS_PER_S)),
			          "call %u of two", i);
			cr_assert_eq(ops[i].result, -ETIMEDOUT);
			cr_assert_eq(ops[i].culprit, 1);
		}
		cr_assert_str_eq(ops[0].text.chars,
		                 with_messages ? "recv of 1 × i32: member 1 did not send it in time"
		                               : "call 1, barrier: member 1 did not come in time");
		cr_assert_str_eq(ops[1].text.chars,
		                 "group 0 is broken (ETIMEDOUT): make another one");
		/* What the daemon is told, whichever of them is waited for first. */
		cr_assert_eq(two.ranks[0].group.failure.timeout_ns, 5 * ZI_NS_PER_MS);
		cr_assert_eq(two.ranks[0].group.failure.culprit, 1);
		cr_assert_eq(two.ranks[0].group.failure.sequence, with_messages ? 0 : 1);
		cr_assert_eq(two.ranks[0].group.failure.operation,
		             with_messages ? ZI_COLL_RECV : ZI_COLL_BARRIER);
		two_deinit(&two);
	}
}

Test(queue, a_verdict_ends_what_is_under_way)
{
	struct pair_of_ranks two;
	struct zi_node_op ops[2];
	int32_t word = 0;
	struct zi_node_p2p p2p = {
		.dtype = ZI_DTYPE_I32, .peer = 1, .element_count = 1, .buffer = &word
	};

	two_init(&two);
	ops[0] = barrier_of(&two.ranks[0], ZI_DEADLINE_NEVER);
	ops[1] = (struct zi_node_op){ .group = &two.ranks[0].group,
		                      .call.deadline_ns = ZI_DEADLINE_NEVER,
		                      .p2ps = &p2p,
		                      .p2p_count = 1 };
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(zi_node_queue_submit(two.queue, &ops[i]), 0);
	until_posted(&two.world, 0, 1);
	zi_verdict_give(&two.world.verdict, EPIPE);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert(zi_node_queue_wait(two.queue, &ops[i], ZI_DEADLINE_NEVER));
		cr_assert_eq(ops[i].result, -EPIPE);
		cr_assert(strstr(ops[i].text.chars, "group 0 is broken (EPIPE)"), "%s",
		          ops[i].text.chars);
	}
	two_deinit(&two);
}

/* Stands in for a daemon that is gone. */
static int no_daemon(void *arg)
{
	return *(const int *)arg;
}

Test(queue, without_a_daemon_nobody_waits_on)
{
	struct pair_of_ranks two;
	struct zi_node_op op;
	int gone = -ESTALE;

	two_init(&two);
	two.ranks[0].group.meet.look = no_daemon;
	two.ranks[0].group.meet.look_arg = &gone;
	op = barrier_of(&two.ranks[0], ZI_DEADLINE_NEVER);
	cr_assert_eq(zi_node_queue_submit(two.queue, &op), 0);
	cr_assert(zi_node_queue_wait(two.queue, &op, ZI_DEADLINE_NEVER));
	cr_assert_eq(op.result, -ESTALE);
	cr_assert_str_eq(op.text.chars, "group 0 is broken (ESTALE)");
	two_deinit(&two);
}

Test(queue, its_end_cancels_what_is_under_way)
{
	struct pair_of_ranks two;
	struct zi_node_op ops[2];

	two_init(&two);
	for (uint32_t i = 0; i < 2; i++) {
		ops[i] = barrier_of(&two.ranks[0], ZI_DEADLINE_NEVER);
		cr_assert_eq(zi_node_queue_submit(two.queue, &ops[i]), 0);
	}
	two.queue = zi_node_queue_free(two.queue);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert(zi_node_op_is_done(&ops[i]));
		cr_assert_eq(ops[i].result, -ECANCELED);
	}
	two_deinit(&two);
}

Test(queue, too_many_calls_are_told)
{
	struct zi_node_op *ops = calloc(ZI_NODE_QUEUE_MAX + 1, sizeof(*ops));
	struct pair_of_ranks two;

	two_init(&two);
	cr_assert(ops);
	for (uint32_t i = 0; i <= ZI_NODE_QUEUE_MAX; i++) {
		ops[i] = barrier_of(&two.ranks[0], ZI_DEADLINE_NEVER);
		cr_assert_eq(zi_node_queue_submit(two.queue, &ops[i]),
		             i < ZI_NODE_QUEUE_MAX ? 0 : -EAGAIN);
	}
	cr_assert_str_eq(ops[ZI_NODE_QUEUE_MAX].text.chars,
	                 "1024 calls are under way: wait for one");
	two.queue = zi_node_queue_free(two.queue);
	free(ops);
	two_deinit(&two);
}

Test(queue, a_message_does_not_wait_for_a_collective)
{
	struct pair_of_ranks two;
	struct zi_node_op ops[2];
	int32_t words[2] = { 0, 7 };
	struct zi_node_p2p p2ps[2] = {
		{ .dtype = ZI_DTYPE_I32, .peer = 1, .element_count = 1, .buffer = &words[0] },
		{ .is_send = true,
		  .dtype = ZI_DTYPE_I32,
		  .peer = 0,
		  .element_count = 1,
		  .buffer = &words[1] },
	};

	two_init(&two);
	ops[0] = barrier_of(&two.ranks[0], ZI_DEADLINE_NEVER);
	ops[1] = (struct zi_node_op){ .group = &two.ranks[0].group,
		                      .call.deadline_ns = ZI_DEADLINE_NEVER,
		                      .p2ps = &p2ps[0],
		                      .p2p_count = 1 };
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(zi_node_queue_submit(two.queue, &ops[i]), 0);
	cr_assert_eq(zi_node_batch(&two.ranks[1].group, &p2ps[1], 1, ZI_DEADLINE_NEVER,
	                           &two.ranks[1].text),
	             0);
	cr_assert(zi_node_queue_wait(two.queue, &ops[1], ZI_DEADLINE_NEVER));
	cr_assert_eq(ops[1].result, 0);
	cr_assert_eq(words[0], 7);
	cr_assert_not(zi_node_op_is_done(&ops[0]));
	two_deinit(&two);
}

/* ---- two groups ---- */

/* The same ranks on another board. */
static struct zi_node_group others[2];

static void *cross(void *arg)
{
	struct rank *rank = arg;
	struct zi_node_group *groups[2] = { &rank->group, &others[rank->number] };
	struct zi_node_queue *queue;
	struct zi_node_op ops[2];

	cr_assert_eq(zi_node_queue_new(&queue), 0);
	for (uint32_t i = 0; i < 2; i++) {
		ops[i] = barrier_of(rank, ZI_DEADLINE_NEVER);
		ops[i].group = groups[(i + rank->number) % 2];
		rank->result |= zi_node_queue_submit(queue, &ops[i]);
	}
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert(zi_node_queue_wait(queue, &ops[i], ZI_DEADLINE_NEVER));
		rank->result |= ops[i].result;
	}
	queue = zi_node_queue_free(queue);
	return NULL;
}

Test(queue, groups_are_called_in_any_order)
{
	struct zi_board_member *board = world_memory(2 * sizeof(*board));
	struct pair_of_ranks two;

	two_init(&two);
	for (uint32_t i = 0; i < 2; i++) {
		others[i] = two.ranks[i].group;
		others[i].meet.members = board;
	}
	world_run(two.ranks, cross);
	cr_assert_eq(two.ranks[0].result, 0);
	cr_assert_eq(two.ranks[1].result, 0);
	free(board);
	two_deinit(&two);
}
