/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of one connection, waited for or not; see queue.h. Floor 2.
 *
 * The caller writes the ring, the thread reads it into its list and goes over the list, oldest
 * first, for as long as anything goes on; then it waits for the words that all its calls wait for,
 * and for the bell. Groups are the thread's from the first submit until everything submitted is
 * done, and the caller's then: `submitted` and `completed` say whose.
 */
#include "libclient/coll/node/queue.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/futex.h"
#include "common/base/thread.h"
#include "libclient/coll/node/fail.h"
#include "libclient/coll/node/op.h"

/* As in meet.c. */
#define QUEUE_YIELDS 32u

struct zi_node_queue {
	struct zi_thread thread;
	struct zi_node_op *ring[ZI_NODE_QUEUE_MAX];

	/* writer: caller */
	struct zi_line submitted; /* calls, so far; the ring's end */
	struct zi_line bell;      /* rung after each submit and cancel, and for the end */
	struct zi_line stopping;
	struct zi_line waiting; /* the caller sleeps on `completed` */
	struct zi_line event;   /* 1 + an eventfd that is rung with `completed`; 0: none */

	/* writer: the thread */
	struct zi_line completed; /* calls, so far */
	struct zi_line sleeping;

	/* the thread's own */
	uint32_t taken; /* of the ring */
	uint64_t pass;
	struct zi_node_op *first, **last;
	struct zi_meet_wants wants;
};

/* ---- the thread ---- */

static void take(struct zi_node_queue *queue)
{
	uint32_t end = zi_line_load(&queue->submitted);

	for (; queue->taken != end; queue->taken++) {
		struct zi_node_op *op = queue->ring[queue->taken % ZI_NODE_QUEUE_MAX];

		op->next = NULL;
		*queue->last = op;
		queue->last = &op->next;
	}
}

/* A full eventfd has rung already. */
static void ring_event(const struct zi_node_queue *queue)
{
	const uint64_t one = 1;
	uint32_t event = zi_line_load(&queue->event);

	while (event && write((int)event - 1, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Takes *place out of the list; from here on it is the caller's. */
static void complete(struct zi_node_queue *queue, struct zi_node_op **place)
{
	struct zi_node_op *op = *place;

	*place = op->next;
	if (!*place)
		queue->last = place;
	__atomic_store_n(&op->state, ZI_NODE_DONE, __ATOMIC_RELEASE);
	zi_line_store(&queue->completed, queue->completed.value + 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with the one in zi_node_queue_wait() */
	if (zi_line_load(&queue->waiting))
		zi_futex_wake(&queue->completed.value);
	ring_event(queue);
}

/* Every call once, oldest first. Return: whether one was completed. */
static bool pass_over(struct zi_node_queue *queue)
{
	bool is_any_done = false;

	queue->pass++;
	zi_meet_wants_clear(&queue->wants);
	for (struct zi_node_op **place = &queue->first; *place;) {
		if (zi_node_op_poll(*place, queue->pass, &queue->wants) == ZI_NODE_E_WAITS) {
			place = &(*place)->next;
			continue;
		}
		complete(queue, place);
		is_any_done = true;
	}
	return is_any_done;
}

static uint64_t next_deadline_ns(const struct zi_node_queue *queue)
{
	uint64_t deadline_ns = ZI_DEADLINE_NEVER;

	for (const struct zi_node_op *op = queue->first; op; op = op->next)
		deadline_ns = ZI_MIN(deadline_ns, op->call.deadline_ns);
	return deadline_ns;
}

/* Whether @op, which is older than @waiter, goes before it: of messages, one of @op's does. */
static bool goes_before(const struct zi_node_op *op, const struct zi_node_op *waiter)
{
	if (op->group != waiter->group || !op->p2p_count != !waiter->p2p_count)
		return false;
	return !op->p2p_count || zi_node_op_find_before(op, waiter);
}

/* What has begun and keeps *@waiter, which has not, waiting, maybe by what else has not: then that
 * is the waiter. Or NULL. */
static struct zi_node_op **find_blocker(struct zi_node_queue *queue,
                                        const struct zi_node_op **waiter)
{
	struct zi_node_op **place = &queue->first;

	while (*place != *waiter) {
		if (!goes_before(*place, *waiter)) {
			place = &(*place)->next;
			continue;
		}
		if ((*place)->is_begun)
			return place;
		*waiter = *place; /* older: this comes to an end */
		place = &queue->first;
	}
	return NULL;
}

/* One that is late at @now_ns. If it has not begun, what it waits for ends by its deadline: then
 * the group is over, and the next pass ends the rest. Return: whether there was one. */
static bool fail_late(struct zi_node_queue *queue, uint64_t now_ns)
{
	for (struct zi_node_op **place = &queue->first; *place; place = &(*place)->next) {
		struct zi_node_op **late = place;
		const struct zi_node_op *waiter = *place;

		if ((*place)->call.deadline_ns > now_ns)
			continue;
		if (zi_node_op_is_canceled(*place))
			continue; /* The next pass ends it. */
		if (!(*place)->is_begun)
			late = find_blocker(queue, &waiter);
		if (!late)
			continue;
		zi_node_op_fail(*late, waiter, -ETIMEDOUT, (*place)->call.timeout_ns);
		complete(queue, late);
		return true;
	}
	return false;
}

/* All that have begun; the others wait for them, and their group is over with them. */
static void fail_all(struct zi_node_queue *queue, int error)
{
	for (struct zi_node_op **place = &queue->first; *place;) {
		if (!(*place)->is_begun) {
			place = &(*place)->next;
			continue;
		}
		zi_node_op_fail(*place, *place, error, 0);
		complete(queue, place);
	}
}

static void cancel_all(struct zi_node_queue *queue)
{
	while (queue->first) {
		struct zi_node_op *op = queue->first;

		op->result = zi_text_error(&op->text, -ECANCELED,
		                           "the connection was closed before the call was over");
		(void)zi_node_set_over(op->group, -ECANCELED); /* or it was over */
		complete(queue, &queue->first);
	}
}

static int thread_main(void *arg)
{
	struct zi_node_queue *queue = arg;
	uint64_t now_ns = 0;
	int end = 0;

	for (;;) {
		uint32_t rung = zi_line_load(&queue->bell);
		bool is_any_done;

		/* After the bell: who stops the queue rings it then, and no ring is slept over. */
		if (zi_line_load(&queue->stopping))
			break;
		/* What ended the wait, and the clock, count only for what still waits after a look
		 * at the words; see wait_for() in op.c. */
		if (queue->first)
			now_ns = zi_clock_now_ns();
		take(queue);
		is_any_done = pass_over(queue);
		if (end)
			fail_all(queue, end);
		if (fail_late(queue, now_ns) || is_any_done || end) {
			end = 0;
			continue;
		}
		/* The bell comes last: its word is not dropped when there are too many. */
		if (queue->wants.count == ZI_MEET_WANTS_MAX) {
			queue->wants.count--;
			queue->wants.is_cut = true;
		}
		zi_meet_want(&queue->wants, NULL, &queue->bell.value, rung + 1);
		/* A caller that waits is asleep: then this thread is who waits for its rank. */
		queue->wants.is_beside = !zi_line_load(&queue->waiting);
		end = zi_meet_wait(&queue->wants, &queue->sleeping, next_deadline_ns(queue));
		if (end == -ETIMEDOUT) /* by the clock: of those that are late alone */
			end = 0;
	}
	take(queue);
	cancel_all(queue);
	return 0;
}

/* ---- the caller ---- */

int zi_node_queue_new(struct zi_node_queue **ret_queue)
{
	struct zi_node_queue *queue = aligned_alloc(ZI_LINE_BYTES, sizeof(*queue));

	if (!queue)
		return err_origin(-ENOMEM);
	*queue = (struct zi_node_queue){ .last = NULL };
	queue->last = &queue->first;
	*ret_queue = queue;
	return 0;
}

static void ring_bell(struct zi_node_queue *queue)
{
	zi_line_store(&queue->bell, queue->bell.value + 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with the one in sleep_on(), meet.c */
	if (zi_line_load(&queue->sleeping))
		zi_futex_wake(&queue->bell.value);
}

struct zi_node_queue *zi_node_queue_free(struct zi_node_queue *queue)
{
	if (!queue)
		return NULL;
	zi_line_store(&queue->stopping, 1);
	ring_bell(queue);
	(void)zi_thread_join(&queue->thread); /* returns 0 always */
	free(queue);
	return NULL;
}

void zi_node_queue_notify(struct zi_node_queue *queue, int event_fd)
{
	zi_line_store(&queue->event, (uint32_t)event_fd + 1);
}

bool zi_node_queue_is_busy(const struct zi_node_queue *queue)
{
	return queue && zi_line_load(&queue->completed) != queue->submitted.value;
}

/* Return: op->result; -EINTR, and the thread goes on with it. */
static int await_result(struct zi_node_queue *queue, struct zi_node_op *op)
{
	int r = zi_node_queue_await(queue, op, ZI_DEADLINE_NEVER, op->call.interrupt);

	op->is_interrupted = r;
	return err_trace(r ? r : op->result);
}

int zi_node_queue_run(struct zi_node_queue *queue, struct zi_node_op *op)
{
	int r;

	if (op->is_interrupted && zi_node_op_is_queued(op)) /* the thread has it */
		return err_trace(await_result(queue, op));
	/* Its group is the caller's as long as it is interrupted, whatever the thread does. */
	if (op->is_interrupted || !zi_node_queue_is_busy(queue)) {
		zi_node_op_run(op);
		__atomic_store_n(&op->state, op->is_interrupted ? ZI_NODE_NEW : ZI_NODE_DONE,
		                 __ATOMIC_RELAXED); /* of one thread */
		return err_trace(op->result);
	}
	r = zi_node_queue_submit(queue, op);
	return r ? err_trace(r) : err_trace(await_result(queue, op));
}

int zi_node_queue_submit(struct zi_node_queue *queue, struct zi_node_op *op)
{
	int r = 0;

	if (queue->submitted.value - zi_line_load(&queue->completed) >= ZI_NODE_QUEUE_MAX)
		return err_origin(zi_text_error(&op->text, -EAGAIN,
		                                "%u calls are under way: wait for one",
		                                ZI_NODE_QUEUE_MAX));
	if (!queue->thread.is_started)
		r = zi_thread_start(&queue->thread, "zinf-coll", thread_main, queue);
	if (r)
		return err_trace(zi_text_error(&op->text, r, "no thread for asynchronous calls: %s",
		                               zi_err_name(r)));
	if (!op->call.deadline_ns)
		op->call.deadline_ns = zi_clock_deadline_ns(op->call.timeout_ns);
	op->state = ZI_NODE_QUEUED;
	op->is_begun = false;
	queue->ring[queue->submitted.value % ZI_NODE_QUEUE_MAX] = op;
	zi_line_store(&queue->submitted, queue->submitted.value + 1); /* pairs with take() */
	ring_bell(queue);
	return 0;
}

/* While `completed` is @completed and nobody interrupts. */
static void sleep_on(const struct zi_node_queue *queue, uint32_t completed, uint64_t until_ns,
                     const struct zi_line *interrupt)
{
	struct timespec until = { .tv_sec = (time_t)(until_ns / ZI_NS_PER_S),
		                  .tv_nsec = (long)(until_ns % ZI_NS_PER_S) };
	struct futex_waitv waits[] = {
		{ .val = completed,
		  .uaddr = (uintptr_t)&queue->completed.value,
		  .flags = FUTEX_32 },
		{ .val = 0,
		  .uaddr = interrupt ? (uintptr_t)&interrupt->value : 0,
		  .flags = FUTEX_32 },
	};

	(void)syscall(SYS_futex_waitv, waits, interrupt ? 2 : 1, 0,
	              until_ns == ZI_DEADLINE_NEVER ? NULL : &until, CLOCK_MONOTONIC);
}

int zi_node_queue_await(struct zi_node_queue *queue, struct zi_node_op *op, uint64_t until_ns,
                        const struct zi_line *interrupt)
{

	/* The thread may have this CPU: that is cheaper than to be woken by it. */
	for (uint32_t i = 0; i < QUEUE_YIELDS && !zi_node_op_is_done(op); i++)
		(void)sched_yield();
	while (!zi_node_op_is_done(op)) {
		uint32_t completed = zi_line_load(&queue->completed);

		if (interrupt && zi_line_load(interrupt))
			return err_origin(-EINTR);
		zi_line_store(&queue->waiting, 1);
		__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with the one in complete() */
		if (!zi_node_op_is_done(op))
			sleep_on(queue, completed, until_ns, interrupt);
		zi_line_store(&queue->waiting, 0);
		if (until_ns != ZI_DEADLINE_NEVER && zi_clock_now_ns() >= until_ns)
			return zi_node_op_is_done(op) ? 0 : err_origin(-ETIMEDOUT);
	}
	return 0;
}

bool zi_node_queue_wait(struct zi_node_queue *queue, struct zi_node_op *op, uint64_t until_ns)
{
	return zi_node_queue_await(queue, op, until_ns, NULL) == 0;
}

bool zi_node_queue_cancel(struct zi_node_queue *queue, struct zi_node_op *op)
{
	uint32_t state = ZI_NODE_QUEUED;

	/* Pairs with the claim of whoever begins it. */
	if (!__atomic_compare_exchange_n(&op->state, &state, ZI_NODE_CANCELED, false,
	                                 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return false;
	ring_bell(queue);
	return true;
}
