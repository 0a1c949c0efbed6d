/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums that are needed on nodes that do not finish them: where other replicas own the state. Told
 * of when they are there, then pulled, and copied to where the sum would be had it been made here.
 * Floor 5; shard thread, but for what runs on device threads. See grads.h.
 */
#include <string.h>

#include "common/base/assert.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/sums/grads_private.h"
#include "daemon/zero/grad/grads.h"
#include "daemon/zero/job/job.h"
#include "kernels/cast.h"

static char *sum_at(const struct zero_subgroup *subgroup, const struct grads_piece *piece)
{
	const struct zero_job *job = subgroup->job;

	return (char *)grad_sum_at(job, subgroup) +
	       piece->first * zi_dtype_bytes(job_sum_dtype(job));
}

static uint64_t piece_bytes(const struct zero_job *job, const struct grads_piece *piece)
{
	return piece->count * zi_dtype_bytes(grads_sum_dtype(job));
}

/* It was rounded to the narrower of the two: nothing is lost either way. */
static bool is_narrower(const struct zero_job *job)
{
	return grads_sum_dtype(job) != job_sum_dtype(job);
}

/* ---- for others ---- */

/* Documented in a header, as are all that are not static. */
void grads_sum_made(struct grads *grads, struct zero_subgroup *subgroup)
{
	uint32_t index = job_subgroup_index(grads->job, subgroup);
	struct grads_subgroup *mine = &grads->subgroups[index];

	grads_spill_made(grads, subgroup);
	if (!mine->takers)
		return;
	mine->asks_left = mine->gives_left;
	mine->untold = mine->takers;
	grads_note(grads, grads->unit_count + index);
	grads_say(grads->across);
}

bool grads_sum_asked(struct grads *grads, const struct talk_entry *entry)
{
	const struct zero_job *job = grads->job;
	const struct zero_subgroup *subgroup;
	const struct grads_plan *plan;
	struct grads_subgroup *mine;
	struct grads_piece piece;

	if (entry->unit >= grads->unit_count ||
	    entry->subgroup >= job->units[entry->unit].subgroup_count)
		return false;
	subgroup = across_subgroup(job, entry);
	mine = &grads->subgroups[job_subgroup_index(job, subgroup)];
	plan = grads_plan_of(grads, entry->unit);
	if (!mine->asks_left || entry->micro != mine->number ||
	    !(mine->takers >> entry->node & 1) ||
	    entry->piece >= grads_piece_count(plan, subgroup->element_count))
		return false;
	piece = grads_piece_at(plan, subgroup->element_count, entry->piece);
	if (entry->bytes != piece_bytes(job, &piece))
		return false;
	mine->asks_left--;
	return true;
}

void grads_sum_fill(struct across_serve *serve)
{
	const struct zero_subgroup *subgroup = across_subgroup(serve->job, &serve->entry);
	const struct grads_plan *plan = grads_plan_of(serve->across->grads, serve->entry.unit);
	struct grads_piece piece =
		grads_piece_at(plan, subgroup->element_count, serve->entry.piece);

	if (is_narrower(serve->job))
		kern_narrow(serve->memory, (void *)sum_at(subgroup, &piece), piece.count,
		            grads_sum_dtype(serve->job));
	else
		memcpy(serve->memory, sum_at(subgroup, &piece), serve->entry.bytes);
}

void grads_sum_filled(struct across_serve *serve)
{
	struct grads *grads = serve->across->grads;
	struct zero_subgroup *subgroup = across_subgroup(serve->job, &serve->entry);
	struct grads_subgroup *mine = &grads->subgroups[job_subgroup_index(serve->job, subgroup)];

	assert(mine->gives_left > 0);
	if (--mine->gives_left)
		return;
	grads_spill_given(grads, subgroup);
	grads_waited(grads);
}

/* ---- from others ---- */

static void take_run(struct fetch *fetch)
{
	struct grads_take *take = container_of(fetch, struct grads_take, fetch);

	const struct zero_job *job = take->subgroup->job;

	if (is_narrower(job))
		kern_widen((void *)sum_at(take->subgroup, &take->piece), take->pull.memory,
		           take->piece.count, grads_sum_dtype(job));
	else
		memcpy(sum_at(take->subgroup, &take->piece), take->pull.memory, take->pull.bytes);
}

static void take_ended(struct fetch *fetch, bool is_whole)
{
	struct grads_take *take = container_of(fetch, struct grads_take, fetch);
	struct grads *grads = take->grads;
	struct grads_subgroup *mine;

	if (!is_whole)
		return;
	mine = &grads->subgroups[job_subgroup_index(grads->job, take->subgroup)];
	assert(mine->takes_left > 0);
	mine->takes_left--;
	grads_take(grads);
	if (mine->takes_left)
		return;
	grads_spill_made(grads, take->subgroup);
	grads_waited(grads);
}

static void start(struct grads *grads, struct grads_take *take, uint32_t piece)
{
	struct zero_job *job = grads->job;
	const struct zero_subgroup *subgroup = take->subgroup;

	take->grads = grads;
	take->pull = (struct pull){
		.node = grads_finisher(job, subgroup),
		.what = PULL_SUM,
		.unit = subgroup->unit,
		.subgroup = subgroup->index,
		.number = grads->subgroups[job_subgroup_index(job, subgroup)].number,
		.piece = piece,
		.bytes = piece_bytes(job, &take->piece),
	};
	take->fetch = (struct fetch){ .across = grads->across,
		                      .run = take_run,
		                      .ended = take_ended,
		                      .pulls = &take->pull,
		                      .pull_count = 1 };
	fetch_start(&take->fetch);
}

/* Pieces of those that are there, in their order. */
void grads_take(struct grads *grads)
{
	struct zero_job *job = grads->job;

	for (uint32_t i = 0; i < GRADS_SUMS && grads->ready_taken != grads->ready_put; i++) {
		struct grads_take *take = &grads->takes[i];
		const struct grads_plan *plan;
		uint32_t piece = grads->ready_piece;
		struct zero_subgroup *subgroup;

		if (fetch_is_active(&take->fetch))
			continue;
		subgroup =
			&job->subgroups[grads->ready[grads->ready_taken % grads->subgroup_count]];
		if (!grads_spill_begin(subgroup))
			return;
		take->subgroup = subgroup;
		plan = grads_plan_of(grads, take->subgroup->unit);
		take->piece = grads_piece_at(plan, take->subgroup->element_count, piece);
		if (++grads->ready_piece ==
		    grads_piece_count(plan, take->subgroup->element_count)) {
			grads->ready_taken++;
			grads->ready_piece = 0;
		}
		start(grads, take, piece);
	}
}

bool grads_sum_ready(struct grads *grads, uint32_t subgroup, const struct talk_entry *entry)
{
	const struct zero_job *job = grads->job;
	struct grads_subgroup *mine = &grads->subgroups[subgroup];

	if (!mine->is_awaited || entry->micro != mine->number ||
	    grads_finisher(job, &job->subgroups[subgroup]) != entry->node)
		return false;
	mine->is_awaited = false;
	grads->ready[grads->ready_put++ % grads->subgroup_count] = subgroup;
	grads_take(grads);
	return true;
}
