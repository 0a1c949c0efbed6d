/* SPDX-License-Identifier: Apache-2.0 */
/* Written parameters from another node; see written.h. Floor 5, shard thread. */
#include "daemon/zero/across/bytes/written.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/utf8.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/agree.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

static void next(struct across_written *written, struct across_copy *copy);

static void end_one(struct across_written *written)
{
	struct zero_job *job = written->job;

	assert(written->active_count > 0);
	if (--written->active_count == 0)
		written->go_on(job);
}

static void copy_run(struct dev_task *task)
{
	struct across_copy *copy = container_of(task, struct across_copy, task);

	memcpy(copy->target, copy->pull.memory, copy->pull.bytes);
}

static void copy_done(struct dev_task *task)
{
	struct across_copy *copy = container_of(task, struct across_copy, task);
	struct zero_job *job = copy->pull.job;
	struct zero *zero = job->zero;

	copy->across->task_count--;
	job_unbusy(job);
	pull_release(&copy->pull);
	if (copy->across->error)
		across_go_on(copy->across); /* It may wait for this. */
	next(&copy->across->written, copy);
	job_settle(job);
	zero_drain(zero);
}

static void came(struct pull *pull)
{
	struct across_copy *copy = container_of(pull, struct across_copy, pull);

	if (pull->error) {
		end_one(&copy->across->written);
		return;
	}
	copy->task = (struct dev_task){ .run = copy_run,
		                        .done = copy_done,
		                        .loop = pull->job->zero->options.loop };
	copy->across->task_count++;
	job_busy(pull->job);
	dev_submit(pull->job->device, &copy->task);
}

/* With a pool: of those subgroups that stay here. */
static bool next_own_piece(struct across_written *written, struct across_copy *copy)
{
	struct zero_job *job = written->job;
	const struct zero_unit *unit = &job->units[written->unit];

	for (; written->subgroup < unit->subgroup_count; written->subgroup++, written->piece = 0) {
		struct zero_subgroup *subgroup =
			&job->subgroups[unit->subgroup_first + written->subgroup];
		uint64_t bytes = job_subgroup_param_bytes(job, subgroup);
		uint64_t begin = written->piece * copy->across->slot_bytes;

		if (!job_keeps(subgroup, ZERO_PLANE_PARAM) || begin >= bytes)
			continue;
		copy->target = written->base
		                       ? written->base + job_subgroup_param_begin(job, subgroup)
		                       : (char *)job_subgroup_param(job, subgroup);
		copy->target = (char *)copy->target + begin;
		copy->pull.subgroup = written->subgroup;
		copy->pull.piece = written->piece++;
		copy->pull.bytes = ZI_MIN(bytes - begin, copy->across->slot_bytes);
		return true;
	}
	return false;
}

static bool next_piece(struct across_written *written, struct across_copy *copy)
{
	struct zero_job *job = written->job;
	uint64_t bytes = job_param_bytes(job, job->units[written->unit].padded_count);
	uint64_t slot_bytes = copy->across->slot_bytes, begin = written->piece * slot_bytes;

	if (job->residency)
		return next_own_piece(written, copy);
	if (begin >= bytes)
		return false;
	copy->target = (char *)job_unit_param(job, written->unit) + begin;
	copy->pull.piece = written->piece++;
	copy->pull.bytes = ZI_MIN(bytes - begin, slot_bytes);
	return true;
}

/* The next piece of the unit; none is left, or there is nobody any more to have it from. */
static void next(struct across_written *written, struct across_copy *copy)
{
	copy->pull = (struct pull){
		.job = written->job,
		.node = written->node,
		.what = PULL_WRITTEN,
		.unit = written->unit,
		.number = copy->across->write_count,
		.done = came,
	};
	if (!copy->across->error && next_piece(written, copy))
		pull_start(&copy->pull);
	else
		end_one(written);
}

/* Documented in the header, as are the others. */
uint32_t written_count(struct zero_job *job)
{
	return ++job->across->write_count;
}

void written_pull(struct zero_job *job, uint32_t unit, uint32_t root, void *base,
                  gather_go_fn go_on)
{
	struct across *across = job->across;
	struct across_written *written = &across->written;

	assert(!written->active_count);
	written->job = job;
	written->unit = unit;
	written->node = across->nodes[root];
	written->subgroup = 0;
	written->piece = 0;
	written->base = base;
	written->go_on = go_on;
	written->active_count = ZI_COUNT_OF(written->copies);
	for (uint32_t i = 0; i < ZI_COUNT_OF(written->copies); i++) {
		written->copies[i].across = across;
		next(written, &written->copies[i]);
	}
}

void written_serve(struct zero_job *job)
{
	job->across->written_count = job->across->write_count;
	serve_more(job->across);
}

void written_serve_from(struct zero_job *job, struct tier_segment *source)
{
	struct across_written *written = &job->across->written;

	assert(!written->source);
	written->source = tier_segment_ref(source);
	written->source_unit = job->write_unit;
	written->source_number = job->across->write_count;
	written_serve(job);
}

/* All nodes have their parts. */
static void voted(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct zi_text why, told;
	uint32_t node = 0;
	int r;

	(void)text; /* Its ranks have heard why. */
	if (job->across)
		job->across->written.source = tier_segment_unref(job->across->written.source);
	if (!error && job->group.phase == ZERO_GROUP_LIVE) {
		r = round_refusal(round, across_node_count(job), &why, &node);
		if (r) {
			zi_text_set(&told, "%.80s cannot have unit '%.60s' written: %.110s",
			            across_name(job, node).chars,
			            job->layout.units[job->write_unit].name, why.chars);
			zi_utf8_clean(told.chars); /* Another node's word. */
			group_break(job, r, UINT32_MAX, &told);
		} else {
			gather_complete(job, ZERO_GATHER_WRITE_END, 0, NULL);
			agree_held(job);
			residency_changed(job);
		}
	}
	job_settle(job);
}

void written_vote(struct zero_job *job, int error, const struct zi_text *text)
{
	struct round_vote vote = { .error = 0 };

	if (error)
		round_vote_refuse(&vote, error, text);
	across_vote(job, ROUND_WRITTEN, &vote, voted);
}
