/* SPDX-License-Identifier: Apache-2.0 */
/* What a job is refused for; see materialize_check.h. Floor 5, shard thread. */
#include "daemon/zero/job/materialize_check.h"

#include <string.h>

#include "common/base/err.h"
#include "common/wire/owner.h"
#include "daemon/zero/across/agree/missing.h"
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

/* See materialize_check.h. Which sets a commit was made with nobody knows after a restart: of a job
 * that names some, nodes look at what they have. */
bool materialize_is_in_place(const struct zero_job *job, int64_t step,
                             const struct zero_marks *marks)
{
	const struct catalog_placement *then = &marks->placement;
	uint64_t come_mask = job->group.gather_masks[ZERO_GATHER_MATERIALIZE];
	const struct zero_rank *rank = job->group.ranks[__builtin_ctzll(come_mask)];

	if (step < 0)
		return true;
	return !rank->layout.set_count && !job->layout.set_count &&
	       marks->world == job->group.world_size &&
	       then->node_count == job->meeting.node_count && then->node == job->meeting.node &&
	       !memcmp(then->nodes, job->meeting.nodes, marks->world) &&
	       then->strategy == job->group.training.strategy &&
	       then->shard_size == job->group.training.shard_size;
}

/* State in memory alone, which is not moved. */
static int check_memory(const struct zero_job *job, struct zi_text *text)
{
	const struct catalog_placement *then = &job->committed.placement;

	if (then->node_count <= 1 && !job_spans_nodes(job))
		return 0;
	if (job->committed.world == job->group.world_size &&
	    then->node_count == job->meeting.node_count && then->node == job->meeting.node &&
	    !memcmp(then->nodes, job->meeting.nodes, job->committed.world) &&
	    then->strategy == job->group.training.strategy &&
	    then->shard_size == job->group.training.shard_size)
		return check_sets(job, text);
	return err_origin(zi_text_error(
		text, -EOPNOTSUPP,
		"job '%.60s' has its state in memory alone, and was committed by %u ranks on %u "
		"nodes: start as many ranks, each where it was, with the same strategy, or keep "
		"state on nvme, which moves",
		job->name, job->committed.world, ZI_MAX(then->node_count, 1u)));
}

/* A node alone goes on where it has everything: in either of two commits. */
static int check_alone(const struct zero_job *job, struct zi_text *text)
{
	struct missing missing = { .job = job->name,
		                   .layout = &job->layout,
		                   .placement = &job->committed.placement,
		                   .world = job->committed.world,
		                   .step = job->committed_step };

	for (uint32_t i = job->subgroup_count; i-- > 0;)
		if (!job->subgroups[i].is_here) {
			missing.count++;
			missing.subgroup = i;
		}
	if (!missing.count)
		return 0;
	missing_say(&missing, text);
	return err_origin(-ENODATA);
}

/* See materialize_check.h. */
int materialize_check_nodes(const struct zero_job *job, struct zi_text *text)
{
	if (job->committed_step < 0)
		return 0;
	if (!job_is_nvme(job))
		return err_trace(check_memory(job, text));
	return job_spans_nodes(job) ? 0 : err_trace(check_alone(job, text));
}
