/* SPDX-License-Identifier: Apache-2.0 */
/* A group that spans nodes, and its worker; see far.h. Floor 5, shard thread. */
#include "daemon/zero/collectives/far_private.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/coll/coll.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/across/talk/program.h"
#include "daemon/zero/collectives/collectives.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"

/* Nodes that do not come are named so long before the ranks' own deadlines. */
#define FAR_MARGIN_NS (500 * ZI_NS_PER_MS)

/* ---- what it is ---- */

/* See far.h. */
struct zero_job *far_job(const struct far *far)
{
	return far->job;
}

/* See far.h. */
uint32_t far_group(const struct far *far)
{
	return far->group;
}

/* See far.h. */
bool far_joins(const struct far *far)
{
	return far->joins;
}

/* See far.h. */
uint64_t far_members(const struct far *far)
{
	return far->members;
}

/* See far.h. */
uint32_t far_member_of(const struct far *far, uint32_t rank)
{
	if (!(far->members >> rank & 1))
		return UINT32_MAX;
	return (uint32_t)__builtin_popcountll(far->members & ((1ull << rank) - 1));
}

/* ---- from phase to phase ---- */

/* The next thing to ask of the worker, when the last one went well. Return: 0, or an error. */
static int advance(struct far *far, struct zi_text *text)
{
	int r;

	switch (far->phase) {
	case FAR_MEETING:
		r = meeting_take(far->job, &far->request.reply, text);
		r = r ? r : far->met(far, text);
		far->phase = FAR_JOINING;
		return r ? err_trace(r) : far_ask_join(far);
	case FAR_AGREEING:
		far->phase = far->joins ? FAR_JOINING : FAR_AGREED;
		return far->joins ? err_trace(far_ask_join(far)) : 0;
	case FAR_JOINING:
		far->phase = FAR_MAPPING;
		far->slab = NET_SLAB_DATA;
		return err_trace(far_ask_map(far));
	case FAR_MAPPING:
		if (far->slab++ < NET_SLAB_ARENAS)
			return err_trace(far_ask_map(far));
		far->phase = FAR_FOLLOWING;
		return err_trace(far_ask_follow(far));
	default:
		assert(false && "what is followed ends in an error");
		return err_origin(-EPROTO);
	}
}

/* The group is over, by another node's word or with the worker. */
static void end(struct far *far, int error, const struct zi_text *text)
{
	struct coll *coll = far->job->collectives.coll;

	if (coll && coll->groups[far->group].is_used)
		coll_break(coll, &coll->groups[far->group], error, COLL_NOBODY, text);
}

static void next_due(struct zi_timer *timer)
{
	struct far *far = container_of(timer, struct far, next);
	enum far_phase phase = far->phase;
	struct zi_text text = far->request.text;
	int r = far->request.error;

	far->failed = r ? phase : FAR_OVER;
	if (phase == FAR_FOLLOWING) {
		far->phase = FAR_OVER;
		end(far, r ? r : -EPROTO, &text);
		return;
	}
	if (!r) {
		text.chars[0] = '\0';
		r = advance(far, &text);
	}
	if (r) {
		far->phase = FAR_OVER;
		if (!text.chars[0])
			zi_text_set(&text, "zinf-net cannot be asked: %s", zi_err_name(r));
		far->joined(far, r, &text); /* May free it. */
	} else if (far->phase >= FAR_AGREED) {
		far->joined(far, 0, NULL);
	}
}

static void answered(struct net_request *request)
{
	struct far *far = container_of(request, struct far, request);

	far->is_over = far->phase == FAR_FOLLOWING;
	if (far->is_over)
		far_unmap(far);
	if (far->job)
		zi_loop_arm(far->loop, &far->next, 0, next_due);
	else if (far_is_refusal(far))
		zi_loop_arm(far->loop, &far->next, 0, far_last_due);
}

/* ---- life ---- */

/* When the first of the ranks that wait for this gives up. */
static uint64_t earliest_ns_of(const struct far *far)
{
	enum zero_gather gather =
		far->phase == FAR_MEETING ? ZERO_GATHER_COLL_OPEN : ZERO_GATHER_COLL_GROUP;
	uint64_t earliest_ns = zi_clock_deadline_ns(far->timeout_ns);

	for (uint32_t i = 0; i < far->job->group.world_size; i++) {
		const struct zero_rank *rank = far->job->group.ranks[i];
		const struct zero_op *op = rank ? rank->gathered[gather] : NULL;

		if (op)
			earliest_ns = ZI_MIN(earliest_ns, op_deadline_ns(op));
	}
	return earliest_ns;
}

/* When the worker gives up: ranks, which wait a little longer, then hear who it is. A refusal only
 * has to be told. */
static uint64_t worker_deadline_ns(const struct far *far)
{
	uint64_t now_ns = zi_clock_now_ns(), earliest_ns, left_ns;

	if (far_is_refusal(far))
		return zi_clock_deadline_ns(far_refusal_ns(far));
	earliest_ns = earliest_ns_of(far);
	left_ns = earliest_ns > now_ns ? earliest_ns - now_ns : 0;
	return earliest_ns - ZI_MIN(left_ns / 4, FAR_MARGIN_NS);
}

/* Documented in far_private.h. */
int far_new(const struct far *model, int error, const struct zi_text *why, struct zi_text *text,
            struct far **ret_far)
{
	struct far *far = malloc(sizeof(*far));
	int r;

	if (!far)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for a worker"));
	*far = *model;
	far->request.done = answered;
	far->zero = far->job->zero;
	far->loop = far->zero->options.loop;
	far->port = far->job->meeting.place->rendezvous_port;
	memcpy(far->name, far->job->name, sizeof(far->name));
	far->deadline_ns = worker_deadline_ns(far);
	r = net_program(far->program, sizeof(far->program), text);
	if (!r && tier_account_take_fds(&far->job->account->account, ZERO_WORKER_FDS, text))
		r = err_origin(-EDQUOT);
	if (!r)
		far->fd_account = &far->job->account->account;
	if (!r)
		r = net_worker_new(far->job->zero->options.loop,
		                   &(struct net_worker_options){ .program = far->program,
		                                                 .uid = far->job->uid,
		                                                 .late = far_call_late,
		                                                 .late_message = far_message_late,
		                                                 .asked = far_call_asked,
		                                                 .arg = far },
		                   &far->worker);
	if (!r)
		r = net_worker_start(far->worker, text);
	if (!r)
		r = far->phase == FAR_MEETING ? far_ask_meet(far, error, why)
		                              : far_ask_agree(far, error, why);
	if (r) {
		(void)far_destroy(far);
		return err_trace(r);
	}
	*ret_far = far;
	return 0;
}

/* Documented in the header, as are the others. */
int far_open(struct zero_job *job, far_met_fn met, far_joined_fn joined, struct zi_text *text,
             struct far **ret_far)
{
	struct far model = {
		.job = job,
		.members = job_world_mask(job),
		.timeout_ns = job->collectives.timeout_ns,
		.epoch = 1,
		.met = met,
		.joined = joined,
		.phase = FAR_MEETING,
		.joins = true,
	};

	across_forget(job->zero, job->name); /* The store's port is wanted. */
	far_forget(job->zero, job->name);
	far_forget_openings(job->zero, job->meeting.place->rendezvous_port);
	return err_trace(far_new(&model, 0, NULL, text, ret_far));
}

int far_make(struct zero_job *job, const struct far_wish *wish, far_joined_fn joined,
             struct zi_text *text, struct far **ret_far)
{
	struct far model = {
		.job = job,
		.group = wish->group,
		.members = wish->members,
		.joins = wish->joins,
		.timeout_ns = wish->timeout_ns,
		.epoch = 1 + job->collectives.group_count,
		.joined = joined,
		.phase = FAR_AGREEING,
	};

	return err_trace(far_new(&model, 0, NULL, text, ret_far));
}
