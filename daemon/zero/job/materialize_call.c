/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that materialize: their models compared, and what they are given; see materialize.h. Floor
 * 5, shard thread. */
#include <stdio.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/job/attach_config.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/snapshot/load.h"
#include "daemon/zero/step/scale.h"

/* See materialize.h. */
int materialize_check_stored(const struct zero_rank *rank, struct zi_text *text)
{
	const struct zero_job *job = rank->job;
	struct zi_text why = { "" };
	char who[24];
	int r = attach_compare_stored(&job->group.config, &job->group.training, job, text);

	if (r || !job->is_stored)
		return err_trace(r);
	(void)snprintf(who, sizeof(who), "rank %u", rank->number); /* Fits. */
	r = layout_compare(&rank->layout, who, &job->layout, "the stored job", &why);
	if (r)
		zi_text_set(text,
		            "%.180s; start the job with its stored model, or name "
		            "another job",
		            why.chars);
	return err_trace(r);
}

/* The stored job, or else another rank that waits here: what this one's model must equal. */
static int compare(struct zero_rank *rank, struct zi_text *text)
{
	struct zero_job *job = rank->job;
	struct zi_text why = { "" };
	char who[24];
	char model_who[24];
	int r = materialize_check_stored(rank, text);

	if (r)
		return err_trace(r);
	(void)snprintf(who, sizeof(who), "rank %u", rank->number); /* Fits. */
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *model = job->group.ranks[i];

		if (!model || model == rank || !model->gathered[ZERO_GATHER_MATERIALIZE])
			continue;
		(void)snprintf(model_who, sizeof(model_who), "rank %u", i); /* Fits. */
		r = layout_compare(&rank->layout, who, &model->layout, model_who, &why);
		if (!r)
			r = layout_compare_sets(&rank->layout, who, &model->layout, model_who,
			                        &why);
		if (r)
			zi_text_set(text, "%.200s; all ranks must have the same model", why.chars);
		return err_trace(r);
	}
	return 0;
}

/* Of all ranks that wait here: they meet the other nodes at one place, if they have not met. */
static int compare_places(const struct zero_rank *rank, const struct zero_op *op,
                          struct zi_text *text)
{
	const struct zero_job *job = rank->job;
	int r = 0;

	if (!job_spans_nodes(job) || job->meeting.node_count)
		return 0;
	for (uint32_t i = 0; i < job->group.world_size && !r; i++) {
		const struct zero_rank *other = job->group.ranks[i];

		if (other && other->gathered[ZERO_GATHER_MATERIALIZE])
			r = meeting_compare(rank, op, other,
			                    other->gathered[ZERO_GATHER_MATERIALIZE], text);
	}
	return err_trace(r);
}

/**
 * zero_materialize() - this rank's model is whole
 * @op: completes when all ranks have come and memory is there, or with one error for all
 *
 * A model that differs breaks the group. Twice is once. Context: shard thread.
 */
void zero_materialize(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;
	struct zi_text text = { "" };
	bool is_full;
	int r;

	if (!op_begin(rank, op, ZERO_OP_MATERIALIZE)) {
		zero_drain(zero);
		return;
	}
	if (job->group.phase == ZERO_GROUP_LIVE) {
		op_complete(op, 0);
		zero_drain(zero);
		return;
	}
	if (materialize_is_on(job)) {
		op_fail(op, -EALREADY, "materialize was called before and has not ended yet");
		zero_drain(zero);
		return;
	}
	r = layout_check(&rank->layout, &text);
	if (r) {
		op->text = text;
		op_complete(op, r);
		zero_drain(zero);
		return;
	}
	r = compare(rank, &text);
	if (!r)
		r = compare_places(rank, op, &text);
	if (!r)
		r = stretches_check(rank, &text);
	if (!r)
		r = load_check(rank, &text);
	is_full = gather_join(op, ZERO_GATHER_MATERIALIZE);
	/* One that has opened collectives and left: nobody may take its place. */
	if (!group_needs_all(job) && is_full && !r)
		job_settle(job); /* Into materialize_start(), now or later. */
	if (r && job->group.phase == ZERO_GROUP_FORMING)
		group_break(job, r, rank->number, &text);
	zero_drain(zero);
}

/* What a materialised rank is given; the segments stay the job's. Context: shard thread. */
void zero_materialized(struct zero_rank *rank, struct zero_materialized *ret_materialized)
{
	const struct zero_job *job = rank->job;

	assert(job->group.phase == ZERO_GROUP_LIVE);
	*ret_materialized = (struct zero_materialized){
		.committed_step = job->committed_step,
		.slot_bytes = job->slot_bytes,
		.update_count = job->update_count,
		.loss_scale = scale_of(job),
		.param = job->param,
		.grad = job->grads[rank->number],
		.has_pooled_grads = job->grad_pool,
		.has_pooled_params = job->residency && !job_stores_param(job),
	};
}

/* Documented in the header. */
bool zero_spans_nodes(const struct zero_rank *rank)
{
	return job_spans_nodes(rank->job);
}

/* Return: units of the job once it is materialised for this rank, else 0. */
uint32_t zero_unit_count(const struct zero_rank *rank)
{
	return rank->pin_counts && rank->job->group.phase == ZERO_GROUP_LIVE && !rank->broken_error
	               ? rank->job->layout.unit_count
	               : 0;
}
