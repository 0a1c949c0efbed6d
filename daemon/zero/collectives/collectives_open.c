/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening collectives; see collectives.h. Floor 5, shard thread.
 *
 * When all ranks of this node have asked, and for the same, the arenas are charged and built by the
 * device's thread; then everything else, which is small, is made. Where the job spans nodes, the
 * others are met in between.
 */
#include "daemon/zero/collectives/collectives.h"

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/coll/coll.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/collectives/arenas.h"
#include "daemon/zero/collectives/far.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"

/* What a rank does as far as zero knows (coll_doing_fn). */
static void say_doing(void *arg, uint32_t number, struct zi_text *ret_text)
{
	const struct zero_job *job = arg;
	const struct zero_rank *rank = job->group.ranks[number];
	const struct zero_op *op;

	if (!rank || zi_list_is_empty(&rank->ops))
		return;
	op = container_of(rank->ops.next, struct zero_op, link);
	zi_text_set(ret_text, "it has been in %s for %.1f s", op_name(op->opcode),
	            (double)(zi_clock_now_ns() - op->queued_ns) / (double)ZI_NS_PER_S);
}

static void group_broke(void *arg, uint32_t group, int error, const struct zi_text *text)
{
	const struct zero_job *job = arg;

	if (job->collectives.fars[group])
		far_abort(job->collectives.fars[group], error, text);
}

/* The arenas are there: everything else is small. */
static int finish(struct zero_job *job, struct zi_text *text)
{
	struct zero_collectives *collectives = &job->collectives;
	struct coll_options options = {
		.world_size = job->group.world_size,
		.doing = say_doing,
		.broken = group_broke,
		.arg = job,
	};
	uint64_t here = meeting_here_mask(job);
	int r;

	assert(job_spans_nodes(job) || here == job_world_mask(job));
	r = tier_segment_new(job->cpu_tier, &job->account->account, "zinf-verdict",
	                     ZI_VERDICT_BYTES, TIER_PAGES_SMALL, text, &collectives->verdicts);
	if (!r)
		r = collectives_board(job, ZI_GROUP_WORLD, text);
	if (!r && job_spans_nodes(job))
		r = collectives_slab(job, ZI_GROUP_WORLD, text);
	if (r)
		return err_trace(r);
	options.verdicts = collectives->verdicts->region.base;
	arenas_tell(job, options.verdicts);
	r = coll_new(&options, &collectives->coll);
	if (r)
		return err_origin(zi_text_error(text, r, "no memory for tables"));
	for (uint64_t left = here; left; left &= left - 1) {
		uint32_t rank = (uint32_t)__builtin_ctzll(left);

		coll_rank_here(collectives->coll, rank, job->group.ranks[rank]->pid);
	}
	coll_group_add(collectives->coll, ZI_GROUP_WORLD, here,
	               collectives->boards[ZI_GROUP_WORLD]->region.base,
	               collectives->call_timeout_ns);
	if (job_spans_nodes(job))
		collectives->coll->groups[ZI_GROUP_WORLD].far_mask = job_world_mask(job);
	return 0;
}

/* For all nodes: the n-th opening of each is the others' n-th. */
static void open_failed(struct zero_job *job, int error, const struct zi_text *text)
{
	if (job_spans_nodes(job))
		far_refuse_opening(job, error, text);
	meeting_failed(job, error, text);
}

static void open_end(struct zero_job *job, int error, const struct zi_text *text)
{
	if (error) {
		open_failed(job, error, text);
		collectives_drop(job);
	}
	gather_complete(job, ZERO_GATHER_COLL_OPEN, error, text);
}

static void world_joined(struct far *far, int error, const struct zi_text *text)
{
	struct zero_job *job = far_job(far);
	struct zero *zero = job->zero;

	job->collectives.is_building = job->collectives.is_joining = false;
	open_end(job, error, text);
	zero_drain(zero);
}

/* All ranks are somewhere. */
static int world_met(struct far *far, struct zi_text *text)
{
	struct zero_job *job = far_job(far);

	for (uint64_t left = meeting_here_mask(job); left; left &= left - 1) {
		uint32_t rank = (uint32_t)__builtin_ctzll(left);

		if (!job->group.ranks[rank])
			return err_origin(zi_text_error(text, -EPIPE, "rank %u is gone", rank));
	}
	return err_trace(finish(job, text));
}

/* The ranks of this node are ready: those of the others are looked for. */
static int join_nodes(struct zero_job *job, struct zi_text *text)
{
	struct zero_collectives *collectives = &job->collectives;
	int r;

	collectives->is_building = collectives->is_joining = true;
	r = far_open(job, world_met, world_joined, text, &collectives->fars[ZI_GROUP_WORLD]);
	if (r)
		collectives->is_building = collectives->is_joining = false;
	return err_trace(r);
}

/* See collectives.h. Its worker may be what does not answer. */
void collectives_open_expired(struct zero_job *job, const struct zi_text *text)
{
	open_failed(job, -ETIMEDOUT, text);
	if (job->collectives.is_joining)
		collectives_drop(job);
}

static void build_run(struct dev_task *task)
{
	struct zero_collectives *collectives = container_of(task, struct zero_collectives, task);

	collectives->build_error =
		tier_segment_build(collectives->arenas, &collectives->build_text);
}

static void build_done(struct dev_task *task);

static int charge_and_build(struct zero_job *job, const struct zero_op *op, struct zi_text *text)
{
	struct zero_collectives *collectives = &job->collectives;
	uint64_t all_bytes = 0, arena_bytes = 0;
	uint64_t bytes = op->bytes;
	struct zi_text why = { "" };
	int r;

	assert(!collectives->arenas);
	if (job->across)
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"collectives of a job over several nodes must be opened before "
			"zinf_materialize()"));
	if (job_spans_nodes(job)) {
		r = meeting_place(job, op, text);
		if (r)
			return err_trace(r);
	}
	if (!zi_checked_align(bytes, ZI_HUGE_PAGE_BYTES, &arena_bytes) ||
	    !zi_checked_mul(arena_bytes, job->group.local_size, &all_bytes) ||
	    all_bytes > INT64_MAX)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "%u arenas of %llu bytes for collectives",
		                                job->group.local_size, (unsigned long long)bytes));
	r = arenas_charge(job, arena_bytes, &why);
	if (r && job_spans_nodes(job)) {
		far_forget(job->zero,
		           job->name); /* Workers of the start before may hold as much. */
		why.chars[0] = '\0';
		r = arenas_charge(job, arena_bytes, &why);
	}
	if (r)
		return zi_text_error(text, r, "arenas of %u x %s for collectives: %.160s",
		                     job->group.local_size, zi_format_bytes(arena_bytes).chars,
		                     why.chars[0] ? why.chars : zi_err_name(r));
	collectives->arena_bytes = arena_bytes;
	collectives->asked_bytes = op->asked_bytes;
	collectives->is_building = true;
	collectives->generation = job->group.generation;
	collectives->build_text.chars[0] = '\0';
	collectives->task = (struct dev_task){ .run = build_run,
		                               .done = build_done,
		                               .loop = job->zero->options.loop };
	job_busy(job);
	dev_submit(job->device, &collectives->task);
	return 0;
}

/* Memory takes its time: a rank that gave up meanwhile, or is gone, would have no part in it. A
 * group that breaks after the step that is being written looks whole but for that. */
static int check_waiting(const struct zero_job *job, struct zi_text *text)
{
	const struct zero_group *group = &job->group;

	if (group->error)
		return err_origin(zi_text_error(text, group->error, "%s", group->text.chars));
	assert(group->rank_count == group->local_size);
	for (uint32_t i = 0; i < group->world_size; i++)
		if (group->ranks[i] && !group->ranks[i]->gathered[ZERO_GATHER_COLL_OPEN])
			return err_origin(zi_text_error(
				text, -ETIMEDOUT,
				"rank %u (pid %d) left before memory for collectives was "
				"ready: give it a longer timeout_ms",
				i, group->ranks[i]->pid));
	return 0;
}

/* All have come, and ask for the same. */
static void start(struct zero_job *job)
{
	struct zi_text text = { "" };
	int r = check_waiting(job, &text);

	for (uint32_t i = 0; i < job->group.world_size && !r; i++) {
		if (!job->group.ranks[i])
			continue; /* On another node. */
		r = charge_and_build(job, job->group.ranks[i]->gathered[ZERO_GATHER_COLL_OPEN],
		                     &text);
		break;
	}
	if (r)
		open_end(job, r, &text);
}

static void build_done(struct dev_task *task)
{
	struct zero_job *job = container_of(task, struct zero_job, collectives.task);
	struct zero_collectives *collectives = &job->collectives;
	struct zero *zero = job->zero;
	bool is_wanted =
		collectives->generation == job->group.generation &&
		(job->group.phase == ZERO_GROUP_FORMING || job->group.phase == ZERO_GROUP_LIVE);
	int r = collectives->build_error;

	job_unbusy(job);
	collectives->is_building = false;
	if (!r && is_wanted)
		r = check_waiting(job, &collectives->build_text);
	if (!r && is_wanted)
		r = job_spans_nodes(job) ? join_nodes(job, &collectives->build_text)
		                         : finish(job, &collectives->build_text);
	if (is_wanted && (r || !collectives->is_joining))
		open_end(job, r, &collectives->build_text);
	else if (!is_wanted)
		collectives_drop(job); /* Everyone has heard why. */
	if (!is_wanted && gather_is_full(job, ZERO_GATHER_COLL_OPEN))
		start(job);
	job_settle(job);
	zero_drain(zero);
}

/* What is wrong with a wish, beside those of the others. */
static int compare(const struct zero_rank *rank, const struct zero_op *op, struct zi_text *text)
{
	const struct zero_job *job = rank->job;

	if (!op->bytes)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"rank %u (pid %d) asks for an arena of no bytes for collectives",
			rank->number, rank->pid));
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *other = job->group.ranks[i];
		const struct zero_op *theirs =
			other ? other->gathered[ZERO_GATHER_COLL_OPEN] : NULL;

		if (!theirs)
			continue;
		if (job_spans_nodes(job)) {
			int r = meeting_compare(rank, op, other, theirs, text);

			if (r)
				return err_trace(r);
		}
		if (theirs->bytes == op->bytes)
			continue;
		return err_origin(zi_text_error(
			text, -EINVAL,
			"collectives: rank %u (pid %d) asks for an arena of %llu bytes, rank %u "
			"(pid %d) for %llu: all ranks must ask for the same",
			rank->number, rank->pid, (unsigned long long)op->asked_bytes, i, other->pid,
			(unsigned long long)theirs->asked_bytes));
	}
	return 0;
}

/* The longest that a rank gives counts for all. @is_first: nobody waited yet. */
static void note_timeouts(const struct zero_op *op, bool is_first)
{
	struct zero_collectives *collectives = &op->rank->job->collectives;
	uint64_t timeout_ns = op->timeout_ns ? op->timeout_ns : op->rank->timeout_ns;
	uint64_t call_timeout_ns = op->call_timeout_ns ? op->call_timeout_ns : timeout_ns;

	if (is_first)
		collectives->timeout_ns = collectives->call_timeout_ns = 0;
	collectives->timeout_ns = ZI_MAX(collectives->timeout_ns, timeout_ns);
	collectives->call_timeout_ns = ZI_MAX(collectives->call_timeout_ns, call_timeout_ns);
}

/**
 * zero_coll_open() - all ranks open collectives
 * @op: bytes of an arena each, and asked_bytes; timeout_ns, call_timeout_ns, or 0; completes when
 *   all have come and the memory is there; or with one error for all, who comes later included
 *
 * They may try again after an error. -EALREADY; -EINVAL no bytes, or other ranks ask for others;
 * -ETIMEDOUT names who did not come; -ENOSPC, -EDQUOT with figures; what a rank refuses itself.
 * Context: shard thread.
 */
void zero_coll_open(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;
	struct zi_text text = { "" };
	bool is_first, is_full;
	int r;

	if (!op_begin(rank, op, ZERO_OP_COLL_OPEN)) {
		zero_drain(zero);
		return;
	}
	if (collectives_is_on(job)) {
		op_fail(op, -EALREADY, "collectives of job '%s' were opened before", job->name);
		zero_drain(zero);
		return;
	}
	is_first = !job->group.gather_masks[ZERO_GATHER_COLL_OPEN];
	is_full = gather_join(op, ZERO_GATHER_COLL_OPEN);
	if (rank->gathered[ZERO_GATHER_COLL_OPEN] != op) {
		zero_drain(zero); /* It was called before, and goes on; or failed without it. */
		return;
	}
	note_timeouts(op, is_first);
	r = gather_refused(op, &text);
	if (!r)
		r = compare(rank, op, &text);
	if (r)
		open_end(job, r, &text);
	else if (!group_needs_all(job) && is_full && !job->collectives.is_building)
		start(job); /* Else when that of a former incarnation is made: build_done(). */
	zero_drain(zero);
}

/* What an opened rank is given. Return: false when they are not open to it. */
bool zero_coll_opened(struct zero_rank *rank, struct zero_coll_opened *ret_opened)
{
	const struct zero_job *job = rank->job;
	const struct zero_collectives *collectives = &job->collectives;

	if (!rank->is_member || !collectives->coll)
		return false;
	*ret_opened = (struct zero_coll_opened){
		.verdicts = collectives->verdicts,
		.arenas = collectives->arenas,
		.board = collectives->boards[ZI_GROUP_WORLD],
		.arena_bytes = collectives->arena_bytes,
		.board_bytes = zi_board_bytes(job->group.world_size),
		.member_count = job->group.world_size,
		.node_count = 1,
		.nodes = job->meeting.nodes,
	};
	if (job_spans_nodes(job)) {
		ret_opened->board_bytes = zi_board_bytes(job->group.world_size + 1);
		ret_opened->slab = collectives->slabs[ZI_GROUP_WORLD];
		ret_opened->node_count = job->meeting.node_count;
		ret_opened->node = job->meeting.node;
	}
	return true;
}
