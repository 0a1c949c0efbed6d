/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job is made of when its ranks have come: what was theirs before goes, tables are built for
 * the model as they have it now, and segments of memory by device threads. Floor 5, shard thread,
 * but for build_run().
 */
#include "daemon/zero/job/materialize_build.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/bytes/blobs.h"
#include "daemon/zero/across/bytes/params.h"
#include "daemon/zero/across/sums/grads.h"
#include "daemon/zero/job/forward.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/job/materialize_check.h"
#include "daemon/zero/job/memory.h"
#include "daemon/zero/job/shard.h"
#include "daemon/zero/job/start.h"
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/param/stream.h"
#include "daemon/zero/place/owner.h"
#include "daemon/zero/snapshot/load.h"
#include "daemon/zero/step/step.h"

/* The layout comes from the first rank: all others have the same. */
static void take_layout(struct zero_job *job)
{
	stream_to_job(job->group.ranks[job_first_rank(job)]);
}

static int prepare(struct zero_job *job, struct zi_text *text)
{
	const struct zero_layout *first = &job->layout; /* The first rank's: whose groups count. */
	uint64_t come_mask = job->group.gather_masks[ZERO_GATHER_MATERIALIZE]; /* All have come. */
	bool is_new;
	int r;

	/* Again: it may have been stored by a former start, after these ranks came. */
	r = materialize_check_stored(job->group.ranks[__builtin_ctzll(come_mask)], text);
	if (r)
		return err_trace(r);
	r = start_keep(job);
	if (r) {
		zi_text_set(text, "no memory for the job's tables");
		return err_trace(r);
	}
	job_drop_incarnation(job);
	if (job_is_nvme(job)) {
		/* Its resident share may be another one now, as what it owns may. */
		shard_drop(job);
		job->state = tier_segment_unref(job->state);
		for (uint32_t i = 0; i < job->subgroup_count; i++)
			job->subgroups[i].memory = NULL;
	}
	job_unload(job);
	forward_take_config(job);
	static_assert(ZI_IO_WEIGHT_MAX <= NVME_FLOW_WEIGHT_MAX, "what was checked is allowed");
	static_assert(ZI_IO_WEIGHT_DEFAULT == NVME_FLOW_WEIGHT_DEFAULT, "0 is the same to both");
	if (job->flow)
		(void)nvme_flow_weigh(job->flow, job->config.io_weight);
	if (job_has_pool(job))
		job_drop_param(job); /* It may have had all of them in memory before. */
	job->world = job->group.world_size;
	job->here_mask = come_mask;
	assert(job_spans_nodes(job) || job->here_mask == job_mask_of(job->world));
	is_new = !job->units;
	if (!job->layout.unit_count)
		take_layout(job);
	else
		first = &job->group.ranks[job_first_rank(job)]->layout;
	if (first != &job->layout)
		r = layout_take_sets(&job->layout, first);
	if (is_new && !r)
		r = materialize_check_bytes(job, text);
	if (is_new && !r && !load_is_due(job)) /* What begins with a snapshot is as that is. */
		r = layout_check_params(&job->layout, text);
	if (is_new && !r)
		r = layout_build(job, text);
	if (!r)
		r = stretches_build(job, first, text); /* What is frozen has no gradient. */
	if (!r)
		r = sets_build(job);
	if (r == -ENOMEM)
		zi_text_set(text, "no memory for the job's tables");
	if (r)
		return err_trace(r);
	owners_build(job);
	if (is_new && load_is_due(job))
		r = load_adopt(job, text);
	else
		scale_resume(job); /* Its ranks may ask for another one than before. */
	if (!r)
		r = memory_plan(job, text);
	if (!r && job->across)
		r = grads_open(job, text);
	if (!r && job->across)
		r = params_open(job, text);
	if (!r && job->across)
		r = blobs_open(job, text);
	return err_trace(r);
}

/* All device threads are done. */
static void built(struct zero_job *job)
{
	struct zi_text text = { "" };
	int error = 0;

	for (uint32_t i = 0; i < job->build_count && !error; i++) {
		error = job->builds[i].error;
		text = job->builds[i].text;
	}
	materialize_built(job, error, &text);
}

static void build_run(struct dev_task *task)
{
	struct zero_build *build = container_of(task, struct zero_build, task);

	build->error = tier_segment_build(build->segment, &build->text);
}

static void build_done(struct dev_task *task)
{
	struct zero_job *job = container_of(task, struct zero_build, task)->job;
	struct zero *zero = job->zero;

	job_unbusy(job);
	assert(job->build_pending > 0);
	if (--job->build_pending == 0)
		built(job);
	zero_drain(zero);
}

/* See materialize_build.h. */
void materialize_build(struct zero_job *job)
{
	struct zi_text text = { "" };
	int r = prepare(job, &text);

	/* Forward only, all of it may be in memory. */
	if (r || !job->build_count) {
		materialize_built(job, r, &text);
		return;
	}
	job->build_pending = job->build_count;
	for (uint32_t i = 0; i < job->build_count; i++) {
		job->builds[i].task = (struct dev_task){ .run = build_run,
			                                 .done = build_done,
			                                 .loop = job->zero->options.loop };
		job_busy(job);
		dev_submit(job->device, &job->builds[i].task);
	}
}
