/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call from its beginning to its end, whoever drives it: its caller, or the queue's thread. Here
 * it is decided whose turn it is, and when a group is over. Floor 2.
 */
#include "libclient/coll/node/op.h"

#include <errno.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/wire/verdict.h"
#include "libclient/coll/node/call.h"
#include "libclient/coll/node/check.h"
#include "libclient/coll/node/fail.h"
#include "libclient/coll/node/members.h"
#include "libclient/coll/node/pair.h"
#include "libclient/coll/node/pair_refuse.h"
#include "libclient/coll/node/posts.h"

/* Waits between two looks at the clock: each may have spun for 10 ms. */
#define OP_WAITS_PER_CLOCK 16u

/* ---- messages ---- */

/* 0, which is always free: the peer is none, so that the message is refused without a turn. */
static uint64_t bit_of(const struct zi_node_group *group, const struct zi_node_p2p *p2p)
{
	return p2p->peer < zi_node_members(group) ? 1ull << p2p->peer : 0;
}

/* 0; else why this member refuses the batch. */
static int check_messages(struct zi_node_group *group, const struct zi_node_p2p *p2ps,
                          uint32_t p2p_count, const struct zi_node_call *call, struct zi_text *text)
{
	int to_self = 0;

	if (call->refused) {
		assert(zi_verdict_is_refusal(call->refused));
		return err_origin(zi_text_error(text, call->refused, "%s", call->reason));
	}
	for (uint32_t i = 0; i < p2p_count; i++) {
		int r = zi_node_check_p2p(group, &p2ps[i], text);

		if (r)
			return err_trace(r);
		if (p2ps[i].peer == zi_node_self(group))
			to_self += p2ps[i].is_send ? 1 : -1;
	}
	if (!to_self)
		return 0;
	return err_origin(zi_text_error(
		text, -EINVAL, "%d %s to this member itself: the batch needs the other side too",
		to_self > 0 ? to_self : -to_self, to_self > 0 ? "sends" : "receives"));
}

/* All of a batch, before the first is posted: when one has a fault, all are refused in their turns,
 * of which each peer is told. @refusal: see struct zi_node_op. */
static void begin_messages(struct zi_node_group *group, struct zi_node_p2p *p2ps,
                           uint32_t p2p_count, const struct zi_node_call *call, uint32_t *refusal,
                           struct zi_text *text)
{
	int r = check_messages(group, p2ps, p2p_count, call, text);

	group->culprit = r ? zi_node_self(group) : ZI_NODE_NOBODY;
	if (!r)
		return;
	for (uint32_t i = 0; i < p2p_count; i++) {
		/* Only with messages to tell it by does a reason take the place of an older one. */
		if (!*refusal && zi_pair_has_peer(group, &p2ps[i]))
			*refusal = zi_node_post_reason(group, r, text);
		p2ps[i].message.error = r;
		p2ps[i].message.refusal = *refusal;
	}
}

/* Messages of a pair go one after the other: whoever is not over keeps the later ones waiting.
 * Return: 0 all are over, a fatal error, ZI_NODE_E_WAITS. */
static int poll_messages(struct zi_node_group *group, struct zi_node_p2p *p2ps, uint32_t p2p_count,
                         uint64_t deadline_ns, struct zi_meet_wants *wants, struct zi_text *text)
{
	bool is_waiting = false;

	for (uint32_t i = 0; i < p2p_count; i++) {
		uint64_t *busy = p2ps[i].is_send ? &group->turn.sends : &group->turn.takes;
		uint64_t bit = bit_of(group, &p2ps[i]);
		struct zi_text reason;
		int r = ZI_NODE_E_WAITS;

		if (p2ps[i].message.phase == ZI_NODE_MESSAGE_OVER)
			continue;
		if (!(*busy & bit))
			r = zi_node_poll_message(group, &p2ps[i], deadline_ns, wants, &reason);
		if (r == ZI_NODE_E_WAITS) {
			*busy |= bit;
			is_waiting = true;
			continue;
		}
		p2ps[i].message.result = r;
		if (r && !p2ps[i].message.error)
			zi_text_set(text, "%s", reason.chars);
		if (r && !zi_verdict_is_refusal(r)) {
			group->culprit = p2ps[i].peer;
			return err_trace(zi_node_over_by_message(group, &p2ps[i], r, 0));
		}
	}
	return is_waiting ? ZI_NODE_E_WAITS : 0;
}

/* Of the first that failed. */
static int result_of(const struct zi_node_p2p *p2ps, uint32_t p2p_count)
{
	for (uint32_t i = 0; i < p2p_count; i++)
		if (p2ps[i].message.result)
			return p2ps[i].message.result;
	return 0;
}

/* ---- in the queue ---- */

static void renew_turn(struct zi_node_group *group, uint64_t pass)
{
	if (group->turn.pass != pass)
		group->turn = (struct zi_node_turn){ .pass = pass };
}

/* From here on it cannot be canceled. Return: whether it was not. */
static bool claim(struct zi_node_op *op)
{
	uint32_t state = ZI_NODE_QUEUED;

	/* Pairs with zi_node_queue_cancel(). */
	return __atomic_compare_exchange_n(&op->state, &state, ZI_NODE_RUNNING, false,
	                                   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
	       state == ZI_NODE_RUNNING;
}

static int say_canceled(struct zi_node_op *op)
{
	return err_origin(zi_text_error(&op->text, -ECANCELED, "canceled before it was posted"));
}

static int end_op(struct zi_node_op *op, int result)
{
	op->result = result;
	op->culprit = op->group->culprit;
	return 0;
}

/* Until @op, begun, may be posted: it can be canceled so long. Return: 0, an error,
 * ZI_NODE_E_WAITS. */
static int poll_unposted(struct zi_node_op *op, struct zi_meet_wants *wants)
{
	int r = zi_node_ready(op->group, wants, &op->text);

	if (!r && !claim(op))
		r = say_canceled(op);
	return r;
}

/* Return, as of the next two: 0 it is done, ZI_NODE_E_WAITS. */
static int poll_collective(struct zi_node_op *op, struct zi_meet_wants *wants)
{
	struct zi_node_group *group = op->group;
	int r = 0;

	if (group->turn.is_busy)
		return ZI_NODE_E_WAITS;
	if (!op->is_begun) {
		r = zi_node_check_group(group, &op->text);
		if (r)
			return end_op(op, r);
		zi_node_begin(group, &op->call);
		op->is_begun = true;
	}
	if (group->run.phase == ZI_NODE_CATCH_UP)
		r = poll_unposted(op, wants);
	if (!r)
		r = zi_node_poll(group, wants, &op->text);
	op->sequence = zi_node_awaited(group);
	if (r == ZI_NODE_E_WAITS) {
		group->turn.is_busy = true;
		return r;
	}
	if (r && !zi_verdict_is_spared(r))
		(void)zi_node_over_by_call(group, r, 0); /* It is @r. */
	return end_op(op, r);
}

static bool is_any_free(const struct zi_node_op *op)
{
	const struct zi_node_turn *turn = &op->group->turn;

	for (uint32_t i = 0; i < op->p2p_count; i++)
		if (!((op->p2ps[i].is_send ? turn->sends : turn->takes) &
		      bit_of(op->group, &op->p2ps[i])))
			return true;
	return false;
}

static int poll_batch(struct zi_node_op *op, struct zi_meet_wants *wants)
{
	struct zi_node_group *group = op->group;
	int r = 0;

	if (!op->is_begun && is_any_free(op)) {
		if (!claim(op))
			return end_op(op, say_canceled(op));
		r = zi_node_check_group(group, &op->text);
		if (!r)
			begin_messages(group, op->p2ps, op->p2p_count, &op->call, &op->refusal,
			               &op->text);
		op->is_begun = true;
	}
	if (!r && op->is_begun)
		r = poll_messages(group, op->p2ps, op->p2p_count, op->call.deadline_ns, wants,
		                  &op->text);
	else if (!r)
		r = ZI_NODE_E_WAITS;
	if (r == ZI_NODE_E_WAITS) {
		/* Nobody overtakes what has not begun. */
		for (uint32_t i = 0; i < op->p2p_count && !op->is_begun; i++)
			*(op->p2ps[i].is_send ? &group->turn.sends : &group->turn.takes) |=
				bit_of(group, &op->p2ps[i]);
		return r;
	}
	return end_op(op, r ? r : result_of(op->p2ps, op->p2p_count));
}

int zi_node_op_poll(struct zi_node_op *op, uint64_t pass, struct zi_meet_wants *wants)
{
	struct zi_node_group *group = op->group;
	int r, verdict = zi_meet_verdict(&group->meet); /* before the words: see wait_for() */

	if (zi_node_op_is_canceled(op))
		return end_op(op, say_canceled(op));
	renew_turn(group, pass);
	r = op->p2p_count ? poll_batch(op, wants) : poll_collective(op, wants);
	if (r != ZI_NODE_E_WAITS || !op->is_begun)
		return r;
	if (group->over)
		return end_op(op, zi_node_check_group(group, &op->text));
	if (!verdict)
		return ZI_NODE_E_WAITS;
	zi_node_op_fail(op, op, verdict, 0);
	return 0;
}

const struct zi_node_p2p *zi_node_op_find_before(const struct zi_node_op *op,
                                                 const struct zi_node_op *waiter)
{
	for (uint32_t i = 0; i < op->p2p_count; i++)
		for (uint32_t k = 0; k < waiter->p2p_count; k++)
			if (op->p2ps[i].message.phase != ZI_NODE_MESSAGE_OVER &&
			    op->p2ps[i].peer == waiter->p2ps[k].peer &&
			    op->p2ps[i].is_send == waiter->p2ps[k].is_send)
				return &op->p2ps[i];
	return NULL;
}

void zi_node_op_fail(struct zi_node_op *op, const struct zi_node_op *waiter, int error,
                     uint64_t timeout_ns)
{
	struct zi_node_group *group = op->group;
	const struct zi_node_p2p *late = zi_node_op_find_before(op, waiter);

	if (op->p2p_count)
		op->result = zi_node_fail_message(group, late, error, timeout_ns, &op->text);
	else
		op->result = zi_node_fail_call(group, error, timeout_ns, &op->text);
	op->culprit = group->culprit;
}

/* ---- by the caller ---- */

struct waiting {
	struct zi_meet_wants wants;
	uint64_t deadline_ns, timeout_ns; /* as those of struct zi_node_call */
	const struct zi_line *interrupt;  /* so */
	uint32_t count;                   /* of waits so far */
	int end;                          /* by what it is over; see wait_for() */
	bool is_interrupted;
};

/* The wants are cleared for each look. */
static void begin_waiting(struct waiting *waiting, const struct zi_node_call *call)
{
	waiting->deadline_ns = call->deadline_ns;
	waiting->timeout_ns = call->timeout_ns;
	waiting->interrupt = call->interrupt;
	waiting->is_interrupted = false;
	waiting->count = 0;
	waiting->end = 0;
}

static struct zi_meet_wants *clear_wants(struct waiting *waiting)
{
	zi_meet_wants_clear(&waiting->wants);
	return &waiting->wants;
}

/*
 * Until there may be something to look at. Return: false: the waiting is over, as it is
 * interrupted, or by the error in `end`: the verdict's, the deadline's, that of a daemon that is
 * gone. It counts only when the words, looked at once more, still wait: who comes to a group's last
 * call and leaves has come before the verdict.
 */
static bool wait_for(struct zi_node_group *group, struct waiting *waiting)
{
	int r = zi_meet_verdict(&group->meet);

	if (waiting->end)
		return false;
	if (!waiting->deadline_ns)
		waiting->deadline_ns = zi_clock_deadline_ns(waiting->timeout_ns);
	if (!r && waiting->interrupt) {
		waiting->is_interrupted = zi_line_load(waiting->interrupt);
		waiting->wants.stop = &waiting->interrupt->value;
	}
	if (waiting->is_interrupted)
		return false;
	if (!r)
		r = zi_meet_wait(&waiting->wants, NULL, waiting->deadline_ns);
	/* Peers that are slow, but always come while this one spins, would never be late. */
	if (!r && ++waiting->count % OP_WAITS_PER_CLOCK == 0 &&
	    zi_clock_now_ns() >= waiting->deadline_ns)
		r = -ETIMEDOUT;
	waiting->end = r;
	return true;
}

/* A call that has begun. -EINTR: @ret_deadline_ns is the one to go on with. */
static int finish_call(struct zi_node_group *group, const struct zi_node_call *call,
                       uint64_t *ret_deadline_ns, struct zi_text *text)
{
	struct waiting waiting;
	int r;

	begin_waiting(&waiting, call);
	do
		r = zi_node_poll(group, clear_wants(&waiting), text);
	while (r == ZI_NODE_E_WAITS && wait_for(group, &waiting));
	if (r == ZI_NODE_E_WAITS && waiting.is_interrupted) {
		*ret_deadline_ns = waiting.deadline_ns;
		return err_origin(-EINTR);
	}
	if (r == ZI_NODE_E_WAITS)
		return err_trace(zi_node_fail_call(group, waiting.end, call->timeout_ns, text));
	if (r && !zi_verdict_is_refusal(r))
		return err_trace(zi_node_over_by_call(group, r, 0));
	return err_trace(r);
}

int zi_node_call(struct zi_node_group *group, const struct zi_node_call *call, struct zi_text *text)
{
	uint64_t deadline_ns; /* nobody interrupts it */
	int r = zi_node_check_group(group, text);

	assert(!call->interrupt);
	if (r)
		return err_trace(r);
	zi_node_begin(group, call);
	return err_trace(finish_call(group, call, &deadline_ns, text));
}

void zi_node_settle(struct zi_node_group *group, uint64_t begin_ns)
{
	struct zi_node_run *run = &group->run;
	struct zi_node_call until = { .deadline_ns = ZI_DEADLINE_NEVER };
	struct waiting waiting;
	struct zi_text reason; /* nobody asks */
	int r;

	if (group->far || group->over || group->seen == group->sequence)
		return;
	run->phase = ZI_NODE_CATCH_UP;
	run->member = 0;
	run->needs = ZI_NEEDS_ALL;
	if (!zi_checked_add(begin_ns, group->unseen_timeout_ns, &until.deadline_ns))
		until.deadline_ns = ZI_DEADLINE_NEVER;
	begin_waiting(&waiting, &until);
	do {
		/* Who leaves as well may wait for this one, each second anew. */
		zi_node_say_again(group);
		r = zi_node_catch_up(group, clear_wants(&waiting), &reason);
	} while (r == ZI_NODE_E_WAITS && wait_for(group, &waiting));
}

/* Of messages that wait. */
static const struct zi_node_p2p *first_not_over(const struct zi_node_p2p *p2ps)
{
	while (p2ps->message.phase == ZI_NODE_MESSAGE_OVER)
		p2ps++;
	return p2ps;
}

/* Messages that have begun. @call: until when. */
static int finish_batch(struct zi_node_group *group, struct zi_node_p2p *p2ps, uint32_t p2p_count,
                        const struct zi_node_call *call, struct zi_text *text)
{
	struct waiting waiting;
	int r;

	begin_waiting(&waiting, call);
	do {
		/* Not a pass of the queue's, which begin with 1. */
		group->turn = (struct zi_node_turn){ .pass = 0 };
		r = poll_messages(group, p2ps, p2p_count, call->deadline_ns, clear_wants(&waiting),
		                  text);
	} while (r == ZI_NODE_E_WAITS && wait_for(group, &waiting));
	if (r == ZI_NODE_E_WAITS && waiting.is_interrupted)
		return err_origin(-EINTR);
	if (r == ZI_NODE_E_WAITS)
		return err_trace(zi_node_fail_message(group, first_not_over(p2ps), waiting.end,
		                                      call->timeout_ns, text));
	return err_trace(r ? r : result_of(p2ps, p2p_count));
}

int zi_node_batch(struct zi_node_group *group, struct zi_node_p2p *p2ps, uint32_t p2p_count,
                  uint64_t deadline_ns, struct zi_text *text)
{
	const struct zi_node_call call = { .deadline_ns = deadline_ns };
	uint32_t refusal = 0;
	int r = zi_node_check_group(group, text);

	if (r)
		return err_trace(r);
	begin_messages(group, p2ps, p2p_count, &call, &refusal, text);
	return err_trace(finish_batch(group, p2ps, p2p_count, &call, text));
}

/* Return: 0; why the group makes no calls. */
static int begin_op(struct zi_node_op *op)
{
	int r = zi_node_check_group(op->group, &op->text);

	if (r)
		return err_trace(r);
	if (op->p2p_count)
		begin_messages(op->group, op->p2ps, op->p2p_count, &op->call, &op->refusal,
		               &op->text);
	else
		zi_node_begin(op->group, &op->call);
	return 0;
}

void zi_node_op_run(struct zi_node_op *op)
{
	struct zi_node_group *group = op->group;
	int r = op->is_interrupted ? 0 : begin_op(op);

	if (!r)
		r = op->p2p_count
		            ? finish_batch(group, op->p2ps, op->p2p_count, &op->call, &op->text)
		            : finish_call(group, &op->call, &op->call.deadline_ns, &op->text);
	op->is_interrupted = r == -EINTR;
	op->result = r;
	op->sequence = op->p2p_count ? 0 : zi_node_awaited(group);
	op->culprit = group->culprit;
}
