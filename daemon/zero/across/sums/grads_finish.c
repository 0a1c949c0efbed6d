/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over nodes: partials that are made here for others, and sums that are finished here from
 * those of all; see grads.h. Floor 5; shard thread, but for what runs on device threads.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/sums/grads_private.h"
#include "daemon/zero/grad/grads.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/step/culprit.h"
#include "daemon/zero/step/reduce.h"
#include "kernels/cast.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"

/* ---- what a leaf is made of ---- */

static enum zi_dtype grad_dtype(const struct zero_job *job)
{
	return (enum zi_dtype)job->config.grad_dtype;
}

/* (leaf->count,) the gradients of its ranks, from @element of the subgroup on. */
static void leaf_sources(const struct zero_job *job, const struct grads_plan *plan,
                         const struct subtree *leaf, const struct zero_subgroup *subgroup,
                         uint64_t element, const void **ret_sources)
{
	uint64_t begin = subgroup->grad_begin + element * zi_dtype_bytes(grad_dtype(job));

	for (uint32_t i = 0; i < leaf->count; i++)
		ret_sources[i] = grad_at(job, plan->ranks[leaf->first + i], subgroup->unit, begin);
}

/* Whatever its ranks left where parameters are frozen is cleared, and the rest has values of the
 * type that it is summed in: both leave as it is what they have changed once. */
static void leaf_prepare(const struct zero_job *job, const struct grads_plan *plan,
                         const struct subtree *leaf, const struct zero_subgroup *subgroup,
                         const struct grads_piece *piece)
{
	const void *sources[ZI_WORLD_MAX];

	leaf_sources(job, plan, leaf, subgroup, piece->first, sources);
	for (uint32_t i = 0; i < leaf->count; i++) {
		stretches_clear(job, subgroup->unit, subgroup_element(subgroup) + piece->first,
		                piece->count, (void *)sources[i], zi_dtype_bytes(grad_dtype(job)));
		reduce_round(job, (void *)sources[i], piece->count);
	}
}

static uint64_t partial_bytes(const struct zero_job *job, const struct grads_plan *plan,
                              uint32_t leaf, const struct grads_piece *piece)
{
	return piece->count *
	       zi_dtype_bytes(subtree_dtype(&plan->tree.leaves[leaf], grads_leaf_dtype(job)));
}

/* (@count,) what a leaf here is to the tree, as it travels. */
static void leaf_partial(const struct zero_job *job, const struct subtree *leaf,
                         const void *const *sources, void *target, uint64_t count)
{
	if (leaf->count == 1 && grads_leaf_dtype(job) != grad_dtype(job))
		kern_narrow(target, sources[0], count, grads_leaf_dtype(job));
	else
		finish_partial(leaf, sources, target, count, grad_dtype(job), ZI_REDUCE_SUM);
}

/* ---- for others ---- */

/* Documented in a header, as are all that are not static. */
bool grads_partial_asked(struct grads *grads, const struct talk_entry *entry)
{
	const struct zero_job *job = grads->job;
	const struct zero_subgroup *subgroup;
	const struct grads_plan *plan;
	struct grads_unit *unit;
	struct grads_piece piece;

	if (entry->unit >= grads->unit_count)
		return false;
	unit = &grads->units[entry->unit];
	if (!unit->asks_left || entry->micro != unit->handed ||
	    entry->subgroup >= job->units[entry->unit].subgroup_count)
		return false;
	subgroup = across_subgroup(job, entry);
	plan = grads_plan_of(grads, entry->unit);
	if (grads_finisher(job, subgroup) != entry->node || entry->step < 0 ||
	    entry->step >= plan->tree.leaf_count ||
	    !grads_leaf_is_of(plan, (uint32_t)entry->step, grads->across->node) ||
	    entry->piece >= grads_piece_count(plan, subgroup->element_count))
		return false;
	piece = grads_piece_at(plan, subgroup->element_count, entry->piece);
	if (entry->bytes != partial_bytes(job, plan, (uint32_t)entry->step, &piece))
		return false;
	unit->asks_left--;
	return true;
}

void grads_partial_fill(struct across_serve *serve)
{
	const struct zero_job *job = serve->job;
	const struct zero_subgroup *subgroup = across_subgroup(job, &serve->entry);
	const struct grads_plan *plan = grads_plan_of(serve->across->grads, serve->entry.unit);
	const struct subtree *leaf = &plan->tree.leaves[serve->entry.step];
	struct grads_piece piece =
		grads_piece_at(plan, subgroup->element_count, serve->entry.piece);
	const void *sources[ZI_WORLD_MAX];

	leaf_prepare(job, plan, leaf, subgroup, &piece);
	leaf_sources(job, plan, leaf, subgroup, piece.first, sources);
	leaf_partial(job, leaf, sources, serve->memory, piece.count);
}

void grads_partial_filled(struct across_serve *serve)
{
	struct grads *grads = serve->across->grads;
	struct grads_unit *unit = &grads->units[serve->entry.unit];

	assert(unit->serves_left > 0);
	unit->serves_left--;
	grads_unit_advance(grads, serve->entry.unit);
}

/* ---- a piece is finished ---- */

/* Where its sum goes. */
static char *sum_at(const struct grads_group *group)
{
	return (char *)grad_sum_at(group->subgroup->job, group->subgroup) +
	       group->piece.first * zi_dtype_bytes(job_sum_dtype(group->subgroup->job));
}

static float *accum_at(const struct grads_group *group)
{
	const struct zero_subgroup *subgroup = group->subgroup;
	char *base = subgroup->job->accum->region.base;

	return (float *)(void *)(base + subgroup->accum_offset) + group->piece.first;
}

/* The partials of a block: those that came, a rank's own elements, or made now. */
static void collect(const struct grads_group *group, uint64_t offset, uint64_t count,
                    const void **ret_partials)
{
	const struct zero_subgroup *subgroup = group->subgroup;
	const struct zero_job *job = subgroup->job;
	const struct grads_plan *plan = grads_plan_of(group->grads, subgroup->unit);
	const struct pull *pull = group->fetch.pulls;
	float *partial = group->partials;
	const void *sources[ZI_WORLD_MAX];

	for (uint32_t i = 0; i < plan->tree.leaf_count; i++) {
		const struct subtree *leaf = &plan->tree.leaves[i];

		if (!grads_leaf_is_of(plan, i, group->grads->across->node)) {
			assert(pull->leaf == i);
			ret_partials[i] =
				(char *)pull->memory +
				offset * zi_dtype_bytes(subtree_dtype(leaf, grads_leaf_dtype(job)));
			pull++;
			continue;
		}
		leaf_sources(job, plan, leaf, subgroup, group->piece.first + offset, sources);
		if (leaf->count == 1 && grads_leaf_dtype(job) == grad_dtype(job)) {
			ret_partials[i] = sources[0];
			continue;
		}
		leaf_partial(job, leaf, sources, partial, count);
		ret_partials[i] = partial;
		partial += FINISH_BLOCK_ELEMENTS;
	}
}

static void finish_block(struct grads_group *group, uint64_t offset, uint64_t count)
{
	const struct zero_subgroup *subgroup = group->subgroup;
	const struct zero_job *job = subgroup->job;
	const struct grads_plan *plan = grads_plan_of(group->grads, subgroup->unit);
	const void *partials[ZI_WORLD_MAX];
	struct finish_run run = {
		.plan = &plan->tree,
		.partials = partials,
		.element_count = count,
		.dtype = grads_leaf_dtype(job),
		.target_dtype = ZI_DTYPE_F32,
	};
	const void *block = group->block;

	collect(group, offset, count, partials);
	if (job->accum) {
		run.target = group->block;
		run.op = ZI_REDUCE_SUM;
	} else {
		run.target_dtype = job_sum_dtype(job);
		run.target = sum_at(group) + offset * zi_dtype_bytes(run.target_dtype);
		run.op = ZI_REDUCE_AVG;
		run.average = group->grads->units[subgroup->unit].factor;
	}
	finish_run(&run, group->scratch);
	if (job->accum)
		kern_reduce_accumulate(accum_at(group) + offset, &block, 1, count,
		                       subgroup->is_first_micro, ZI_DTYPE_F32);
}

/* The norm of what was summed, and whose fault it is where there is none. */
static void look(struct grads_group *group, const void *summed, enum zi_dtype dtype, float unscale,
                 bool is_in_place)
{
	const struct zero_subgroup *subgroup = group->subgroup;
	struct zero_job *job = subgroup->job;
	double *blocks =
		&job->norm_blocks[subgroup->block_first + group->piece.first / ZI_BLOCK_ELEMENTS];

	if (!job->step.is_norm_wanted)
		return;
	kern_norm_blocks(blocks, summed, group->piece.count, unscale, dtype);
	group->culprit = grads_culprit(group, blocks, summed, dtype, is_in_place);
}

static void group_run(struct fetch *fetch)
{
	struct grads_group *group = container_of(fetch, struct grads_group, fetch);
	const struct zero_subgroup *subgroup = group->subgroup;
	const struct zero_job *job = subgroup->job;
	const struct grads_plan *plan = grads_plan_of(group->grads, subgroup->unit);
	struct kern_reduce_options options = {
		.dtype = job_sum_dtype(job),
		.average = group->grads->units[subgroup->unit].factor,
	};
	uint64_t count;

	for (uint32_t i = 0; i < plan->tree.leaf_count; i++)
		if (grads_leaf_is_of(plan, i, group->grads->across->node))
			leaf_prepare(job, plan, &plan->tree.leaves[i], subgroup, &group->piece);
	for (uint64_t offset = 0; offset < group->piece.count; offset += count) {
		count = ZI_MIN(group->piece.count - offset, (uint64_t)FINISH_BLOCK_ELEMENTS);
		finish_block(group, offset, count);
	}
	group->culprit = CULPRIT_NONE;
	if (job->accum && !subgroup->is_last_micro) {
		look(group, accum_at(group), ZI_DTYPE_F32, 1.0f, false); /* It is gone later. */
		return;
	}
	if (job->accum)
		kern_reduce_finish(sum_at(group), accum_at(group), group->piece.count, &options);
	reduce_round(job, (void *)sum_at(group), group->piece.count);
	look(group, sum_at(group), job_sum_dtype(job), job->step.hyper.unscale, true);
}

static void group_ended(struct fetch *fetch, bool is_whole)
{
	struct grads_group *group = container_of(fetch, struct grads_group, fetch);
	struct grads *grads = group->grads;
	struct zero_subgroup *subgroup = group->subgroup;
	struct grads_subgroup *mine = &grads->subgroups[job_subgroup_index(grads->job, subgroup)];
	struct grads_unit *unit = &grads->units[subgroup->unit];

	if (!is_whole)
		return;
	assert(mine->pieces_left > 0);
	assert(unit->pieces_left > 0);
	mine->pieces_left--;
	unit->pieces_left--;
	if (subgroup->culprit == CULPRIT_NONE)
		subgroup->culprit = group->culprit;
	if (!mine->pieces_left && subgroup->is_last_micro)
		grads_sum_made(grads, subgroup);
	grads_finish(grads);
	grads_unit_advance(grads, subgroup->unit);
}

/* ---- one after the other ---- */

/* Takes the next piece of the unit that is first in turn. Return: false, there is none. */
static bool next_piece(struct grads *grads, struct grads_group *group, uint32_t *ret_piece)
{
	const struct zero_job *job = grads->job;

	while (!zi_list_is_empty(&grads->finishing)) {
		struct grads_unit *mine =
			container_of(grads->finishing.next, struct grads_unit, link);
		uint32_t index = (uint32_t)(mine - grads->units);
		const struct zero_unit *unit = &job->units[index];
		const struct grads_plan *plan = grads_plan_of(grads, index);

		for (; mine->next_subgroup < unit->subgroup_count; mine->next_subgroup++) {
			struct zero_subgroup *subgroup =
				&job->subgroups[unit->subgroup_first + mine->next_subgroup];

			if (job_finishes(job, subgroup) &&
			    mine->next_piece < grads_piece_count(plan, subgroup->element_count)) {
				if (!grads_spill_begin(subgroup))
					return false;
				*ret_piece = mine->next_piece++;
				group->subgroup = subgroup;
				group->piece =
					grads_piece_at(plan, subgroup->element_count, *ret_piece);
				return true;
			}
			mine->next_piece = 0;
		}
		zi_list_remove(&mine->link);
	}
	return false;
}

static void start(struct grads *grads, struct grads_group *group, uint32_t piece)
{
	const struct zero_subgroup *subgroup = group->subgroup;
	const struct grads_plan *plan = grads_plan_of(grads, subgroup->unit);
	uint32_t count = 0;

	for (uint32_t i = 0; i < plan->tree.leaf_count; i++) {
		if (grads_leaf_is_of(plan, i, grads->across->node))
			continue;
		group->fetch.pulls[count++] = (struct pull){
			.node = plan->tree.leaves[i].node,
			.what = PULL_PARTIAL,
			.unit = subgroup->unit,
			.subgroup = subgroup->index,
			.number = grads->units[subgroup->unit].begun,
			.piece = piece,
			.leaf = i,
			.bytes = partial_bytes(subgroup->job, plan, i, &group->piece),
		};
	}
	group->fetch.pull_count = count;
	fetch_start(&group->fetch);
}

void grads_finish(struct grads *grads)
{
	uint32_t piece = 0;

	for (uint32_t i = 0; i < GRADS_DEPTH; i++) {
		struct grads_group *group = &grads->groups[i];

		if (fetch_is_active(&group->fetch))
			continue;
		if (!next_piece(grads, group, &piece))
			return;
		start(grads, group, piece);
	}
}

int grads_finish_prepare(struct grads *grads, uint32_t leaf_max)
{
	for (uint32_t i = 0; i < GRADS_DEPTH; i++) {
		struct grads_group *group = &grads->groups[i];

		group->grads = grads;
		group->fetch = (struct fetch){
			.across = grads->across,
			.run = group_run,
			.ended = group_ended,
			.pulls = calloc(leaf_max, sizeof(struct pull)),
		};
		group->partials = calloc(leaf_max, FINISH_BLOCK_ELEMENTS * sizeof(float));
		group->block = calloc(FINISH_BLOCK_ELEMENTS, sizeof(float));
		if (!group->fetch.pulls || !group->partials || !group->block ||
		    finish_scratch_new(&group->scratch))
			return err_origin(-ENOMEM);
	}
	return 0;
}

void grads_finish_free(struct grads *grads)
{
	for (uint32_t i = 0; i < GRADS_DEPTH; i++) {
		struct grads_group *group = &grads->groups[i];

		assert(!fetch_is_active(&group->fetch));
		free(group->fetch.pulls);
		free(group->partials);
		free(group->block);
		(void)finish_scratch_free(group->scratch); /* NULL: of what is not there. */
	}
}
