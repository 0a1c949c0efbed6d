/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is not made on this node, and is told to the others, which may wait for it: a group, or
 * collectives at all; see far.h. Floor 5, shard thread.
 *
 * Where collectives were opened each group has the store in which to say so. An opening that fails
 * may have none yet: then a worker is started that serves one, or waits for it, and stays for those
 * who come later. What it says goes with its store, and with the next opening of this node.
 */
#include <string.h>

#include "common/base/err.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/collectives/far_private.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"

/* One that has to come to the store first. */
#define FAR_REFUSAL_NS (10 * ZI_NS_PER_S)
/* Of an opening: nodes are not started at the same moment. */
#define FAR_TOLD_NS (60 * ZI_NS_PER_S)
/* So many of a job at a time: ranks may wish for what cannot be as often as they like. Of more the
 * other nodes hear by their deadlines. */
#define FAR_REFUSALS_MAX 16u

/* Documented in far_private.h, as is the next. */
bool far_is_refusal(const struct far *far)
{
	return (far->phase == FAR_AGREEING || far->phase == FAR_MEETING) && !far->members;
}

uint64_t far_refusal_ns(const struct far *far)
{
	return far->phase == FAR_MEETING ? FAR_TOLD_NS : FAR_REFUSAL_NS;
}

/* ---- a group ---- */

static uint32_t refusal_count(const struct zero_job *job)
{
	uint32_t count = 0;

	zi_list_for_each(link, &job->zero->fars) {
		const struct far *far = container_of(link, struct far, link);

		count += far_is_refusal(far) && strcmp(far->name, job->name) == 0;
	}
	return count;
}

/* Documented in far.h, as are far_refuse_opening() and far_tell_meeting(). */
void far_refuse(struct zero_job *job, int error, const struct zi_text *text)
{
	struct far model = {
		.job = job,
		.timeout_ns = job->collectives.timeout_ns,
		.epoch = 1 + job->collectives.group_count,
		.phase = FAR_AGREEING,
	};
	struct far *far;
	struct zi_text why;

	/* Where there is no worker for it, they have their deadline. */
	if (refusal_count(job) < FAR_REFUSALS_MAX && !far_new(&model, error, text, &why, &far))
		far_linger(far, FAR_REFUSAL_NS);
}

/* ---- an opening ---- */

/* Whose worker has met the others, or tried to: it has told them, or is told to. Return: false, it
 * cannot any more. */
static bool tell_by_its_own(struct far *far, int error, const struct zi_text *text)
{
	bool has_store = meeting_here_mask(far->job) & 1;
	struct zi_text told;

	if (far->phase != FAR_OVER || net_worker_state(far->worker) != NET_WORKER_UP)
		return false;
	if (far->failed == FAR_MAPPING) {
		told = far_say_where(far, text);
		net_worker_abort(far->worker, error, &told);
		far_linger(far, FAR_LAST_NS);
		return true;
	}
	if (far->failed == FAR_OVER) { /* It failed here, between its requests. */
		far->phase = FAR_MEETING;
		far->members = 0;
		far->deadline_ns = zi_clock_deadline_ns(FAR_TOLD_NS);
		if (far_ask_meet(far, error, text))
			return false;
	}
	far->tells_opening = true;
	far_linger(far, has_store || far->phase == FAR_MEETING ? FAR_TOLD_NS : FAR_LAST_NS);
	return true;
}

static bool has_way(const struct zero_op *op)
{
	return op->rendezvous_host && op->rendezvous_host[0] && op->rendezvous_port &&
	       op->rendezvous_port <= UINT16_MAX;
}

static bool is_same_way(const struct zero_op *a, const struct zero_op *b)
{
	return strcmp(a->rendezvous_host, b->rendezvous_host) == 0 &&
	       a->rendezvous_port == b->rendezvous_port && strcmp(a->token, b->token) == 0;
}

/* Where @op's rank would meet the others. */
static void tell_at(struct zero_job *job, const struct zero_op *op, int error,
                    const struct zi_text *text)
{
	struct zero_meeting *meeting = &job->meeting;
	struct zi_coll_open *place = zi_steal(meeting->place);
	uint32_t run = meeting->run;
	struct far model = { .job = job, .phase = FAR_MEETING, .tells_opening = true };
	struct far *far;
	struct zi_text why;

	meeting->run = 0; /* Whichever serves the job. */
	if (!meeting_place(job, op, &why) && !far_new(&model, error, text, &why, &far))
		far_linger(far, FAR_TOLD_NS);
	meeting_forget_place(job);
	meeting->place = place;
	meeting->run = run;
}

void far_refuse_opening(struct zero_job *job, int error, const struct zi_text *text)
{
	struct far *far = zi_steal(job->collectives.fars[ZI_GROUP_WORLD]);
	const struct zero_op *first = NULL, *other = NULL;

	if (far && tell_by_its_own(far, error, text))
		return;
	if (far)
		(void)far_destroy(far);
	far_forget(job->zero, job->name); /* The store's port is wanted. */
	/* Ranks may differ in where they would meet: who is right is not known. */
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *rank = job->group.ranks[i];
		const struct zero_op *op = rank ? rank->gathered[ZERO_GATHER_COLL_OPEN] : NULL;

		if (!op || !has_way(op))
			continue;
		if (!first)
			first = op;
		else if (!other && !is_same_way(first, op))
			other = op;
	}
	if (first)
		tell_at(job, first, error, text);
	if (other)
		tell_at(job, other, error, text);
}

void far_tell_meeting(struct zero_job *job, uint64_t ranks, int error, const struct zi_text *text)
{
	struct far model = {
		.job = job, .phase = FAR_MEETING, .tells_opening = true, .ranks = ranks
	};
	struct far *far;
	struct zi_text why;

	/* Where there is no worker for it, they have their deadline. */
	if (!far_new(&model, error, text, &why, &far))
		far_linger(far, FAR_TOLD_NS);
}
