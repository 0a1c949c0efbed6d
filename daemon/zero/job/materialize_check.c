/* SPDX-License-Identifier: Apache-2.0 */
/* What a job is refused for; see materialize_check.h. Floor 5, shard thread. */
#include "daemon/zero/job/materialize_check.h"

#include <string.h>

#include "common/base/err.h"
#include "common/wire/owner.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

/* Documented in the header, as is the other. */
int materialize_check_bytes(const struct zero_job *job, struct zi_text *text)
{
	uint32_t rank_count = (uint32_t)__builtin_popcountll(job->here_mask);
	/* What is divided: at least its sum. */
	bool is_divided = zi_grads_are_divided(&job->config, &job->training);
	uint64_t grad_count = is_divided ? layout_sum_count(&job->layout)
	                                 : layout_grad_count(&job->layout, job->here_mask);
	uint64_t bytes = grad_count * zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);
	const char *what = job_has_pool(job) ? "gradients" : "parameters and gradients";

	if (job_is_forward_only(job)) {
		bytes = 0;
		what = "parameters";
	}
	/* Fits: 2^48 elements, each unit's padding, 64 ranks. */
	if (!job_has_pool(job))
		bytes += layout_padded_count(&job->layout) *
		         zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
	if (bytes <= job->cpu_tier->capacity_bytes)
		return 0;
	return err_origin(zi_text_error(
		text, -ENOSPC,
		"%s of job '%s' with %u ranks take %s, %s has %s in all: raise tier.cpu.capacity, "
		"or use fewer ranks",
		what, job->name, rank_count, zi_format_bytes(bytes).chars, job->cpu_tier->name,
		zi_format_bytes(job->cpu_tier->capacity_bytes).chars));
}

/* Its ranks are where they were, and its planes divided as they were. */
static bool is_as_committed(const struct zero_job *job)
{
	const struct catalog_placement *then = &job->committed.placement;

	return job->committed.world == job->group.world_size &&
	       then->node_count == job->meeting.node_count && then->node == job->meeting.node &&
	       !memcmp(then->nodes, job->meeting.nodes, job->committed.world) &&
	       then->strategy == job->group.training.strategy &&
	       then->shard_size == job->group.training.shard_size;
}

/* Sets are a start's; of several nodes what each holds goes by them. */
static int check_sets(const struct zero_job *job, struct zi_text *text)
{
	uint64_t come_mask = job->group.gather_masks[ZERO_GATHER_MATERIALIZE];
	const struct zero_rank *rank = job->group.ranks[__builtin_ctzll(come_mask)];
	struct zi_text why = { "" };
	int r;

	if (!job->layout.unit_count)
		return 0;
	r = layout_compare_sets(&rank->layout, "the ranks", &job->layout, "the stored job", &why);
	if (!r)
		return 0;
	return err_origin(zi_text_error(
		text, -EOPNOTSUPP,
		"%.180s; what a node holds went by these: start it with the same", why.chars));
}

int materialize_check_nodes(const struct zero_job *job, struct zi_text *text)
{
	uint32_t node_count = job->committed.placement.node_count;

	if (job->committed_step < 0 || (node_count <= 1 && !job_spans_nodes(job)))
		return 0;
	if (node_count <= 1)
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"job '%s' was committed by %u ranks on one node, which holds all of it, "
			"and has ranks on %u nodes now: start it on that node alone",
			job->name, job->committed.world, job->meeting.node_count));
	if (!job_spans_nodes(job))
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"job '%s' was committed by %u nodes, of which each holds a part of it, and "
			"has all of its ranks on this one now: start it on as many nodes",
			job->name, node_count));
	if (is_as_committed(job))
		return check_sets(job, text);
	return err_origin(zi_text_error(
		text, -EOPNOTSUPP,
		"job '%.60s' was committed by %u ranks on %u nodes, of which each holds a part of "
		"it, and what it needs now is held elsewhere: start as many ranks, each where it "
		"was, with the same strategy",
		job->name, job->committed.world, node_count));
}
