/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ranks, what becomes of their calls, and how long they spin; see collectives.h. Floor 5,
 * shard thread. */
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/coll/coll.h"
#include "daemon/tier/segment.h"
#include "daemon/worker/net.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/collectives/collectives.h"
#include "daemon/zero/collectives/far.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"

static int not_open(const struct zero_rank *rank, struct zi_text *text)
{
	return err_origin(zi_text_error(text, -ENOTCONN, "collectives of job '%s' are not open",
	                                rank->job->name));
}

/* See collectives.h. */
struct zi_text collectives_say_ranks(const uint64_t members[ZI_GROUP_MASK_WORDS])
{
	struct zi_text text = { "" };
	size_t used = 0;

	for (uint32_t i = 0; i < ZI_GROUP_MASK_RANKS && used + 8 < 80; i++)
		if (members[i / 64] >> i % 64 & 1)
			used += (size_t)snprintf(text.chars + used, sizeof(text.chars) - used,
			                         "%s%u", used ? ", " : "", i);
	return text;
}

/* What no rank can wish for. */
static int check(const struct zero_rank *rank, const struct zero_op *op, struct zi_text *text)
{
	uint32_t world_size = rank->job->group.world_size;
	bool is_empty = true;

	for (uint32_t i = 0; i < ZI_GROUP_MASK_RANKS; i++) {
		if (!(op->members[i / 64] >> i % 64 & 1))
			continue;
		is_empty = false;
		if (i >= world_size)
			return err_origin(zi_text_error(text, -EINVAL,
			                                "rank %u (pid %d) asks for a group with "
			                                "rank %u: the job has %u ranks",
			                                rank->number, rank->pid, i, world_size));
	}
	if (is_empty)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "rank %u (pid %d) asks for a group of no ranks",
		                                rank->number, rank->pid));
	return 0;
}

/* The other ranks' members, when they are others. */
static int compare(const struct zero_rank *rank, const struct zero_op *op, struct zi_text *text)
{
	const struct zero_job *job = rank->job;

	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *other = job->group.ranks[i];
		const struct zero_op *theirs =
			other ? other->gathered[ZERO_GATHER_COLL_GROUP] : NULL;

		if (!theirs || memcmp(theirs->members, op->members, sizeof(op->members)) == 0)
			continue;
		return err_origin(zi_text_error(
			text, -EINVAL,
			"a group of ranks %s says rank %u (pid %d), of ranks %s says rank %u "
			"(pid %d): all ranks must name the same members",
			collectives_say_ranks(op->members).chars, rank->number, rank->pid,
			collectives_say_ranks(theirs->members).chars, i, other->pid));
	}
	return 0;
}

static struct zero_op *gathered_of(const struct zero_job *job, uint32_t number)
{
	struct zero_rank *rank = job->group.ranks[number];

	return rank ? rank->gathered[ZERO_GATHER_COLL_GROUP] : NULL;
}

/* The other nodes are there, or why not. */
static void made(struct far *far, int error, const struct zi_text *text)
{
	struct zero_job *job = far_job(far);
	struct zero *zero = job->zero;
	struct zero_collectives *collectives = &job->collectives;
	uint64_t here = far_members(far) & meeting_here_mask(job);
	uint32_t group = far_group(far);

	assert(collectives->making == far);
	collectives->making = NULL;
	if (!error && here)
		coll_group_add(collectives->coll, group, here,
		               collectives->boards[group]->region.base,
		               collectives->made_timeout_ns);
	if (!error && far_joins(far)) {
		collectives->coll->groups[group].far_mask = far_members(far);
		collectives->fars[group] = far;
	} else {
		(void)far_free(far);
	}
	gather_complete(job, ZERO_GATHER_COLL_GROUP, error, text);
	zero_drain(zero);
}

/* What a group of @members needs here: a number, a board, a slab. */
static int prepare(struct zero_job *job, uint64_t members, bool spans, struct zi_text *text,
                   uint32_t *ret_group)
{
	uint64_t ending = far_ending(job);
	int r;

	if (!(members & meeting_here_mask(job)))
		return 0; /* Nobody of this node is in it. */
	/* What a worker still writes to is for nobody else, as long as there is other memory. */
	r = coll_group_choose(job->collectives.coll, ending, text, ret_group);
	if (!r && ending >> *ret_group & 1)
		far_end(job, *ret_group);
	if (!r)
		r = collectives_board(job, *ret_group, text);
	if (!r && spans)
		r = collectives_slab(job, *ret_group, text);
	return err_trace(r);
}

/* All have come, and name the same members. Where the job spans nodes made() comes later. */
static int make(struct zero_job *job, const struct zero_op *op, struct zi_text *text)
{
	struct zero_collectives *collectives = &job->collectives;
	uint64_t members = op->members[0], here = members & meeting_here_mask(job);
	bool spans = __builtin_popcountll(meeting_node_mask(job, members)) > 1;
	uint64_t timeout_ns = 0;
	uint32_t group = 0;
	int r = prepare(job, members, spans, text, &group);

	if (r)
		return err_trace(r);
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		struct zero_op *theirs = gathered_of(job, i);

		if (!theirs)
			continue;
		theirs->id = here ? group : ZI_GROUP_NONE;
		timeout_ns = ZI_MAX(timeout_ns, theirs->timeout_ns);
	}
	collectives->made_timeout_ns = timeout_ns ? timeout_ns : collectives->call_timeout_ns;
	timeout_ns = timeout_ns ? timeout_ns : collectives->timeout_ns;
	if (job_spans_nodes(job)) {
		assert(!collectives->making);
		return err_trace(far_make(job,
		                          &(struct far_wish){ .group = group,
		                                              .members = members,
		                                              .timeout_ns = timeout_ns,
		                                              .joins = here && spans },
		                          made, text, &collectives->making));
	}
	coll_group_add(collectives->coll, group, here, collectives->boards[group]->region.base,
	               collectives->made_timeout_ns);
	return 0;
}

/**
 * zero_coll_group() - make a group: called by all ranks of the job, or with op->name by the members
 * @op: members: bits of ranks, equal on all callers; timeout_ns: of the group's calls, or 0.
 *   Completes when all callers have come: id is the number of the group. An error is the same for
 *   all callers, late ones included.
 *
 * -ENOTCONN; -EINVAL no members, no such rank, other members; -EALREADY this rank is already making
 * a group; -ETIMEDOUT names the ranks that did not come; -ENOSPC, -EDQUOT with figures; an error
 * that a rank sends.
 * Context: shard thread.
 */
void zero_coll_group(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;
	struct zi_text text = { "" };
	bool is_full;
	int r;

	static_assert(ZI_WORLD_MAX <= 64, "ranks of a node are the bits of one word");
	op->id = ZI_GROUP_NONE;
	if (!op_begin(rank, op, ZERO_OP_COLL_GROUP)) {
		zero_drain(zero);
		return;
	}
	if (!job->collectives.coll) {
		op_complete(op, not_open(rank, &op->text));
		zero_drain(zero);
		return;
	}
	if (op->name) {
		named_group(rank, op);
		zero_drain(zero);
		return;
	}
	is_full = gather_join(op, ZERO_GATHER_COLL_GROUP);
	if (rank->gathered[ZERO_GATHER_COLL_GROUP] != op) {
		zero_drain(zero); /* It was called before, and goes on; or failed without it. */
		return;
	}
	r = gather_refused(op, &text);
	if (!r)
		r = check(rank, op, &text);
	if (!r)
		r = compare(rank, op, &text);
	/* Asked even when some have yet to come: where one never will, it ends those who wait. */
	if (r || (!group_needs_all(job) && is_full)) {
		job->collectives.group_count++; /* Whatever comes of it: nodes count alike. */
		r = r ? r : make(job, op, &text);
		if (r && job_spans_nodes(job))
			far_refuse(job, r, &text);
		if (r || !job_spans_nodes(job))
			gather_complete(job, ZERO_GATHER_COLL_GROUP, r, &text);
	}
	zero_drain(zero);
}

/* See collectives.h. */
void collectives_group_expired(struct zero_job *job, const struct zi_text *text)
{
	struct zero_collectives *collectives = &job->collectives;

	/* One that was being made is counted. */
	if (collectives->making)
		collectives->making = far_free(collectives->making);
	else
		collectives->group_count++;
	if (job_spans_nodes(job) && collectives->coll)
		far_refuse(job, -ETIMEDOUT, text);
}

/* What a rank is given of a group. Return: false when it is not there. */
bool zero_coll_grouped(struct zero_rank *rank, uint32_t group,
                       struct zero_coll_grouped *ret_grouped)
{
	const struct zero_collectives *collectives = &rank->job->collectives;
	const struct coll_group *made;
	bool is_member;

	if (rank->is_member && collectives->coll && group == ZI_GROUP_NONE) {
		*ret_grouped = (struct zero_coll_grouped){ .self = COLL_NOBODY };
		return true; /* Its members are all on other nodes. */
	}
	if (!rank->is_member || !collectives->coll || group >= ZI_GROUPS_MAX ||
	    !collectives->coll->groups[group].is_used)
		return false;
	made = &collectives->coll->groups[group];
	*ret_grouped = (struct zero_coll_grouped){
		.self = coll_member_of(made, rank->number),
		.member_count = made->member_count,
	};
	is_member = ret_grouped->self != COLL_NOBODY;
	ret_grouped->board_bytes = is_member ? zi_board_bytes(made->member_count) : 0;
	ret_grouped->board = is_member ? collectives->boards[group] : NULL;
	if (!is_member || !collectives->fars[group])
		return true;
	/* Here it has members of this node alone, and the worker's two parts. */
	ret_grouped->self = far_member_of(collectives->fars[group], rank->number);
	ret_grouped->member_count =
		(uint32_t)__builtin_popcountll(far_members(collectives->fars[group]));
	ret_grouped->board_bytes = zi_board_bytes(made->member_count + 2);
	ret_grouped->slab = collectives->slabs[group];
	return true;
}

/* Return: 0; -ESTALE and the like: the incarnation that the rank was of is over; -ENOTCONN. */
static int coll_of(struct zero_rank *rank, struct zi_text *text, struct coll **ret_coll)
{
	if (!rank->is_member && rank->broken_error)
		return err_origin(
			zi_text_error(text, rank->broken_error, "%s", rank->broken_text.chars));
	if (!rank->is_member || !rank->job->collectives.coll)
		return err_trace(not_open(rank, text));
	*ret_coll = rank->job->collectives.coll;
	return 0;
}

/**
 * zero_coll_group_free() - this member makes no more calls in a group
 *
 * Its number is free when all have said so, or are gone. Return: 0; -ENOTCONN; -EPERM no member;
 * -EINVAL the group of all ranks. Context: shard thread.
 */
int zero_coll_group_free(struct zero_rank *rank, uint32_t group, struct zi_text *text)
{
	struct coll_group *found = NULL;
	struct coll *coll = NULL;
	int r;

	r = coll_of(rank, text, &coll);
	if (!r && group == ZI_GROUP_WORLD)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "group 0 is that of all ranks: it ends with them"));
	if (!r)
		r = coll_group_of(coll, rank->number, group, text, &found);
	if (r)
		return err_trace(r);
	if (!coll_group_leave(coll, found, rank->number))
		return 0;
	/* The board is kept. */
	rank->job->collectives.fars[group] = far_free(rank->job->collectives.fars[group]);
	return 0;
}

/**
 * zero_coll_fail() - what became of a call
 * @report: as the rank sent it
 * @text: why
 *
 * Return: always an error; see coll_fail(). Context: shard thread.
 */
int zero_coll_fail(struct zero_rank *rank, const struct zi_coll_fail *report, struct zi_text *text)
{
	struct coll *coll = NULL;
	int r;

	r = coll_of(rank, text, &coll);
	if (r)
		return err_trace(r);
	return coll_fail(coll, rank->number, report, text);
}

/**
 * zero_coll_abort() - a member ends the calls of its group, on all nodes
 * @reason: a text of the rank's
 *
 * Return: 0, also where the group was broken before; -ENOTCONN; -EPERM no member. Context: shard
 * thread.
 */
int zero_coll_abort(struct zero_rank *rank, uint32_t group, const char *reason,
                    struct zi_text *text)
{
	struct coll *coll = NULL;
	int r;

	r = coll_of(rank, text, &coll);
	if (r)
		return err_trace(r);
	return err_trace(coll_abort(coll, rank->number, group, reason, text));
}

/* See zero.h. Context: shard thread. */
void zero_coll_spin(struct zero *zero, uint32_t cpu_count, uint32_t spin_us)
{
	uint32_t rank_count = 0, other_count = 0, beside_us = spin_us;

	zi_list_for_each(link, &zero->jobs) {
		const struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		if (!job->collectives.coll)
			continue;
		rank_count += job->group.rank_count;
		/* Who spins beside them holds up what it waits for: small calls took three times
		 * as long, on two CPUs. */
		if (job_spans_nodes(job))
			other_count += NET_BUSY_THREADS;
	}
	if (rank_count + other_count > cpu_count)
		spin_us = 0;
	/* Calls with tickets: each rank may then be two threads, one that computes. */
	if (2 * rank_count + other_count > cpu_count)
		beside_us = 0;
	zi_list_for_each(link, &zero->jobs) {
		const struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		if (job->collectives.coll)
			coll_spin_set(job->collectives.coll, spin_us, beside_us);
	}
}
