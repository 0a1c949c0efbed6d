/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over nodes: what was handed over, and what waits; see grads.h. Floor 5, shard thread. */
#include "daemon/zero/across/sums/grads.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/sums/grads_private.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/set.h"
#include "daemon/zero/step/culprit.h"
#include "daemon/zero/step/join.h"
#include "daemon/zero/step/reduce.h"
#include "daemon/zero/step/step.h"

/* ---- tables ---- */

/* Documented in a header, as are all that are not static. */
struct grads *grads_free(struct grads *grads)
{
	if (!grads)
		return NULL;
	norm_free(&grads->norm);
	grads_finish_free(grads);
	free(grads->plans);
	free(grads->units);
	free(grads->subgroups);
	free(grads->heard);
	free(grads->ready);
	free(grads->notes);
	free(grads);
	return NULL;
}

const struct grads_plan *grads_plan_of(const struct grads *grads, uint32_t unit)
{
	const struct zero_job *job = grads->job;

	return &grads->plans[set_of(job, unit) - job->sets];
}

uint32_t grads_finisher(const struct zero_job *job, const struct zero_subgroup *subgroup)
{
	return across_node_of(job, subgroup->finisher);
}

/* Nodes of those that own its state, in whatever replica, but for the finisher. */
static uint64_t takers_of(const struct zero_job *job, const struct zero_subgroup *subgroup)
{
	const struct zero_set *set = set_of(job, subgroup->unit);
	uint64_t nodes = 0;

	for (uint32_t i = subgroup->owner; i < set->member_count; i += set->shard_count)
		nodes |= 1ull << across_node_of(job, set_rank(set, i));
	return nodes & ~(1ull << grads_finisher(job, subgroup));
}

static int alloc_tables(struct grads *grads)
{
	size_t units = grads->unit_count, subgroups = grads->subgroup_count;

	grads->plans = calloc(grads->set_count, sizeof(*grads->plans));
	grads->units = calloc(units, sizeof(*grads->units));
	grads->subgroups = calloc(subgroups, sizeof(*grads->subgroups));
	grads->heard = calloc(units * grads->node_count, sizeof(*grads->heard));
	grads->ready = calloc(subgroups, sizeof(*grads->ready));
	grads->notes = calloc(units + subgroups, sizeof(*grads->notes));
	if (!grads->plans || !grads->units || !grads->subgroups || !grads->heard || !grads->ready ||
	    !grads->notes)
		return err_origin(-ENOMEM);
	return 0;
}

/* Of all sets, the shortest pieces are those of all. Return: leaves of the tree with most. */
static int make_plans(struct grads *grads, struct zi_text *text, uint32_t *ret_leaf_max)
{
	struct across *across = grads->across;
	const struct zero_job *job = grads->job;
	uint64_t slot_bytes = PULL_SLOT_BYTES;
	uint32_t leaf_max = 0;
	int r;

	for (uint32_t i = 0; i < grads->set_count; i++) {
		struct grads_plan *plan = &grads->plans[i];

		r = grads_plan_init(plan, job->sets[i].members, job->meeting.nodes,
		                    pull_half_bytes(across), text);
		if (r)
			return err_trace(r);
		slot_bytes = ZI_MIN(slot_bytes, plan->slot_bytes);
		leaf_max = ZI_MAX(leaf_max, plan->tree.leaf_count);
	}
	for (uint32_t i = 0; i < grads->set_count; i++)
		grads_plan_divide(&grads->plans[i], slot_bytes);
	r = pull_divide(across, slot_bytes);
	if (r)
		return err_origin(zi_text_error(text, r, "the slab cannot be divided again"));
	*ret_leaf_max = leaf_max;
	return 0;
}

static uint32_t leaves_here(const struct grads *grads, const struct grads_plan *plan)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < plan->tree.leaf_count; i++)
		count += grads_leaf_is_of(plan, i, grads->across->node);
	return count;
}

static void fill_tables(struct grads *grads)
{
	const struct zero_job *job = grads->job;

	for (uint32_t i = 0; i < grads->subgroup_count; i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];
		const struct grads_plan *plan = grads_plan_of(grads, subgroup->unit);
		struct grads_unit *unit = &grads->units[subgroup->unit];
		uint32_t pieces = grads_piece_count(plan, subgroup->element_count);

		zi_list_init(&unit->link);
		if (plan->tree.leaf_count == 1 || job->units[subgroup->unit].is_frozen)
			continue; /* Of one node; of none. */
		unit->finishers |= 1ull << grads_finisher(job, subgroup);
		grads->subgroups[i].takers = takers_of(job, subgroup);
		if (job_finishes(job, subgroup))
			unit->finish_count += pieces;
		else
			unit->serve_count += pieces * leaves_here(grads, plan);
	}
}

int grads_open(struct zero_job *job, struct zi_text *text)
{
	struct across *across = job->across;
	struct grads *grads;
	uint32_t leaf_max = 0;
	int r;

	across->grads = grads_free(across->grads);
	if (job_is_forward_only(job)) {
		/* It has none, and slots as long as they can be. */
		r = pull_divide(across, PULL_SLOT_BYTES);
		return r ? zi_text_error(text, err_origin(r), "the slab cannot be divided again")
		         : 0;
	}
	grads = calloc(1, sizeof(*grads));
	if (!grads)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for tables"));
	grads->across = across;
	grads->job = job;
	grads->unit_count = job->layout.unit_count;
	grads->subgroup_count = job->subgroup_count;
	grads->set_count = job->set_count;
	grads->node_count = across->node_count;
	zi_list_init(&grads->finishing);
	zi_text_set(text, "no memory for tables");
	r = alloc_tables(grads);
	if (!r)
		r = make_plans(grads, text, &leaf_max);
	if (!r) {
		fill_tables(grads);
		r = grads_finish_prepare(grads, leaf_max);
	}
	if (!r)
		r = norm_prepare(grads);
	if (r) {
		(void)grads_free(grads);
		return err_trace(r);
	}
	across->grads = grads;
	return 0;
}

/* ---- what ranks hand over ---- */

bool grads_span(const struct zero_job *job, uint32_t unit)
{
	return job->across && job->across->grads && job->across->grads->units[unit].finishers;
}

bool grads_are_there(const struct zero_job *job)
{
	return !job->across || !job->across->grads || !job->across->grads->wait_count;
}

void grads_waited(struct grads *grads)
{
	struct zero_job *job = grads->job;

	assert(grads->wait_count > 0);
	if (--grads->wait_count == 0)
		step_advance(job);
}

/* What sums of the unit are multiplied by: known when all nodes have handed it over. Return: false,
 * ranks do not agree about it, and the group ends. */
static bool take_factor(struct grads *grads, uint32_t index)
{
	struct zero_job *job = grads->job;
	const struct zero_set *set = set_of(job, index);
	struct grads_unit *unit = &grads->units[index];
	uint64_t here = job->step.joined_mask & set->members;
	uint64_t joined = unit->joined | here;
	uint64_t dividers = unit->dividers | (job->step.divides_by_live ? here : 0);
	struct across *across = grads->across;

	unit->joined = unit->dividers = 0;
	unit->factor = join_factor(job, set, joined, dividers);
	if (!dividers || dividers == joined)
		return true;
	if (!across->fault)
		zi_text_set(&across->fault_text,
		            "divides_by_live is true in rank %u, but false in rank %u",
		            (uint32_t)__builtin_ctzll(dividers),
		            (uint32_t)__builtin_ctzll(joined & ~dividers));
	across->fault = across->fault ? across->fault : err_origin(-EINVAL);
	across_go_on(across);
	return false;
}

void grads_try_finish(struct grads *grads, uint32_t index)
{
	struct grads_unit *unit = &grads->units[index];
	uint64_t rest = grads_plan_of(grads, index)->nodes & ~(1ull << grads->across->node);

	if (!unit->finish_count || unit->begun == unit->handed)
		return;
	for (; rest; rest &= rest - 1)
		if (grads->heard[index * grads->node_count + (uint32_t)__builtin_ctzll(rest)] <=
		    unit->begun)
			return;
	if (!take_factor(grads, index))
		return;
	unit->begun++;
	unit->next_subgroup = 0;
	unit->next_piece = 0;
	zi_list_push_back(&grads->finishing, &unit->link);
	grads_finish(grads);
}

/* What is to become of a subgroup in this micro-batch. */
static void hand_subgroup(struct grads *grads, struct zero_subgroup *subgroup)
{
	struct zero_job *job = grads->job;
	const struct zero_unit *unit = &job->units[subgroup->unit];
	struct grads_subgroup *mine = &grads->subgroups[job_subgroup_index(job, subgroup)];
	uint32_t pieces =
		grads_piece_count(grads_plan_of(grads, subgroup->unit), subgroup->element_count);

	subgroup->is_first_micro = unit->micro_done == 0;
	subgroup->is_last_micro = unit->micro_done + 1 == job->step.options.micro_batches;
	if (subgroup->is_first_micro)
		subgroup->culprit = CULPRIT_NONE;
	mine->pieces_left = job_finishes(job, subgroup) ? pieces : 0;
	if (!subgroup->is_last_micro)
		return;
	mine->number++;
	if (mine->pieces_left) {
		mine->gives_left = pieces * (uint32_t)__builtin_popcountll(mine->takers);
		grads->wait_count += mine->gives_left > 0;
	} else if (subgroup->is_here) {
		mine->is_awaited = true;
		mine->takes_left = pieces;
		grads->wait_count++;
	}
}

void grads_hand_over(struct zero_job *job, uint32_t index)
{
	struct grads *grads = job->across->grads;
	struct grads_unit *unit = &grads->units[index];

	assert(!unit->serves_left && !unit->pieces_left && !unit->untold);
	for (uint32_t i = 0; i < job->units[index].subgroup_count; i++)
		hand_subgroup(grads, &job->subgroups[job->units[index].subgroup_first + i]);
	unit->handed++;
	unit->asks_left = unit->serves_left = unit->serve_count;
	unit->pieces_left = unit->finish_count;
	unit->untold = unit->finishers & ~(1ull << grads->across->node);
	grads->wait_count++;
	assert(unit->serves_left || unit->pieces_left);
	if (unit->untold)
		grads_note(grads, index);
	grads_say(grads->across);
	grads_try_finish(grads, index);
}

void grads_unit_advance(struct grads *grads, uint32_t index)
{
	struct zero_job *job = grads->job;
	struct grads_unit *unit = &grads->units[index];

	if (unit->serves_left || unit->pieces_left)
		return;
	assert(grads->wait_count > 0);
	grads->wait_count--;
	reduce_unit_over(job, index);
}

/* Nodes that have not said that they are ready, to this one. */
static uint64_t missing_nodes(const struct grads *grads, uint32_t index)
{
	const struct grads_unit *unit = &grads->units[index];
	uint64_t nodes = 0;

	for (uint32_t i = 0; i < grads->node_count && unit->finish_count; i++)
		if (i != grads->across->node &&
		    grads->heard[index * grads->node_count + i] < unit->handed)
			nodes |= 1ull << i;
	return nodes & grads_plan_of(grads, index)->nodes;
}

bool grads_say_late(const struct zero_job *job, uint32_t index, struct zi_text *ret_text)
{
	const struct grads *grads;
	const struct grads_unit *unit;
	uint64_t missing;

	if (!grads_span(job, index))
		return false;
	grads = job->across->grads;
	unit = &grads->units[index];
	missing = missing_nodes(grads, index);
	if (!unit->serves_left && !unit->pieces_left)
		return false;
	if (missing)
		zi_text_set(ret_text, "gradients of unit '%.60s' have not come from %.120s",
		            job->layout.units[index].name,
		            across_name(job, (uint32_t)__builtin_ctzll(missing)).chars);
	else
		zi_text_set(ret_text,
		            "%u parts of the gradient of unit '%.60s' have not been taken by the "
		            "nodes that sum them: ranks somewhere are late with it",
		            unit->serves_left, job->layout.units[index].name);
	return true;
}
