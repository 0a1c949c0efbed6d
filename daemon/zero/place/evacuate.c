/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs at rest, and snapshots, leave a path that is draining or has failed: whose turn it is. What
 * is done with one is evacuate_round.c's. Floor 5, shard thread.
 *
 * A job that has ranks needs none of this: its next step writes everything beside it. One at rest
 * is moved in rounds, a commit each, so that ranks who come meanwhile wait for a round at most (its
 * step is COMMITTING) and what was moved stays moved. Then come snapshots, each in such rounds, for
 * which nobody waits: it may be removed meanwhile. What several of them hold is moved once. One
 * owner at a time, few extents in flight: there is no hurry. What cannot be read, or finds no room,
 * stays where it is and is told of once; it is tried again when an administrator drains, or after
 * the job's next commit.
 */
#include "daemon/zero/place/evacuate.h"

#include <stdio.h>

#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/snapshot/snapshot_make.h"
#include "daemon/zero/step/step.h"

static bool has_leaving(const struct zero_job *job)
{
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
			if (evacuate_is_leaving(&job->subgroups[i].places[plane].extent) ||
			    evacuate_is_leaving(&job->subgroups[i].places[plane].kept))
				return true;
	return false;
}

static bool snapshot_has_leaving(const struct zero_snapshot *snapshot)
{
	for (uint32_t i = 0; i < snapshot->record->extent_count; i++)
		if (evacuate_is_leaving(&snapshot->extents[i]))
			return true;
	return false;
}

static bool is_idle(const struct zero_job *job)
{
	return job->is_stored && job_is_nvme(job) && job->committed_step >= 0 && !job->refusal &&
	       !job->is_deleting && !job->is_materializing && !job_is_ahead(job) &&
	       !job->busy_count && !job->attached_count && job->group.phase == ZERO_GROUP_NONE &&
	       job->step.phase == ZERO_STEP_NONE;
}

/* See evacuate.h. */
bool evacuate_is_at_rest(const struct zero_job *job)
{
	return is_idle(job) && !job->former.is_kept;
}

/* See snapshot.h. */
bool snapshot_is_movable(const struct zero_snapshot *snapshot)
{
	return snapshot->phase == ZERO_SNAPSHOT_KEPT && snapshot->name[0] && !snapshot->refusal &&
	       !snapshot->use_count && !snapshot->is_stuck;
}

/* See evacuate.h. */
void evacuate_lock(struct zero_job *job)
{
	job->step.generation = job->group.generation - 1; /* No group's. */
	job->step.is_commit = true;
	job_step_set(job, ZERO_STEP_COMMITTING);
	job_busy(job);
}

/* See evacuate.h. */
void evacuate_unlock(struct zero_job *job)
{
	job_step_set(job, ZERO_STEP_NONE);
	job_unbusy(job);
	snapshot_retry(job);
	job_settle(job);
}

/* A snapshot goes: it owns nothing any more, and what is in flight is nobody's. */
void evacuate_forget(struct zero_snapshot *snapshot)
{
	struct zero_evacuation *evacuation = &snapshot->zero->evacuation;

	if (evacuation->snapshot == snapshot)
		evacuation->snapshot = NULL;
}

static void start_job(struct zero_job *job)
{
	struct zero *zero = job->zero;
	char whose[ZI_NAME_BYTES + 8];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < job->subgroup_count; i++)
		bytes = ZI_MAX(bytes, ZI_MAX(job_subgroup_state_bytes(job, &job->subgroups[i]),
		                             job_subgroup_param_bytes(job, &job->subgroups[i])));
	zero->evacuation.job = job;
	zero->evacuation.tier = job->nvme_tier;
	zero->evacuation.device = job->device;
	(void)snprintf(whose, sizeof(whose), "job '%s'", job->name); /* Fits. */
	evacuate_start(zero, job->cpu_tier, job->account, bytes, whose);
}

static void start_snapshot(struct zero_snapshot *snapshot)
{
	struct zero *zero = snapshot->zero;
	char whose[2 * ZI_NAME_BYTES + 16];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < snapshot->record->extent_count; i++)
		bytes = ZI_MAX(bytes, snapshot->extents[i].bytes);
	zero->evacuation.snapshot = snapshot;
	zero->evacuation.tier = snapshot_tier(snapshot);
	zero->evacuation.device = zero->options.devices[0];
	(void)snprintf(whose, sizeof(whose), "snapshot '%s/%s'", snapshot->job_name,
	               snapshot->name); /* Fits. */
	evacuate_start(zero, &zero->options.cpu_tiers[0], zero_account_of(zero, snapshot->uid),
	               bytes, whose);
}

static bool is_any_leaving(const struct zero *zero)
{
	for (uint32_t i = 0; i < zero->options.nvme_tier_count; i++) {
		const struct tier *tier = &zero->options.nvme_tiers[i];

		for (uint32_t j = 0; j < tier->member_count; j++)
			if (tier_member_is_leaving(&tier->members[j]) &&
			    tier_member_used_bytes(&tier->members[j]))
				return true;
	}
	return false;
}

/* One of two commits is to go, and it is not known which: neither moves until ranks come. */
static void tell_open(struct zero_job *job)
{
	struct zi_text text;

	if (job->is_stuck || !job->former.is_kept || !is_idle(job) || !has_leaving(job))
		return;
	job->is_stuck = true;
	zi_text_set(&text,
	            "job '%s' stays on its path until its next start: it has commits %llu and "
	            "%llu, and its nodes decide then which one is valid",
	            job->name, (unsigned long long)job->former.marks.number,
	            (unsigned long long)job->committed.number);
	if (job->zero->options.stuck)
		job->zero->options.stuck(job->zero->options.stuck_arg, &text);
}

/* Jobs first: what they share with snapshots goes along. */
static void choose(struct zero *zero)
{
	zi_list_for_each(link, &zero->jobs) {
		struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		tell_open(job);
		if (!job->is_stuck && evacuate_is_at_rest(job) && has_leaving(job)) {
			start_job(job);
			return; /* It may be gone. */
		}
	}
	zi_list_for_each(link, &zero->snapshots) {
		struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);

		if (snapshot_is_movable(snapshot) && snapshot_has_leaving(snapshot)) {
			start_snapshot(snapshot);
			return;
		}
	}
}

static void look(struct zi_post *post)
{
	struct zero *zero = container_of(post, struct zero, evacuation.post);

	zero->evacuation.is_posted = false;
	if (!zero->is_stopping && !zero->frozen && !zero->evacuation.is_on && is_any_leaving(zero))
		choose(zero);
	zero_drain(zero); /* Also when there is nothing to do: a daemon that stops waits for it. */
}

/* A path, a job or a snapshot is in another state: looks, soon, for what lies where it should not.
 */
void evacuate_kick(struct zero *zero)
{
	if (zero->evacuation.is_posted || zero->evacuation.is_on || zero->is_stopping)
		return;
	if (!is_any_leaving(zero))
		return;
	zero->evacuation.is_posted = true;
	zi_loop_post(zero->options.loop, &zero->evacuation.post, look);
}

/**
 * zero_evacuate() - paths were drained or not: jobs at rest and snapshots are moved off them
 *
 * Also those that could not be moved before. Context: shard thread, or at start.
 */
void zero_evacuate(struct zero *zero)
{
	zi_list_for_each(link, &zero->jobs)
		container_of(link, struct zero_job, jobs_link)->is_stuck = false;
	zi_list_for_each(link, &zero->snapshots)
		container_of(link, struct zero_snapshot, snapshots_link)->is_stuck = false;
	evacuate_kick(zero);
}
