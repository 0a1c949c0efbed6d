/* SPDX-License-Identifier: Apache-2.0 */
/* What an administrator sees of jobs: copied out, job by job. Floor 5, shard thread. */
#include "daemon/zero/zero.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/grad/plan.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/lost.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/param/room.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/owner.h"
#include "daemon/zero/step/pipeline.h"

static uint64_t held_bytes(const struct tier_segment *segment)
{
	return segment ? segment->bytes : 0;
}

/* What a commit names: the one in force, and the one before where that is kept. */
static uint64_t place_bytes(const struct zero_place *place)
{
	return place->extent.bytes + (place->kept_is == ZERO_KEPT_FORMER ? place->kept.bytes : 0);
}

static void fill_memory(const struct zero_job *job, struct zero_job_report *report)
{
	report->param_cpu_bytes =
		held_bytes(job->param) + held_bytes(job->shard) + held_bytes(job->lent);
	report->grad_cpu_bytes = grads_held_bytes(job);
	report->accum_cpu_bytes = held_bytes(job->accum);
	report->state_cpu_bytes = held_bytes(job->state);
	report->staging_cpu_bytes =
		job->staging ? held_bytes(job->staging->segment) : held_bytes(job->staging_segment);
	report->coll_cpu_bytes = collectives_held_bytes(job) + across_held_bytes(job);
	report->gpu_bytes = job->account->account.used_bytes[TIER_GPU];
	report->coll = job->collectives.coll;
	report->arena_bytes = job->collectives.arena_bytes;
	report->reserved_nvme_bytes = job->nvme_charge.bytes;
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		const struct zero_place *places = job->subgroups[i].places;

		report->param_nvme_bytes += place_bytes(&places[ZERO_PLANE_PARAM]);
		report->state_nvme_bytes += place_bytes(&places[ZERO_PLANE_STATE]);
	}
}

static void fill_logical(const struct zero_job *job, struct zero_job_report *report)
{
	if (!job->subgroup_count)
		return; /* No model, or none that can be read. */
	report->logical_count = job->world;
	for (uint32_t i = 0; i < job->world; i++)
		report->logical[i] = owner_logical_bytes(job, i);
}

static void fill_pool(const struct zero_job *job, struct zero_job_report *report)
{
	const struct zero_residency *residency = job->residency;

	if (!residency)
		return;
	report->has_pool = true;
	report->pool.budget_bytes = residency->slot_count * job->slot_bytes;
	report->pool.read_bytes = residency->fetches.read_bytes;
	report->pool.hit_count = residency->hit_count;
	report->pool.late_count = residency->late_count;
	report->pool.miss_count = residency->miss_count;
	report->pool.evicted_count = residency->evicted_count;
	report->pool.order_change_count = residency->order.change_count;
	for (uint32_t i = 0; i < residency->run_count; i++) {
		const struct zero_run *run = &residency->runs[i];

		report->pool.resident_bytes += run->count * job->slot_bytes;
		if (residency->units[run->unit].pinned_mask)
			report->pool.pinned_bytes += run->count * job->slot_bytes;
	}
}

static void fill_tensors(const struct zero_job *job, struct zero_job_report *report)
{
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_tensors *tensors =
			job->group.ranks[i] ? job->group.ranks[i]->tensors : NULL;

		if (!tensors)
			continue;
		report->tensors.budget_bytes += held_bytes(tensors->segment);
		report->tensors.read_bytes += tensors->read_bytes;
		report->tensors.write_bytes += tensors->write_bytes;
		report->tensors.evicted_count += tensors->evicted_count;
		report->tensors.count += tensors->count;
		for (uint32_t k = 0; k < ZERO_TENSORS_MAX && tensors->count; k++) {
			const struct zero_tensor *tensor = &tensors->entries[k];

			if (tensor->stage == ZERO_TENSOR_FREE)
				continue;
			report->tensors.bytes += tensor->bytes;
			if (tensor->is_resident)
				report->tensors.resident_bytes +=
					tensor->slot_count * (uint64_t)ZI_STORE_ALIGN_BYTES;
			report->tensors.stored_bytes +=
				tensor->is_stored ? tensor->extent.bytes : 0;
		}
	}
}

static void fill_flush(const struct zero_job *job, struct zero_job_report *report)
{
	const struct tier_flush *flush = &job->record_flush.flush;
	const struct tier_member *member = tier_flush_awaited(flush);

	if (!member)
		return;
	report->flush_path = member->path;
	report->flush_ns = zi_clock_now_ns() - flush->submitted_ns;
	report->is_flush_late =
		member->store->timeout_ns && report->flush_ns > member->store->timeout_ns;
}

static void fill_ranks(const struct zero_job *job, struct zero_job_report *report)
{
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *rank = job->group.ranks[i];

		if (!rank)
			continue;
		report->ranks[i].pid = rank->pid;
		report->ranks[i].is_attached = true;
		if (job->collectives.coll)
			report->ranks[i].arena_tier =
				job->zero->options.cpu_tiers[job->collectives.tiers[i]].name;
		report->ranks[i].doing = rank->doing ? op_name(rank->doing) : "attach";
		report->ranks[i].doing_ns = rank->doing_ns ? zi_clock_now_ns() - rank->doing_ns : 0;
		report->ranks[i].grad_bytes = held_bytes(job->grads[i]);
		report->ranks[i].copy_bytes = held_bytes(rank->spare) +
		                              held_bytes(rank->write ? rank->write->segment : NULL);
		report->ranks[i].tensor_bytes =
			held_bytes(rank->tensors ? rank->tensors->segment : NULL);
	}
}

/* Of the ranks that are attached, once nodes have met; else of those that committed last. */
static void fill_nodes(const struct zero_job *job, struct zero_job_report *report)
{
	const struct catalog_placement *last = &job->committed.placement;
	bool has_met = job->meeting.node_count > 0;
	const uint8_t *nodes = has_met ? job->meeting.nodes : last->nodes;

	if (!has_met && (job->group.rank_count || job->committed.world != report->world_size))
		return;
	report->node_count = has_met ? job->meeting.node_count : last->node_count;
	report->node = has_met ? job->meeting.node : last->node;
	for (uint32_t i = 0; i < report->world_size && report->node_count > 1; i++) {
		report->ranks[i].node = nodes[i];
		report->ranks[i].host = has_met ? across_host(job, nodes[i]) : "";
	}
}

/* The job as a daemon before this one lost it: of the same owner, or it is another's of that name.
 * -1: none. */
static int64_t lost_step_of(const struct zero_job *job)
{
	const struct zero_job *lost = lost_find(job->zero, job->name);

	return lost && lost->uid == job->uid ? lost->lost_step : -1;
}

static void fill(const struct zero_job *job, struct zero_job_report *report)
{
	const struct zero_pipeline *pipeline = &job->pipeline;
	bool is_flowing = pipeline->kind != ZERO_PIPELINE_NONE;

	*report = (struct zero_job_report){
		.phase = job_phase_name(job),
		.refusal = job->refusal ? job->refusal_text.chars : NULL,
		.uid = job->uid,
		.world_size = job->group.world_size ? job->group.world_size : job->world,
		.rank_count = job->group.rank_count,
		.incarnation_number = job->group.number,
		.config = job->config,
		.training = job->training,
		.is_training_known = job->is_training_known,
		.is_stateless = job->is_stateless,
		.committed_step = job->committed_step,
		.current_step = job->current_step,
		.lost_step = lost_step_of(job),
		.element_count = job->element_count,
		.padded_count = job->padded_count,
		.unit_count = job->layout.unit_count,
		.param_count = job->layout.param_count,
		.subgroup_count = job->subgroup_count,
		.last_step = job->last_stats,
		.read_bytes = job->read_bytes + (is_flowing ? pipeline->read_bytes : 0),
		.write_bytes = job->write_bytes + (is_flowing ? pipeline->write_bytes : 0),
	};
	report->total_read_bytes = job->account->tally.read_bytes;
	report->total_write_bytes = job->account->tally.write_bytes;
	report->today_write_bytes = tier_tally_day_bytes(&job->account->tally);
	report->is_paced = job->is_paced;
	report->unkept_count = job->unkept_count;
	report->unkept = job->unkept_count ? job->unkept_text.chars : NULL;
	memcpy(report->name, job->name, sizeof(report->name));
	memcpy(report->incarnation, job->group.name, sizeof(report->incarnation));
	fill_logical(job, report);
	fill_memory(job, report);
	fill_pool(job, report);
	fill_tensors(job, report);
	fill_flush(job, report);
	fill_ranks(job, report);
	fill_nodes(job, report);
}

/* Its owner makes it anew. */
static bool is_new(struct zero *zero, const struct zero_job *lost)
{
	const struct zero_job *job = job_find(zero, lost->name);

	return job && job->uid == lost->uid;
}

/**
 * zero_report() - look at jobs
 * @job: NULL for all
 * @each: called for each of them, with a copy valid during the call; must not call into zero
 *
 * Return: false when the named job is not there. Context: shard thread.
 */
bool zero_report(struct zero *zero, const char *job,
                 void (*each)(void *arg, const struct zero_job_report *report), void *arg)
{
	struct zero_job_report report;
	bool is_found = !job;

	zi_list_for_each(link, &zero->jobs) {
		const struct zero_job *candidate = container_of(link, struct zero_job, jobs_link);

		if (job && strcmp(candidate->name, job) != 0)
			continue;
		is_found = true;
		fill(candidate, &report);
		each(arg, &report);
	}
	zi_list_for_each(link, &zero->lost) {
		const struct zero_job *lost = container_of(link, struct zero_job, jobs_link);

		if ((job && strcmp(lost->name, job) != 0) || is_new(zero, lost))
			continue; /* Told with the new one. */
		is_found = true;
		fill(lost, &report);
		each(arg, &report);
	}
	return is_found;
}
