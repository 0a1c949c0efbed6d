/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shard's poller: looks at every attached session's submission ring, takes a bounded batch from
 * each, and decides when to spin and when to sleep. Floor 6, shard thread. The hot path: an empty
 * request passes sess_poll_one() → sess_dispatch() → sess_complete() → sess_wake() and nothing
 * else.
 *
 * Credit. A slot is popped only when the completion it will cause has a place: pending operations
 * and completions that the client has not reaped together never exceed the ring. So the completion
 * ring cannot be full (but by a client that lies), and a client that does not reap stops itself
 * alone: its SQ is left alone ("stalled") until it reaps. Nothing tells us when it does, so a
 * stalled ring is looked at again each SESS_STALL_NS. Credit is also bounded by the session's share
 * of the operations' pool, which therefore is never empty.
 */
#include "daemon/session/poll.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/session/complete.h"
#include "daemon/session/dispatch.h"
#include "daemon/session/reaper.h"
#include "daemon/session/sess.h"

/* Far longer than a client needs to reap, far shorter than what anybody notices. */
#define SESS_STALL_NS ZI_NS_PER_MS

/* Nothing to do: the session is looked at when its time comes. */
static void sess_stall_due(struct zi_timer *timer)
{
	(void)timer;
}

/* Looks at cq_head anew. 0; -EPROTO when it lies. */
static int sess_refill_credit(struct sess *session)
{
	struct sess_shard *shard = session->shard;
	uint32_t free_count;
	int r;

	r = zi_ring_free_count(&session->cq, &free_count);
	if (r)
		return err_trace(r);
	/* A client that turned its head back would have promised places that are gone. */
	if (free_count < session->inflight_count)
		return err_origin(-EPROTO);
	assert(session->inflight_count <= shard->inflight_per_session_max);
	session->credit_count = ZI_MIN(free_count - session->inflight_count,
	                               shard->inflight_per_session_max - session->inflight_count);
	session->is_stalled = !session->credit_count;
	if (session->is_stalled && free_count < session->cq.entries && !shard->stall_timer.loop)
		zi_loop_arm(shard->loop, &shard->stall_timer, zi_clock_deadline_ns(SESS_STALL_NS),
		            sess_stall_due);
	return 0;
}

/* Takes a batch. Return: slots taken. */
static uint32_t sess_poll_one(struct sess *session)
{
	uint32_t count = 0;
	int r = 0;

	while (count < SESS_SLOTS_PER_TURN && !session->is_doomed) {
		struct zi_sqe sqe;

		if (!session->credit_count) {
			r = sess_refill_credit(session);
			if (r || session->is_stalled)
				break;
		}
		r = zi_ring_pop(&session->sq, &sqe);
		if (r)
			break;
		session->credit_count--;
		count++;
		r = sess_dispatch(session, &sqe);
		if (r) {
			sess_doom(session, false, "process %d broke the protocol: %s", session->pid,
			          session->shard->text.chars);
			return count;
		}
	}
	if (r == -EPROTO)
		sess_doom(session, false, "process %d broke the protocol: a ring index lies",
		          session->pid);
	return count;
}

/* Not SESS_SLOTS_PER_TURN × sessions_max at once: every session has its turn, then the loop has
 * its. */
static bool sess_poll(void *arg)
{
	struct sess_shard *shard = arg;
	uint32_t count = 0;

	for (uint32_t i = 0; i < shard->polled_count; i++) {
		struct sess *session = shard->polled[i];

		if (session->is_doomed)
			continue;
		count += sess_poll_one(session);
		if (session->is_wake_due)
			sess_wake(session);
	}
	shard->request_count += count;
	if (shard->doomed_count)
		sess_reap_doomed(shard);
	return count > 0;
}

/* Asks every client to ring. A stalled ring has work that we cannot take: it does not keep us up.
 * */
static bool sess_arm(void *arg)
{
	struct sess_shard *shard = arg;
	bool is_idle = true;

	for (uint32_t i = 0; i < shard->polled_count; i++) {
		struct sess *session = shard->polled[i];

		if (!zi_ring_arm(&session->sq) && !session->is_stalled)
			is_idle = false;
	}
	return is_idle && !shard->doomed_count;
}

static void sess_disarm(void *arg)
{
	struct sess_shard *shard = arg;

	for (uint32_t i = 0; i < shard->polled_count; i++)
		zi_ring_disarm(&shard->polled[i]->sq);
	shard->wakeup_count++;
}

/*
 * Spinning pays while it takes no CPU from anybody: ranks that may be computing (all that are not
 * waiting for their step), this thread, and the pool's threads while an operation keeps them busy
 * must not be more than the CPUs. (On one CPU spinning makes a round trip 300 times slower.)
 */
static uint64_t sess_spin_ns(void *arg)
{
	const struct sess_shard *shard = arg;
	uint32_t busy_count = shard->polled_count - shard->waiting_count + 1;

	if (!shard->polled_count)
		return 0;
	if (shard->computing_count)
		busy_count += shard->pool_threads;
	return busy_count <= shard->cpu_count ? shard->limits.spin_ns : 0;
}

const struct zi_poller sess_poller = {
	.poll = sess_poll,
	.arm = sess_arm,
	.disarm = sess_disarm,
	.spin_ns = sess_spin_ns,
};
