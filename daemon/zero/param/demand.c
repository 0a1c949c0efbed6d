/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A demand for which the pool has no room: will there ever be any? It waits for others to reshard,
 * and is refused when they cannot. Floor 5, shard thread.
 */
#include "daemon/zero/param/demand.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/grad/stall.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/pool.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/param/room.h"
#include "daemon/zero/step/grad_norm.h"
#include "daemon/zero/step/step.h"

/* The unit for which @rank waits because there is no room; false: for none. */
static bool waits_for_room(const struct zero_job *job, const struct zero_rank *rank,
                           uint32_t *ret_unit)
{
	if (!rank || residency_is_between(job, rank->number))
		return false;
	zi_list_for_each(link, &rank->ops) {
		const struct zero_op *op = container_of(link, struct zero_op, link);

		if (op->opcode != ZI_OP_UNSHARD || !residency_is_loadable(job, op->unit))
			continue;
		*ret_unit = op->unit;
		return true;
	}
	return false;
}

/* See demand.h. */
uint64_t demand_missing_mask(const struct zero_job *job, const struct zero_op *op)
{
	for (uint32_t i = 0; i < _ZERO_GATHER_COUNT; i++)
		/* Nobody stands still for a step: it is waited for by its ticket. */
		if (op->rank->gathered[i] == op && i != ZERO_GATHER_STEP)
			return job->here_mask & ~job->group.gather_masks[i];
	if (op->opcode == ZI_OP_GRAD_NORM)
		return grad_norm_missing_mask(job);
	if (op->opcode == ZI_OP_GRAD_ACQUIRE && !job->grad_pool &&
	    job->step.phase == ZERO_STEP_STEPPING)
		return set_mask_here(job, op->unit) & ~job->units[op->unit].handed_mask;
	return 0;
}

/* Does the rank wait for what one of @mask would have to do? */
static bool waits_for_ranks(const struct zero_job *job, const struct zero_rank *rank, uint64_t mask)
{
	if (!rank)
		return false;
	zi_list_for_each(link, &rank->ops)
		if (demand_missing_mask(job, container_of(link, struct zero_op, link)) & mask)
			return true;
	return false;
}

/*
 * No rank that waits for room gets it, even if all the others release what they have; but for those
 * that stand still until one of the waiting has gone on (in a barrier, or for a gradient buffer
 * that all must have handed over, or a bucket).
 */
bool demand_is_hopeless(struct zero_job *job)
{
	uint64_t waiting_mask = 0;
	uint64_t still_mask;
	struct zero_room room;
	uint32_t unit;

	for (uint32_t i = 0; i < job->group.world_size; i++)
		if (waits_for_room(job, job->group.ranks[i], &unit))
			waiting_mask |= 1ull << i;
	still_mask = waiting_mask;
	for (uint32_t i = 0; i < job->group.world_size; i++)
		if (waits_for_ranks(job, job->group.ranks[i], waiting_mask) ||
		    stall_waits(job, job->group.ranks[i], waiting_mask))
			still_mask |= 1ull << i;
	for (uint32_t i = 0; i < job->group.world_size; i++)
		if (waits_for_room(job, job->group.ranks[i], &unit) &&
		    pool_find_room(job, unit, 0, still_mask, false, &room))
			return false;
	return true;
}

/* The figures of it. Return: -ENOSPC. */
int demand_refuse(const struct zero_job *job, struct zero_op *op)
{
	uint64_t unit_bytes = job->residency->units[op->unit].slot_count * job->slot_bytes;
	uint64_t pool_bytes = job->residency->slot_count * job->slot_bytes;
	uint64_t pinned_bytes = 0;
	uint32_t pinned_count = 0;

	for (uint32_t i = 0; i < job->residency->run_count; i++) {
		const struct zero_run *run = &job->residency->runs[i];

		if (!job->residency->units[run->unit].pinned_mask)
			continue;
		pinned_bytes += run->count * job->slot_bytes;
		pinned_count++;
	}
	return err_origin(zi_text_error(
		&op->text, -ENOSPC,
		"unit '%.40s' takes %s in one piece, and %u unsharded units hold %s of the %s of "
		"param_budget_bytes, while every rank that could reshard one waits: reshard first, "
		"or grant at least %llu bytes",
		job->layout.units[op->unit].name, zi_format_bytes(unit_bytes).chars, pinned_count,
		zi_format_bytes(pinned_bytes).chars, zi_format_bytes(pool_bytes).chars,
		(unsigned long long)ZI_MAX(pinned_bytes + unit_bytes, pool_bytes + unit_bytes)));
}
