/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group's calls across nodes, as the ranks of this node make them; see common/wire/far.h for
 * what lies where. Floor 3, of zinf-net. Owner: the operations' thread.
 *
 * This worker is one more member of the node's board. For each call: when all ranks here have
 * posted it, nodes tell each other what it is; when they agree, the worker posts it as well, and
 * then its pieces go, several at a time (follow_pieces.c). When they do not, what it posts is the
 * reason, the same on all nodes, and the group stands.
 */
#include <string.h>
#include <sys/mman.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/wire/verdict.h"
#include "daemon/worker/net/follow_private.h"
#include "daemon/worker/net/mail.h"
#include "daemon/worker/shares.h"

/* ---- waiting for ranks of this node ---- */

/* Until one of @wants, all of ranks here, may have come. @member: who is waited for, or
 * NET_CULPRIT_NONE. */
static int await_any(struct follow *follow, struct zi_meet_wants *wants, uint32_t member)
{
	if (zi_meet_load(&follow->worker->stop))
		return err_origin(zi_text_error(follow->text, -ECANCELED, "broken off"));
	zi_meet_want(wants, NULL, &follow->worker->stop, 1);
	if (zi_meet_wait(wants, NULL, follow->is_late ? ZI_DEADLINE_NEVER : follow->deadline_ns) !=
	    -ETIMEDOUT)
		return 0;
	/* The daemon knows which one it is, and what it does instead. */
	follow->is_late = true;
	worker_tell_late(follow->worker, follow->sequence, member);
	return 0;
}

/* Documented in follow_private.h. */
int follow_await_step(struct follow *follow, uint32_t member, uint32_t value)
{
	const uint32_t *word = &follow->meet.members[member].step.value;

	while (!zi_meet_has_come(word, value)) {
		struct zi_meet_wants wants = { .count = 0 };
		int r;

		zi_meet_want(&wants, &follow->meet, word, value);
		r = await_any(follow, &wants, member);
		if (r)
			return err_trace(r);
	}
	return 0;
}

/* A rank of this node waits until then and a margin longer, in which nodes tell each other whose
 * fault it is: most of it is to listen. */
static void take_deadline(struct follow *follow, const struct zi_board_call *call)
{
	uint64_t margin_ns = zi_far_margin_ns(call->target * ZI_NS_PER_MS); /* hearsay */

	follow->deadline_ns = ZI_MIN(follow->deadline_ns, call->source);
	follow->timeout_ms = (uint32_t)ZI_MIN((uint64_t)follow->timeout_ms, call->target);
	follow->worker->moment_ns = ZI_MIN(follow->worker->moment_ns, margin_ns / 5 * 3);
}

/* Those who have come say until when they wait; what the others would say comes with them. */
static int await_posts(struct follow *follow)
{
	follow->deadline_ns = ZI_DEADLINE_NEVER;
	follow->timeout_ms = UINT32_MAX;
	follow->worker->moment_ns = NODES_MOMENT_NS;
	follow->is_late = false;
	for (;;) {
		struct zi_meet_wants wants = { .count = 0 };
		int r;

		for (uint32_t i = 0; i < follow->shape.self_count; i++) {
			const struct zi_board_post *post =
				zi_meet_post_of(&follow->meet, i, follow->sequence);

			if (zi_meet_has_come(&post->sequence, follow->sequence))
				take_deadline(follow, &post->call);
			else
				zi_meet_want(&wants, &follow->meet, &post->sequence,
				             follow->sequence);
		}
		if (!wants.count)
			return 0;
		r = await_any(follow, &wants, NET_CULPRIT_NONE);
		if (r)
			return err_trace(r);
	}
}

/* ---- calls ---- */

/*
 * What all nodes conclude of the call that the ranks of this one have posted. @ret_answer: what
 * this worker posts of it; its flags say how it goes on: refused, with @reason, small, direct; none
 * of these: in pieces. Return: 0, or an error that ends the group, with follow->text.
 */
static int judge_call(struct follow *follow, struct follow_card *call, struct zi_text *reason,
                      struct zi_board_call *ret_answer)
{
	struct zi_board_call answer = { .operation = 0 };
	struct zi_frame_call small;
	uint32_t source_bytes;
	int r, refusal;

	follow_make_card(follow, call);
	call->is_direct = !call->error && follow_can_direct(follow, call);
	follow->cards[follow->shape.node] = *call;
	follow->is_met = false;
	r = follow_exchange_frames(follow, call);
	if (r)
		return err_trace(r);
	follow->is_met = true;
	refusal = follow_judge(follow, reason);
	if (!refusal && call->operation == ZI_COLL_ALL_TO_ALLV) {
		call->element_count = follow_longest(follow);
		r = follow_exchange_counts(follow);
		if (r)
			return err_trace(r);
		refusal = follow_judge_counts(follow, reason);
	}
	answer.operation = call->operation;
	answer.element_count = call->element_count;
	small = follow_frame_call(call);
	if (refusal) {
		answer.flags = ZI_BOARD_REFUSED;
		answer.root = (uint32_t)-refusal;
	} else if (zi_frame_is_small(&follow->shape, &small, &source_bytes)) {
		answer.flags = ZI_BOARD_SMALL;
		follow_give_small(follow, &small, source_bytes);
	} else if (follow_all_direct(follow)) {
		answer.flags = ZI_BOARD_DIRECT;
	}
	*ret_answer = answer;
	return 0;
}

/* Whether ranks hear that a call goes straight before its data do, as they have a part in it. */
static bool is_shared(const struct follow *follow)
{
	return follow->shape.self_count > 1;
}

/* One piece. A rank alone hears of the call when all of it is behind; several have heard, and wait
 * until all of them have taken what the others have for them, as none may go on before. */
static int run_direct(struct follow *follow, const struct follow_card *call)
{
	uint32_t *word = &follow->meet.members[follow->meet.self].step.value;
	uint32_t step = (uint32_t)zi_far_number(follow->steps++, follow->sequence) + 1;
	int r = follow_run_direct(follow, call);

	for (uint32_t i = 0; i < follow->shape.self_count && is_shared(follow) && !r; i++)
		r = follow_await_step(follow, i, step);
	if (r)
		return err_trace(r);
	if (is_shared(follow))
		zi_meet_tell(&follow->meet, word, step);
	else
		__atomic_store_n(word, step, __ATOMIC_RELEASE); /* for those who look */
	return 0;
}

static int run_call(struct follow *follow)
{
	struct zi_text reason = { "" };
	struct zi_board_call answer;
	struct follow_card call;
	bool is_direct;
	int r = 0;

	/* Why is control's to say; see worker_end_watched(). */
	if (follow->sequence > __atomic_load_n(&follow->worker->last, __ATOMIC_SEQ_CST))
		r = zi_text_error(follow->text, -ECANCELED, "broken off");
	r = r ? r : await_posts(follow);
	if (r)
		return err_trace(r);
	__atomic_store_n(&follow->worker->moving, follow->sequence, __ATOMIC_SEQ_CST);
	r = judge_call(follow, &call, &reason, &answer);
	/* Of one that is refused or small all has come; zi_meet_load() pairs with it. */
	__atomic_store_n(&follow->worker->is_loaded, !r && !(answer.flags & ~ZI_BOARD_DIRECT),
	                 __ATOMIC_RELEASE);
	is_direct = !r && answer.flags & ZI_BOARD_DIRECT;
	if (is_direct && !is_shared(follow))
		r = run_direct(follow, &call);
	if (r)
		return err_trace(r);
	zi_meet_post(&follow->meet, follow->sequence, 0, &answer, 0, reason.chars,
	             answer.flags & ZI_BOARD_REFUSED ? (uint32_t)strlen(reason.chars) + 1 : 0);
	if (is_direct && is_shared(follow))
		return err_trace(run_direct(follow, &call));
	return answer.flags ? 0 : err_trace(follow_run_pieces(follow, &call));
}

static int prepare(struct follow *follow)
{
	const struct net_follow *message = follow->message;
	struct worker *worker = follow->worker;
	const struct exchange_slab *board = &worker->slabs[NET_SLAB_BOARD];
	const struct exchange_slab *verdicts = &worker->slabs[NET_SLAB_VERDICTS];
	uint64_t seen = 0;
	uint32_t nodes[ZI_WORLD_MAX];

	follow->slab = &worker->slabs[NET_SLAB_DATA];
	for (uint32_t i = 0; i < message->member_count; i++) {
		seen |= 1ull << message->nodes[i];
		nodes[i] = message->nodes[i];
	}
	if (seen != UINT64_MAX >> (64 - worker->join.node_count) ||
	    follow->slab->bytes < ZI_FAR_GROUP_BYTES || !verdicts->memory)
		return err_origin(zi_text_error(follow->text, -EINVAL,
		                                "group %u is on other nodes than its mesh, or has "
		                                "no memory",
		                                message->group));
	zi_far_shape_init(&follow->shape, message->nodes, message->member_count,
	                  worker->join.node_count, worker->join.node);
	if (board->bytes < zi_board_bytes(follow->shape.self_count + 2))
		return err_origin(zi_text_error(follow->text, -EINVAL, "the board is too short"));
	follow->meet = (struct zi_meet){
		.members = (void *)board->memory,
		.verdict = &follow->broken,
		.spin_us = &((const struct zi_verdicts *)verdicts->memory)->spin_us,
		.member_count = follow->shape.self_count + 1,
		.self = follow->shape.self_count,
	};
	return err_trace(
		subtree_plan_init(&follow->plan, nodes, message->member_count, follow->text));
}

static int start_mail(const struct follow *follow, struct mail **ret_mail)
{
	return err_trace(mail_start(
		&(struct mail_options){
			.nodes = follow->worker->nodes,
			.shape = &follow->shape,
			.board = follow->meet.members,
			.slab = follow->slab->memory,
			.slab_bytes = follow->slab->bytes,
			.group = follow->message->group,
			.ranks = follow->message->ranks,
			.is_carrying = &follow->worker->is_carrying,
			.is_loaded = &follow->worker->is_loaded,
			.failed = worker_mail_failed,
			.late = worker_tell_late_message,
			.arg = follow->worker,
		},
		follow->text, ret_mail));
}

/* What ranks use again once they have heard of the end: what others still send goes nowhere. */
static void let_go(struct follow *follow)
{
	static const struct exchange_slab none = { .memory = NULL };
	struct worker *worker = follow->worker;
	struct exchange_slab *arenas = &worker->slabs[NET_SLAB_ARENAS];

	follow_frames_end(follow);
	follow_pieces_end(follow);
	(void)exchange_room_map(worker->room, NET_SLAB_DATA, &none);   /* Takes none. */
	(void)exchange_room_map(worker->room, NET_SLAB_ARENAS, &none); /* So. */
	if (arenas->memory)
		(void)munmap(arenas->memory, arenas->bytes); /* As it was mapped. */
	*arenas = none;
}

/* Documented in worker.h. */
int worker_follow(struct worker *worker, const struct net_follow *message, struct zi_text *text,
                  uint32_t *ret_suspect)
{
	struct follow follow = {
		.worker = worker, .message = message, .text = text, .suspect = ret_suspect
	};
	struct mail *mail = NULL;
	int r = prepare(&follow);

	r = r ? r : follow_frames_begin(&follow);
	r = r ? r : follow_pieces_begin(&follow);
	r = r ? r : start_mail(&follow, &mail);
	while (!r) {
		follow.sequence++;
		r = run_call(&follow);
		if (!r)
			worker->done = follow.sequence;
		__atomic_store_n(&worker->moving, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&worker->is_loaded, 0, __ATOMIC_RELEASE);
	}
	let_go(&follow);
	mail = mail_stop(mail);
	return err_trace(r);
}
