/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that reduce units in different orders can fill all buckets without one unit that all have
 * handed over; so can one that acquires more than fits before it reduces any. Then nobody goes on,
 * and who notices is refused, with names. Floor 5, shard thread.
 *
 * It is certain when there is a set of ranks each of which waits, in whatever call, for what only
 * others of the set could do. The largest such set is what remains when, of all ranks, those are
 * taken away who may go on though all that remain stand still, until nothing changes.
 */
#include "daemon/zero/grad/stall.h"

#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/grad/pool.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/demand.h"
#include "daemon/zero/param/pool.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/param/room.h"

/* As @rank has it, which stands still, as do those of the mask. */
struct view {
	const struct zero_job *job;
	uint32_t rank;
	uint64_t still_mask;
	bool has_looked;
	uint32_t room; /* then: slots that its next bucket may have */
};

/* The rank's bucket of the unit will not be free. */
static bool stays(const void *arg, uint32_t index)
{
	const struct view *view = arg;
	const struct zero_unit *unit = &view->job->units[index];
	uint64_t missing_mask = set_mask_here(view->job, index) & ~unit->handed_mask;

	if (!(unit->held_mask >> view->rank & 1))
		return true; /* Acquired, and not handed over. */
	if (unit->reduce_count || unit->is_ready)
		return false;
	if (missing_mask)
		return missing_mask & view->still_mask;
	if (view->job->across)
		return false; /* Ranks of other nodes do not stand still. */
	/* An early update waits for those who have not begun, and for those who use the unit. */
	if (view->job->here_mask & ~view->job->step.begun_mask & view->still_mask)
		return true;
	return unit->users_mask & view->still_mask;
}

static bool gets_bucket(struct view *view, uint32_t unit)
{
	const struct zero_grad_pool *pool = view->job->grad_pool;

	if (view->job->units[unit].held_mask >> view->rank & 1)
		return !stays(view, unit);
	if (!pool || buckets_have(&pool->buckets[view->rank], unit))
		return true;
	if (!view->has_looked)
		view->room = buckets_room(&pool->buckets[view->rank], stays, view);
	view->has_looked = true;
	return pool->slot_counts[unit] <= view->room;
}

static bool gets_param(struct zero_job *job, const struct zero_op *op, uint64_t still_mask)
{
	struct zero_room room;

	if (!job->residency || residency_is_between(job, op->rank->number) ||
	    !residency_is_loadable(job, op->unit))
		return true; /* It waits for the daemon. */
	return pool_find_room(job, op->unit, 0, still_mask, false, &room);
}

static bool op_may_end(struct zero_job *job, const struct zero_op *op, struct view *view)
{
	if (op->opcode == ZI_OP_GRAD_ACQUIRE)
		return gets_bucket(view, op->unit);
	if (op->opcode == ZI_OP_UNSHARD)
		return gets_param(job, op, view->still_mask);
	return !(demand_missing_mask(job, op) & view->still_mask);
}

/* A rank makes one call after the other: what it waits for it stands still for. */
static bool rank_may_go_on(struct zero_job *job, uint32_t number, uint64_t still_mask)
{
	const struct zero_rank *rank = job->group.ranks[number];
	struct view view = { .job = job, .rank = number, .still_mask = still_mask };

	if (!rank)
		return true; /* The group is about to break. */
	zi_list_for_each(link, &rank->ops)
		if (!op_may_end(job, container_of(link, struct zero_op, link), &view))
			return false;
	return true;
}

/* Return: the largest set. */
static uint64_t find_still(struct zero_job *job)
{
	uint64_t still_mask = job->here_mask, former_mask;

	/* Each turn takes at least one away. */
	do {
		former_mask = still_mask;
		for_each_rank_here(job, i)
			if (still_mask >> i & 1 && rank_may_go_on(job, i, still_mask))
				still_mask &= ~(1ull << i);
	} while (still_mask != former_mask);
	return still_mask;
}

/* See stall.h. */
bool stall_is_certain(const struct zero_op *op)
{
	return find_still(op->rank->job) >> op->rank->number & 1;
}

static bool has_acquire(const struct zero_rank *rank)
{
	zi_list_for_each(link, &rank->ops)
		if (container_of(link, struct zero_op, link)->opcode == ZI_OP_GRAD_ACQUIRE)
			return true;
	return false;
}

/* Return: an acquire of the rank, which stands still, that never ends; NULL. */
static struct zero_op *lost_acquire(struct zero_job *job, uint32_t number, uint64_t still_mask)
{
	const struct zero_rank *rank = job->group.ranks[number];
	struct view view = { .job = job, .rank = number, .still_mask = still_mask };

	zi_list_for_each(link, &rank->ops) {
		struct zero_op *op = container_of(link, struct zero_op, link);

		if (op->opcode == ZI_OP_GRAD_ACQUIRE && !gets_bucket(&view, op->unit))
			return op;
	}
	return NULL;
}

/* Return: the first one of all ranks; NULL. */
static struct zero_op *first_lost(struct zero_job *job)
{
	struct zero_op *op = NULL;
	uint64_t mask = 0;
	uint64_t still_mask;

	for_each_rank_here(job, i)
		if (job->group.ranks[i] && has_acquire(job->group.ranks[i]))
			mask |= 1ull << i;
	still_mask = mask ? find_still(job) : 0;
	for (mask &= still_mask; mask && !op; mask &= mask - 1)
		op = lost_acquire(job, (uint32_t)__builtin_ctzll(mask), still_mask);
	return op;
}

/* See stall.h. Who is refused goes on, and others may with it: each turn looks anew, and ends one
 * call. */
void stall_look(struct zero_job *job)
{
	struct zero_op *op;

	while (job->grad_pool && (op = first_lost(job)))
		op_complete(op, stall_refuse(op));
}

/* See stall.h. */
bool stall_waits(struct zero_job *job, const struct zero_rank *rank, uint64_t still_mask)
{
	struct view view = { .job = job };

	if (!rank || !job->grad_pool)
		return false;
	view.rank = rank->number;
	view.still_mask = still_mask | 1ull << rank->number;
	zi_list_for_each(link, &rank->ops) {
		const struct zero_op *op = container_of(link, struct zero_op, link);

		if (op->opcode == ZI_OP_GRAD_ACQUIRE && !gets_bucket(&view, op->unit))
			return true;
	}
	return false;
}

/* "; rank 0 holds 'a', 'b'": those it has not handed over, then those that others have not. Cut
 * where there is no more room: a text. */
static void say_held(const struct zero_job *job, uint32_t rank, struct zi_text *text)
{
	const struct zero_buckets *buckets = &job->grad_pool->buckets[rank];
	size_t used = strlen(text->chars);

	for (uint32_t i = 0; i < buckets->run_count && used < sizeof(text->chars); i++) {
		uint32_t unit = buckets->runs[i].unit;
		bool is_handed = job->units[unit].held_mask >> rank & 1;
		size_t left = sizeof(text->chars) - used;
		int written = i ? snprintf(text->chars + used, left, ", ")
		                : snprintf(text->chars + used, left, "; rank %u has ", rank);

		used += (size_t)written;
		if (used >= sizeof(text->chars))
			return;
		left = sizeof(text->chars) - used;
		used += (size_t)snprintf(text->chars + used, left, "'%.40s'%s",
		                         job->layout.units[unit].name,
		                         is_handed ? " (handed over)" : "");
	}
}

/* All that the rank has is its own: others have no part in it. */
static bool has_reduced_none(const struct zero_job *job, uint32_t rank)
{
	const struct zero_buckets *buckets = &job->grad_pool->buckets[rank];

	for (uint32_t i = 0; i < buckets->run_count; i++)
		if (job->units[buckets->runs[i].unit].held_mask >> rank & 1)
			return false;
	return buckets->run_count;
}

/* Of its gradients of all units at once. */
static uint64_t all_bytes(const struct zero_job *job, uint32_t rank)
{
	uint64_t slots = 0;

	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		slots += set_trains(job, i, rank) ? job->grad_pool->slot_counts[i] : 0;
	return slots * job->slot_bytes;
}

/* Return: -EDEADLK. */
int stall_refuse(struct zero_op *op)
{
	const struct zero_job *job = op->rank->job;
	const struct zero_grad_pool *pool = job->grad_pool;
	uint64_t unit_bytes = pool->slot_counts[op->unit] * job->slot_bytes;
	uint64_t pool_bytes = pool->slot_count * job->slot_bytes;

	if (has_reduced_none(job, op->rank->number))
		zi_text_set(&op->text,
		            "no bucket for unit '%.40s': rank %u acquired %u and reduced none; "
		            "reduce before the next, say `accumulation` if micro-batches are "
		            "summed here, or grant grad_budget_bytes of %llu",
		            job->layout.units[op->unit].name, op->rank->number,
		            pool->buckets[op->rank->number].run_count,
		            (unsigned long long)all_bytes(job, op->rank->number));
	else
		zi_text_set(&op->text,
		            "no bucket for unit '%.40s', and every rank waits: reduce in the same "
		            "order everywhere, or grant grad_budget_bytes of %llu",
		            job->layout.units[op->unit].name,
		            (unsigned long long)pool_bytes + unit_bytes);
	say_held(job, op->rank->number, &op->text);
	for_each_rank_here(job, i)
		if (i != op->rank->number)
			say_held(job, i, &op->text);
	return err_origin(-EDEADLK);
}
