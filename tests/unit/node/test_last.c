/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: who makes a group's last call and leaves at once, or is followed by the daemon's end, does
 * not take the call away from the others: what everybody has come to succeeds.
 * Method: the peer comes and the group breaks in the moment when the verdict is read, between a
 * look at the words and the next: the verdict's page is out of reach then, and the handler of the
 * fault plays the peer and the daemon. Or both happen in the look for the daemon.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include "common/wire/verdict.h"
#include "libclient/coll/node/op.h"
#include "libclient/coll/node/queue.h"
#include "tests/unit/node/world.h"

#define PAGE_BYTES 4096u

enum way { WAY_CALL, WAY_BATCH, WAY_QUEUE, WAY_QUEUED_BATCH, WAY_COUNT };

static struct {
	struct world world;
	struct rank ranks[2];
	struct zi_line *verdict; /* on a page of its own */
	enum way way;
	bool is_gone;          /* the daemon's end instead of its verdict */
	unsigned played_count; /* of the peer's part */
	int32_t words[2];
} scene;

static struct zi_node_op op_of(uint32_t member)
{
	static struct zi_node_p2p p2ps[2];
	struct zi_node_op op = { .group = &scene.ranks[member].group,
		                 .call = { .operation = ZI_COLL_BARRIER,
		                           .deadline_ns = ZI_DEADLINE_NEVER } };

	p2ps[member] = (struct zi_node_p2p){ .is_send = member == 1,
		                             .dtype = ZI_DTYPE_I32,
		                             .peer = 1 - member,
		                             .element_count = 1,
		                             .buffer = &scene.words[member] };
	if (scene.way == WAY_BATCH || scene.way == WAY_QUEUED_BATCH) {
		op.p2ps = &p2ps[member];
		op.p2p_count = 1;
	}
	return op;
}

/* The peer's part: it comes. Of a message it goes without waiting for the other to take it. */
static void play_peer(void)
{
	struct zi_node_op op = op_of(1);
	struct zi_meet_wants wants = { .count = 0 };

	scene.played_count++;
	op.state = ZI_NODE_QUEUED; /* as zi_node_queue_submit() leaves it */
	(void)zi_node_op_poll(&op, 1, &wants);
}

static void on_fault(int number)
{
	(void)number;
	if (mprotect(scene.verdict, PAGE_BYTES, PROT_READ | PROT_WRITE))
		_exit(99);
	play_peer();
	zi_line_store(scene.verdict, EPIPE);
}

/* Stands in for the look at the daemon: from here on the verdict is out of reach; or the peer has
 * come, and then the daemon is gone. */
static int look(void *arg)
{
	sigset_t faults;

	(void)arg;
	if (scene.played_count)
		return scene.is_gone ? -ESTALE : 0;
	if (scene.is_gone) {
		play_peer();
		return -ESTALE;
	}
	(void)sigemptyset(&faults);
	(void)sigaddset(&faults, SIGSEGV); /* threads of this library take no signals */
	if (pthread_sigmask(SIG_UNBLOCK, &faults, NULL))
		return -EIO;
	return mprotect(scene.verdict, PAGE_BYTES, PROT_NONE) ? -EIO : 0;
}

static void play(enum way way, bool is_gone)
{
	struct sigaction action = { .sa_handler = on_fault }, former;
	struct zi_node_queue *queue;
	struct zi_node_op op;

	memset(&scene, 0, sizeof(scene));
	scene.way = way;
	scene.is_gone = is_gone;
	scene.verdict =
		mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(scene.verdict, MAP_FAILED);
	world_init(&scene.world, 2, 1);
	for (uint32_t i = 0; i < 2; i++) {
		rank_init(&scene.ranks[i], &scene.world, i);
		scene.ranks[i].group.meet.verdict = scene.verdict;
	}
	scene.ranks[0].group.meet.look = look;
	scene.words[1] = 7;
	cr_assert_eq(sigaction(SIGSEGV, &action, &former), 0);
	cr_assert_eq(zi_node_queue_new(&queue), 0);
	op = op_of(0);
	if (way == WAY_CALL || way == WAY_BATCH) {
		cr_expect_eq(zi_node_queue_run(queue, &op), 0, "way %d: %s", way, op.text.chars);
	} else {
		cr_assert_eq(zi_node_queue_submit(queue, &op), 0);
		cr_assert(zi_node_queue_wait(queue, &op, ZI_DEADLINE_NEVER));
		cr_expect_eq(op.result, 0, "way %d: %s", way, op.text.chars);
	}
	cr_expect_eq(scene.played_count, 1);
	if (op.p2p_count)
		cr_expect_eq(scene.words[0], 7);
	queue = zi_node_queue_free(queue);
	cr_assert_eq(sigaction(SIGSEGV, &former, NULL), 0);
	for (uint32_t i = 0; i < 2; i++)
		rank_deinit(&scene.ranks[i]);
	world_deinit(&scene.world);
	cr_assert_eq(munmap(scene.verdict, PAGE_BYTES), 0);
}

Test(last, a_call_that_all_have_come_to_survives_who_leaves_then)
{
	for (unsigned way = 0; way < WAY_COUNT; way++)
		play((enum way)way, false);
}

/* ---- who is ahead ---- */

/* Member 1 has a small reduce to 0, and leaves; that breaks the group, as the daemon would say. */
static void *come_and_leave(void *arg)
{
	struct rank *rank = arg;
	struct zi_node_call call = { .operation = ZI_COLL_REDUCE,
		                     .dtype = ZI_DTYPE_I32,
		                     .reduce_op = ZI_REDUCE_SUM,
		                     .element_count = 1,
		                     .source = rank->outside[0],
		                     .target = rank->outside[1],
		                     .timeout_ns = 600 * ZI_NS_PER_S };
	const uint32_t *come = &rank->world->board[1].posts[1].sequence;

	*(int32_t *)rank->outside[0] = 21;
	/* The root comes when the other has had time to leave. */
	while (rank->number == 0 && !zi_meet_has_come(come, 1))
		(void)sched_yield();
	for (uint32_t i = 0; rank->number == 0 && i < 1000; i++)
		(void)sched_yield();
	rank->result = zi_node_call(&rank->group, &call, &rank->text);
	if (rank->number == 0)
		return NULL;
	zi_node_settle(&rank->group, zi_clock_now_ns());
	zi_verdict_give(&rank->world->verdict, EPIPE);
	return NULL;
}

static void two_ranks(struct world *world, struct rank *ranks)
{
	world_init(world, 2, 1);
	rank_init(&ranks[0], world, 0);
	rank_init(&ranks[1], world, 1);
}

static void two_ranks_end(struct world *world, struct rank *ranks)
{
	rank_deinit(&ranks[0]);
	rank_deinit(&ranks[1]);
	world_deinit(world);
}

Test(last, who_was_ahead_leaves_when_all_have_come)
{
	struct rank ranks[2];
	struct world world;

	for (uint32_t i = 0; i < 20; i++) {
		two_ranks(&world, ranks);
		world_run(ranks, come_and_leave);
		cr_assert_eq(ranks[0].result, 0, "round %u: %s", i, ranks[0].text.chars);
		cr_assert_eq(*(int32_t *)ranks[0].outside[1], 42);
		cr_assert_eq(ranks[1].result, 0);
		two_ranks_end(&world, ranks);
	}
}

/* It waits for who comes no more until its calls' time has passed, or the group's end. */
Test(last, who_was_ahead_does_not_wait_for_ever)
{
	struct zi_node_call call = { .operation = ZI_COLL_BROADCAST,
		                     .dtype = ZI_DTYPE_I32,
		                     .element_count = 1 };
	struct rank ranks[2];
	struct world world;

	for (uint32_t with_verdict = 0; with_verdict < 2; with_verdict++) {
		uint64_t start_ns = zi_clock_now_ns();

		two_ranks(&world, ranks);
		call.source = ranks[0].outside[0];
		call.timeout_ns = with_verdict ? 600 * ZI_NS_PER_S : 5 * ZI_NS_PER_MS;
		cr_assert_eq(zi_node_call(&ranks[0].group, &call, &ranks[0].text), 0);
		world.verdict.value = with_verdict ? EPIPE : 0;
		zi_node_settle(&ranks[0].group, start_ns);
		cr_assert(with_verdict || zi_clock_now_ns() >= start_ns + 5 * ZI_NS_PER_MS);
		two_ranks_end(&world, ranks);
	}
}

Test(last, a_call_that_all_have_come_to_survives_the_daemon)
{
	for (unsigned way = 0; way < WAY_COUNT; way++)
		play((enum way)way, true);
}
