/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a slot to its handler: one table. Floor 6, shard thread. The slot is a private copy already;
 * what else the request needs (options) is copied out of the uplink here, once, and only the copy
 * is checked and used. Bad arguments fail the operation, what no libzinf would send ends the
 * session.
 */
#include "daemon/session/dispatch.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/check.h"
#include "daemon/session/complete.h"
#include "daemon/session/reaper.h"
#include "daemon/session/sess.h"

typedef void (*sess_handler_fn)(struct zero_rank *rank, struct zero_op *op);

struct sess_verb {
	sess_handler_fn handle;
	bool has_options;  /* step options lie in the uplink */
	bool has_blob;     /* args[0] bytes of blob lie in the uplink */
	bool is_waiting;   /* its rank sleeps until it completes */
	bool is_computing; /* pool threads work for it */
};

static const struct sess_verb verbs[_ZI_OP_COUNT] = {
	[ZI_OP_NOP] = { .handle = NULL }, /* completed inline */
	[ZI_OP_UNSHARD] = { .handle = zero_unshard },
	[ZI_OP_RESHARD] = { .handle = zero_reshard },
	[ZI_OP_PREFETCH] = { .handle = zero_prefetch },
	[ZI_OP_GRAD_ACQUIRE] = { .handle = zero_grad_acquire },
	[ZI_OP_REDUCE] = { .handle = zero_reduce, .is_computing = true },
	[ZI_OP_STEP_BEGIN] = { .handle = zero_step_begin, .has_options = true },
	[ZI_OP_STEP] = { .handle = zero_step,
	                 .has_blob = true,
	                 .is_waiting = true,
	                 .is_computing = true },
	[ZI_OP_COMMIT] = { .handle = zero_commit,
	                   .has_blob = true,
	                   .is_waiting = true,
	                   .is_computing = true },
	[ZI_OP_BARRIER] = { .handle = zero_barrier },
	[ZI_OP_TENSOR_ALLOC] = { .handle = zero_tensor_alloc },
	[ZI_OP_TENSOR_PUT] = { .handle = zero_tensor_put, .is_computing = true },
	[ZI_OP_TENSOR_PREFETCH] = { .handle = zero_tensor_prefetch, .is_computing = true },
	[ZI_OP_TENSOR_GET] = { .handle = zero_tensor_get, .is_computing = true },
	[ZI_OP_TENSOR_RELEASE] = { .handle = zero_tensor_release },
	[ZI_OP_TENSOR_FREE] = { .handle = zero_tensor_free },
	[ZI_OP_CANCEL] = { .handle = zero_cancel },
	[ZI_OP_GRAD_UNUSED] = { .handle = zero_grad_unused },
	[ZI_OP_STEP_OPTIONS] = { .handle = zero_step_options, .has_options = true },
	[ZI_OP_GRAD_NORM] = { .handle = zero_grad_norm, .is_computing = true },
	[ZI_OP_STEP_DISCARD] = { .handle = zero_step_discard },
	[ZI_OP_UNSHARD_PART] = { .handle = zero_unshard_part },
};

/* Of a step, as the options are: a private copy is checked and used. */
static int sess_take_groups(struct sess *session, struct zero_op *op)
{
	const char *uplink = session->uplink->region.base;
	struct zi_step_group *groups = session->shard->step_groups;
	uint32_t count = op->options.group_count;

	if (!(session->features & ZI_FEATURE_TRAINING))
		return zi_text_error(&session->shard->text, err_origin(-EPROTO),
		                     "groups of a step without feature bit 13");
	memcpy(groups, uplink + zi_uplink_groups_offset(session->sq.entries),
	       count * sizeof(*groups));
	__asm__ volatile("" ::: "memory"); /* As below. */
	op->groups = groups;
	return err_trace(zi_check_step_groups(groups, count, &session->shard->text));
}

/* The same of their betas. */
static int sess_take_betas(struct sess *session, struct zero_op *op)
{
	const char *uplink = session->uplink->region.base;
	struct zi_step_betas *betas = session->shard->step_betas;
	uint32_t count = op->options.group_count;

	memcpy(betas, uplink + zi_uplink_betas_offset(session->sq.entries), count * sizeof(*betas));
	__asm__ volatile("" ::: "memory"); /* As below. */
	op->betas = betas;
	return err_trace(zi_check_step_betas(betas, count, &session->shard->text));
}

/* What this session's libzinf cannot know. */
static int sess_check_flags(struct sess *session, const struct zero_op *op)
{
	if (!(op->options.flags & (ZI_STEP_DEFERRED | ZI_STEP_BETAS)) ||
	    session->features & ZI_FEATURE_STEPS)
		return 0;
	return zi_text_error(&session->shard->text, err_origin(-EPROTO),
	                     "deferred step options, or betas of groups, without feature bit 22");
}

/* Fills what the verb takes from the uplink. 0; -EINVAL; -EPROTO. */
static int sess_prepare(struct sess *session, const struct zi_sqe *sqe,
                        const struct sess_verb *verb, struct zero_op *op)
{
	const char *uplink = session->uplink->region.base;
	int r;

	if (verb->has_options) {
		const struct zi_uplink_header *header = (const void *)uplink;

		memcpy(&op->options, &header->step_options, sizeof(op->options));
		/* The compiler must not read the shared bytes again instead of the copy. */
		__asm__ volatile("" ::: "memory");
		r = zi_check_step_options(&op->options, &session->shard->text);
		if (!r)
			r = sess_check_flags(session, op);
		if (!r && op->options.group_count)
			r = sess_take_groups(session, op);
		if (!r && op->options.flags & ZI_STEP_BETAS)
			r = sess_take_betas(session, op);
		return err_trace(r);
	}
	if (verb->has_blob && sqe->args[0]) {
		/* Opaque bytes: whatever they are when zero copies them is the blob. */
		op->blob = uplink + zi_uplink_blob_offset(session->sq.entries);
		op->blob_bytes = sqe->args[0];
	}
	return 0;
}

/* Counts what spinning depends on; @delta: 1 or -1 (as a wrap of unsigned). */
static void sess_count(struct sess_shard *shard, uint16_t opcode, uint32_t delta)
{
	const struct sess_verb *verb = &verbs[opcode];

	if (verb->is_waiting)
		shard->waiting_count += delta;
	if (verb->is_computing)
		shard->computing_count += delta;
}

/* Context: inside zero, possibly inside the call that submitted it. */
static void sess_op_done(struct zero_op *zero_op)
{
	struct sess_op *op = container_of(zero_op, struct sess_op, op);
	struct sess *session = op->session;
	struct sess_shard *shard = session->shard;
	struct zi_sqe sqe = { .user_data = op->user_data, .opcode = op->opcode };

	assert(session->inflight_count > 0);
	session->inflight_count--;
	sess_count(shard, op->opcode, -1u);
	if (session->state == SESS_ATTACHED && !session->is_doomed) {
		if (op->op.result >= 0 && verbs[op->opcode].is_waiting) {
			struct zi_downlink_header *downlink = session->downlink->region.base;

			downlink->stats =
				op->op.stats; /* Before the completion that tells of it. */
			sqe.args[0] = (uint64_t)op->op.stats.committed_step;
			if (op->opcode == ZI_OP_STEP && op->op.culprit_unit != UINT32_MAX)
				sqe.args[1] = 1 + (uint64_t)op->op.culprit_unit;
			if (op->opcode == ZI_OP_STEP)
				sqe.args[2] = op->op.unused_count;
		} else if (op->opcode == ZI_OP_UNSHARD || op->opcode == ZI_OP_UNSHARD_PART ||
		           op->opcode == ZI_OP_GRAD_ACQUIRE || op->opcode == ZI_OP_TENSOR_ALLOC ||
		           op->opcode == ZI_OP_TENSOR_GET) {
			sqe.args[0] = op->op.offset_bytes;
		} else if (op->opcode == ZI_OP_STEP_BEGIN) {
			sqe.args[0] = op->op.micro_batches;
		} else if (op->opcode == ZI_OP_GRAD_NORM && !op->op.result) {
			memcpy(&sqe.args[0], &op->op.norm, sizeof(op->op.norm));
		}
		if (op->opcode == ZI_OP_TENSOR_GET)
			sqe.args[1] = op->op.bytes;
		sess_complete(session, &sqe, op->op.result, &op->op.text);
	}
	zi_pool_give(&shard->ops, op);
	sess_unref(session);
}

static void sess_submit(struct sess *session, const struct zi_sqe *sqe,
                        const struct sess_verb *verb, struct sess_op *op)
{
	op->session = session;
	op->user_data = sqe->user_data;
	op->opcode = sqe->opcode;
	op->op.done = sess_op_done;
	op->op.unit = sqe->unit;
	op->op.id = sqe->args[0];
	op->op.bytes = sqe->args[1];
	op->op.ticket = sqe->user_data;
	op->op.unused = &sqe->args[1];
	/* Of UNSHARD_PART: more subgroups than there are in a run are all of them. */
	op->op.part_run = (uint32_t)ZI_MIN(sqe->args[0], (uint64_t)UINT32_MAX);
	memcpy(op->op.part, &sqe->args[1], sizeof(op->op.part));
	session->inflight_count++;
	sess_ref(session);
	sess_count(session->shard, sqe->opcode, 1);
	verb->handle(session->rank, &op->op); /* May complete, and give back, at once. */
}

/**
 * sess_dispatch() - one request from a ring
 * @session: attached, with credit for its completion
 * @sqe: a private copy of the slot
 *
 * Return: 0, also when the operation failed; -EPROTO with shard->text: the session must end.
 */
int sess_dispatch(struct sess *session, const struct zi_sqe *sqe)
{
	struct sess_shard *shard = session->shard;
	const struct sess_verb *verb;
	struct sess_op *op;
	int r;

	assert(session->state == SESS_ATTACHED);
	r = zi_check_sqe(sqe, session->unit_count, &shard->text);
	if (r == -EPROTO)
		return err_trace(r);
	if (r) {
		sess_complete(session, sqe, r, &shard->text);
		return 0;
	}
	if (session->broken) {
		sess_complete(session, sqe, session->broken, &session->broken_text);
		return 0;
	}
	if (sqe->opcode == ZI_OP_NOP) {
		sess_complete(session, sqe, 0, NULL);
		return 0;
	}
	verb = &verbs[sqe->opcode];
	op = zi_pool_take(&shard->ops);
	assert(op); /* Every session has its share: poll.c. */
	r = sess_prepare(session, sqe, verb, &op->op);
	if (r) {
		zi_pool_give(&shard->ops, op);
		if (r == -EPROTO)
			return err_trace(r);
		sess_complete(session, sqe, r, &shard->text);
		return 0;
	}
	sess_submit(session, sqe, verb, op);
	return 0;
}
