/* SPDX-License-Identifier: Apache-2.0 */
/* What a job is refused for; see materialize_check.h. Floor 5, shard thread. */
#include "daemon/zero/job/materialize_check.h"

#include <string.h>

#include "common/base/err.h"
#include "common/wire/owner.h"
#include "daemon/zero/across/agree/missing.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/job/advice.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/snapshot/load.h"

/* Making tables takes the shard's time, and nobody is charged for them. */
static int check_tables(const struct zero_job *job, struct zi_text *text)
{
	uint64_t elements_max = job->cpu_tier->capacity_bytes * LAYOUT_TABLE_ELEMENTS;

	if (layout_padded_count(&job->layout) <= elements_max)
		return 0;
	return err_origin(zi_text_error(
		text, -ENOSPC,
		"job '%.30s' has %llu elements with padding, and tables for them would take too "
		"much of the %s of %s, which is enough for %llu: raise tier.cpu.capacity",
		job->name, (unsigned long long)layout_padded_count(&job->layout),
		zi_format_bytes(job->cpu_tier->capacity_bytes).chars, job->cpu_tier->name,
		(unsigned long long)elements_max));
}

/* Of @count elements, which ranks divide: what is this node's at least. Whole subgroups are dealt
 * out, so that a rank may have one less than others; of named sets its ranks may be in one each. */
static uint64_t least_share(const struct zero_job *job, uint64_t count)
{
	uint64_t rank_count = (uint64_t)__builtin_popcountll(job->here_mask);

	if (!job_spans_nodes(job))
		return count;
	if (job->layout.set_count)
		return 0;
	count = count / job->world * rank_count;
	return count - ZI_MIN(count, rank_count * ZI_SUBGROUP_ELEMENTS);
}

/* What is stored takes that twice. What comes from a snapshot lies there, and maybe elsewhere. */
static int check_store(const struct zero_job *job, struct zi_text *text)
{
	uint64_t count = layout_padded_count(&job->layout), share = least_share(job, count);
	/* On each node's store, where that has all of them. */
	uint64_t param_count =
		job_stores_param(job) && !job_divides_param(job) && !job->layout.set_count ? count
											   : share;
	uint64_t bytes;

	if (!job_is_nvme(job) || load_is_due(job))
		return 0;
	bytes = share * job_state_bytes(job) + job_param_bytes(job, param_count);
	if (2 * bytes <= job->nvme_tier->capacity_bytes)
		return 0;
	zi_text_set(text, "job '%.30s' needs 2 x %s on %s, which has %s in all: enlarge the store",
	            job->name, zi_format_bytes(bytes).chars, job->nvme_tier->name,
	            zi_format_bytes(job->nvme_tier->capacity_bytes).chars);
	advice_append(job, text);
	return err_origin(-ENOSPC);
}

/* What gradients take at least: the planes of ranks that have their own; else sums, of several
 * nodes about this one's share, as far as they are not in the store. */
static uint64_t least_grad_bytes(const struct zero_job *job, uint32_t rank_count)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);
	uint64_t budget_bytes = job->training.grad_budget_bytes, bytes;

	if (job_is_forward_only(job))
		return 0;
	if (!zi_grads_are_divided(&job->config, &job->training))
		return layout_grad_count(&job->layout, job->here_mask) * width;
	bytes = least_share(job, layout_sum_count(&job->layout)) * width;
	if (budget_bytes && job_is_nvme(job) && !job_has_wide_sums(job) &&
	    budget_bytes <= bytes / rank_count)
		return rank_count * budget_bytes;
	return bytes;
}

static int check_memory_bytes(const struct zero_job *job, struct zi_text *text)
{
	uint32_t rank_count = (uint32_t)__builtin_popcountll(job->here_mask);
	uint64_t bytes = least_grad_bytes(job, rank_count);
	const char *what = job_has_pool(job) ? "gradients" : "parameters and gradients";

	if (job_is_forward_only(job))
		what = "parameters";
	/* Fits: 2^48 elements, each unit's padding, 64 ranks. */
	if (!job_has_pool(job))
		bytes += layout_padded_count(&job->layout) *
		         zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
	if (bytes <= job->cpu_tier->capacity_bytes)
		return 0;
	zi_text_set(text,
	            "%s of job '%.30s' with %u rank%s take %s, %s has %s in all: raise "
	            "tier.cpu.capacity%s",
	            what, job->name, rank_count, rank_count > 1 ? "s" : "",
	            zi_format_bytes(bytes).chars, job->cpu_tier->name,
	            zi_format_bytes(job->cpu_tier->capacity_bytes).chars,
	            rank_count > 1 ? ", or use fewer ranks" : "");
	advice_append(job, text);
	return err_origin(-ENOSPC);
}

/* Documented in the header, as is the other. */
int materialize_check_bytes(const struct zero_job *job, struct zi_text *text)
{
	int r = check_memory_bytes(job, text);

	if (!r)
		r = check_store(job, text);
	return r ? err_trace(r) : err_trace(check_tables(job, text));
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
		"%.180s; the stored parts of the nodes depend on it: start the job with the "
		"stored value",
		why.chars));
}

/* Parameters of what other nodes hold are on the node's store, as zero1 and zero2 have them with
 * offload_param NVMe, or are not, as with all others. Of a job without named sets. */
static bool is_kept_alike(const struct zero_job *job, const struct zero_marks *marks)
{
	bool is_former = marks == &job->former.marks;
	bool is_elsewhere = is_former && former_is_elsewhere(job);
	bool keeps_all = job->group.config.offload_param == ZI_OFFLOAD_NVME &&
	                 !zi_strategy_divides_params(job->group.training.strategy);

	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];
		const struct zero_place *place = &subgroup->places[ZERO_PLANE_PARAM];
		bool is_kept = is_former && place->kept_is == ZERO_KEPT_FORMER
		                       ? place->kept.bytes
		                       : place->extent.bytes;

		bool is_here = is_elsewhere ? subgroup->is_former_here : subgroup->is_here;

		if (is_kept != (is_here || keeps_all))
			return false;
	}
	return true;
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
	       then->shard_size == job->group.training.shard_size &&
	       (!job_is_nvme(job) || is_kept_alike(job, marks));
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
		"job '%.60s' has its state only in memory, and was committed by %u ranks on %u "
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
