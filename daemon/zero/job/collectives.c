/* SPDX-License-Identifier: Apache-2.0 */
/* Opening collectives, and their end; see collectives.h. Floor 5, shard thread. */
#include "daemon/zero/job/collectives.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/coll/coll.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"

/* See collectives.h. */
bool collectives_is_building(const struct zero_job *job)
{
	const struct zero_collectives *collectives = &job->collectives;

	/* All may have come, and wait until what a former incarnation asked for is made. */
	return collectives->is_building && (collectives->generation == job->group.generation ||
	                                    gather_is_full(job, ZERO_GATHER_COLL_OPEN));
}

/* See collectives.h. */
bool collectives_is_on(const struct zero_job *job)
{
	return job->collectives.coll || collectives_is_building(job);
}

/* See collectives.h. */
void collectives_rank_gone(struct zero_rank *rank, const struct zi_text *text)
{
	struct coll *coll = rank->job->collectives.coll;

	/* Boards of groups that end by this are kept for those that come. */
	if (coll)
		(void)coll_rank_gone(coll, rank->number, text);
}

/* See collectives.h. */
void collectives_break(struct zero_job *job, int error, const struct zi_text *text)
{
	if (job->collectives.coll)
		coll_break_all(job->collectives.coll, error, text);
}

/* See collectives.h. */
void collectives_drop(struct zero_job *job)
{
	struct zero_collectives *collectives = &job->collectives;

	/* The device thread has the arenas: built() comes back to this. */
	if (collectives->is_building)
		return;
	collectives->coll = coll_free(collectives->coll);
	collectives->verdicts = tier_segment_unref(collectives->verdicts);
	collectives->arenas = tier_segment_unref(collectives->arenas);
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++)
		collectives->boards[i] = tier_segment_unref(collectives->boards[i]);
	collectives->arena_bytes = 0;
}

/* See collectives.h. */
uint64_t collectives_held_bytes(const struct zero_job *job)
{
	const struct zero_collectives *collectives = &job->collectives;
	uint64_t bytes = 0;

	if (collectives->verdicts)
		bytes += collectives->verdicts->charge.bytes;
	if (collectives->arenas)
		bytes += collectives->arenas->charge.bytes;
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++)
		if (collectives->boards[i])
			bytes += collectives->boards[i]->charge.bytes;
	return bytes;
}

/* See collectives.h. Return: 0; -ENOSPC, -EDQUOT with figures; -ENOMEM. */
int collectives_board(struct zero_job *job, uint32_t group, struct zi_text *text)
{
	struct tier_segment **board = &job->collectives.boards[group];

	if (*board) {
		memset((*board)->region.base, 0, (*board)->region.bytes);
		return 0;
	}
	return err_trace(tier_segment_new(job->cpu_tier, &job->account->account, "zinf-board",
	                                  zi_board_bytes(job->group.world_size), TIER_PAGES_SMALL,
	                                  text, board));
}

/* ---- opening ---- */

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

/* The arenas are there: everything else is small. */
static int finish(struct zero_job *job, struct zi_text *text)
{
	struct zero_collectives *collectives = &job->collectives;
	struct coll_options options = {
		.world_size = job->group.world_size,
		.doing = say_doing,
		.arg = job,
	};
	int r;

	r = tier_segment_new(job->cpu_tier, &job->account->account, "zinf-verdict",
	                     ZI_VERDICT_BYTES, TIER_PAGES_SMALL, text, &collectives->verdicts);
	if (!r)
		r = collectives_board(job, ZI_GROUP_WORLD, text);
	if (r)
		return err_trace(r);
	options.verdicts = collectives->verdicts->region.base;
	r = coll_new(&options, &collectives->coll);
	if (r)
		return err_origin(zi_text_error(text, r, "no memory for tables"));
	for (uint32_t i = 0; i < job->group.world_size; i++)
		coll_rank_here(collectives->coll, i, job->group.ranks[i]->pid);
	coll_group_add(collectives->coll, ZI_GROUP_WORLD, job_world_mask(job),
	               collectives->boards[ZI_GROUP_WORLD]->region.base, collectives->timeout_ns);
	return 0;
}

static void open_end(struct zero_job *job, int error, const struct zi_text *text)
{
	if (error)
		collectives_drop(job);
	gather_complete(job, ZERO_GATHER_COLL_OPEN, error, text);
}

static void build_run(struct dev_task *task)
{
	struct zero_collectives *collectives = container_of(task, struct zero_collectives, task);

	collectives->build_error =
		tier_segment_build(collectives->arenas, &collectives->build_text);
}

static void build_done(struct dev_task *task);

static int charge_and_build(struct zero_job *job, uint64_t bytes, struct zi_text *text)
{
	struct zero_collectives *collectives = &job->collectives;
	uint64_t all_bytes = 0, arena_bytes = 0;
	struct zi_text why = { "" };
	int r;

	assert(!collectives->arenas);
	if (!zi_checked_align(bytes, ZI_HUGE_PAGE_BYTES, &arena_bytes) ||
	    !zi_checked_mul(arena_bytes, job->group.world_size, &all_bytes) ||
	    all_bytes > INT64_MAX)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "%u arenas of %llu bytes for collectives",
		                                job->group.world_size, (unsigned long long)bytes));
	r = tier_segment_charge(job->cpu_tier, &job->account->account, "zinf-arena", all_bytes,
	                        TIER_PAGES_COLLAPSED, &why, &collectives->arenas);
	if (r)
		return zi_text_error(text, r, "arenas of %u x %s for collectives: %.160s",
		                     job->group.world_size, zi_format_bytes(arena_bytes).chars,
		                     why.chars[0] ? why.chars : zi_err_name(r));
	collectives->arena_bytes = arena_bytes;
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

/* Memory takes its time: a rank that gave up meanwhile would have no part in it. */
static int check_waiting(const struct zero_job *job, struct zi_text *text)
{
	for (uint32_t i = 0; i < job->group.world_size; i++)
		if (!job->group.ranks[i]->gathered[ZERO_GATHER_COLL_OPEN])
			return err_origin(zi_text_error(
				text, -ETIMEDOUT,
				"rank %u (pid %d) did not wait until memory for collectives was "
				"made: give it more time",
				i, job->group.ranks[i]->pid));
	return 0;
}

/* All have come, and ask for the same. */
static void start(struct zero_job *job)
{
	struct zi_text text = { "" };
	int r = check_waiting(job, &text);

	if (!r)
		r = charge_and_build(
			job, job->group.ranks[0]->gathered[ZERO_GATHER_COLL_OPEN]->bytes, &text);
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
		r = finish(job, &collectives->build_text);
	if (is_wanted)
		open_end(job, r, &collectives->build_text);
	else
		collectives_drop(job); /* Everyone has heard why. */
	if (!is_wanted && gather_is_full(job, ZERO_GATHER_COLL_OPEN))
		start(job);
	job_settle(job);
	zero_drain(zero);
}

/* The other ranks' wish, when it is another one. */
static int compare(const struct zero_rank *rank, const struct zero_op *op, struct zi_text *text)
{
	const struct zero_job *job = rank->job;

	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *other = job->group.ranks[i];
		const struct zero_op *theirs =
			other ? other->gathered[ZERO_GATHER_COLL_OPEN] : NULL;

		if (!theirs || theirs->bytes == op->bytes)
			continue;
		return err_origin(zi_text_error(
			text, -EINVAL,
			"collectives: rank %u (pid %d) asks for an arena of %llu bytes, rank %u "
			"(pid %d) for %llu: all ranks must ask for the same",
			rank->number, rank->pid, (unsigned long long)op->bytes, i, other->pid,
			(unsigned long long)theirs->bytes));
	}
	return 0;
}

/* 0: it may wait with the others. */
static int open_check(const struct zero_rank *rank, struct zero_op *op)
{
	if (collectives_is_on(rank->job))
		return err_origin(zi_text_error(&op->text, -EALREADY,
		                                "collectives of job '%s' were opened before",
		                                rank->job->name));
	if (!op->bytes)
		return err_origin(
			zi_text_error(&op->text, -EINVAL, "an arena of no bytes for collectives"));
	return 0;
}

/**
 * zero_coll_open() - all ranks open collectives
 * @op: bytes of an arena each; timeout_ns, or 0; completes when all have come and the memory is
 *   there, or with one error for all
 *
 * They may try again after an error. -EALREADY; -EINVAL no bytes, or other ranks ask for others;
 * -ETIMEDOUT names who did not come; -ENOSPC, -EDQUOT with figures. Context: shard thread.
 */
void zero_coll_open(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;
	struct zi_text text = { "" };
	bool is_full;
	int r;

	if (!op_begin(rank, op, ZERO_OP_COLL_OPEN)) {
		zero_drain(zero);
		return;
	}
	r = open_check(rank, op);
	if (r) {
		op_complete(op, r);
		zero_drain(zero);
		return;
	}
	if (!job->group.gather_masks[ZERO_GATHER_COLL_OPEN])
		job->collectives.timeout_ns = 0;
	job->collectives.timeout_ns = ZI_MAX(job->collectives.timeout_ns,
	                                     op->timeout_ns ? op->timeout_ns : rank->timeout_ns);
	r = compare(rank, op, &text);
	is_full = op_gather(op, ZERO_GATHER_COLL_OPEN);
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
	};
	return true;
}
