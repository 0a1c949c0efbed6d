/* SPDX-License-Identifier: Apache-2.0 */
/* A job: birth and end, and the functions that change its phases. Floor 5, shard thread. */
#include "daemon/zero/job/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/agree/keep.h"
#include "daemon/zero/grad/plan.h"
#include "daemon/zero/job/delete.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/history.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/job/shard.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/place/evacuate.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/snapshot/snapshot_make.h"
#include "daemon/zero/step/ahead.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/doubt.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/step/step_end.h"
#include "daemon/zero/step/warm.h"

/* The tier with the most room: a job lives on one. */
uint32_t job_roomiest(const struct tier *tiers, uint32_t count)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < count; i++)
		if (tier_free_bytes(&tiers[i]) > tier_free_bytes(&tiers[best]))
			best = i;
	return best;
}

/* A job nobody has stored, in the list. Return: 0; -ENOMEM. */
int job_new(struct zero *zero, const char *name, uint32_t uid, struct zero_job **ret_job)
{
	struct zero_account *owner = zero_account_of(zero, uid);
	_cleanup_(zi_freep) struct zero_account *account = NULL;
	_cleanup_(zi_freep) struct zero_job *job = NULL;
	char account_name[ZI_NAME_BYTES + 8];
	uint32_t tier;
	int r = 0;

	account = calloc(1, sizeof(*account));
	job = calloc(1, sizeof(*job));
	if (!owner || !account || !job)
		return err_origin(-ENOMEM);
	if (zero->options.nvme_tier_count)
		r = nvme_flow_new(NVME_FLOW_WEIGHT_DEFAULT, &job->flow);
	if (r)
		return err_trace(r);
	tier = job_roomiest(zero->options.cpu_tiers, zero->options.cpu_tier_count);
	job->zero = zero;
	job->uid = uid;
	(void)zi_copy_name(job->name, sizeof(job->name), name);             /* Checked before. */
	(void)snprintf(account_name, sizeof(account_name), "job %s", name); /* Fits. */
	tier_account_init(&account->account, account_name, &owner->account);
	zi_list_init(&account->accounts_link);
	job->account = zi_steal(account);
	job->account->tally.parent = &owner->tally;
	job->cpu_tier = &zero->options.cpu_tiers[tier];
	job->device = zero->options.devices[tier];
	if (zero->options.nvme_tier_count)
		job->nvme_tier = &zero->options.nvme_tiers[job_roomiest(
			zero->options.nvme_tiers, zero->options.nvme_tier_count)];
	ahead_set(job, -1, &(struct zero_marks){ .beta1_power = 1.0, .beta2_power = 1.0 });
	job->timer_ns = ZI_DEADLINE_NEVER;
	job->lost_step = -1;
	zi_list_init(&job->warm);
	zi_list_push_back(&zero->jobs, &job->jobs_link);
	zero->job_count++;
	*ret_job = zi_steal(job);
	return 0;
}

/* All parameters in memory, or the pool. Nothing may be in flight on them. */
void job_drop_param(struct zero_job *job)
{
	if (job->param)
		tier_segment_unregister(job->param);
	job->param = tier_segment_unref(job->param);
}

/* Memory that serves one incarnation: gradients, their sums, staging, a pool of parameters. */
void job_drop_incarnation(struct zero_job *job)
{
	assert(job->busy_count == 0);
	assert(job->pipeline.kind == ZERO_PIPELINE_NONE);

	/* A pool shows ranks what they use: those of a former incarnation keep theirs. */
	if (job->residency)
		job_drop_param(job);
	residency_free(job);
	lent_drop(job);
	grads_drop(job);
	warm_drop_all(job);
	job->staging = tier_staging_free(job->staging);
	job->staging_segment = tier_segment_unref(job->staging_segment);
	extents_release_abandoned(job);
	free(job->abandoned);
	job->abandoned = NULL;
	free(job->items);
	free(job->builds);
	job->items = NULL;
	job->builds = NULL;
	job->item_count = 0;
	job->build_count = 0;
}

static void drop_state(struct zero_job *job)
{
	job->state = tier_segment_unref(job->state);
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		job->subgroups[i].memory = NULL;
}

/* State in memory alone, once committed, is the only copy. */
static bool is_only_copy(const struct zero_job *job)
{
	return !job_is_nvme(job) && job->committed_step >= 0;
}

/* What is in memory is no longer what is committed; no-op where memory is the only copy. */
void job_unload(struct zero_job *job)
{
	if (is_only_copy(job))
		return;
	ahead_drop(job);
	warm_drop_all(job);
	job->is_loaded = false;
	extents_release_written(job);
	for (uint32_t i = 0; i < job->layout.unit_count && job->units; i++)
		job->units[i].is_written = false;
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		job->subgroups[i].is_reset = false;
	state_unload(job);
}

/* All that an idle job need not hold. */
void job_drop_memory(struct zero_job *job)
{
	job_drop_incarnation(job);
	if (!is_only_copy(job)) {
		job_drop_param(job);
		shard_drop(job);
		drop_state(job);
		job_unload(job);
	}
	if (!job->is_stored) {
		tier_charge_return(&job->nvme_charge);
		layout_unbuild(job);
	}
}

/* The end of the object; what the catalog holds stays. Return: NULL. */
struct zero_job *job_free(struct zero_job *job)
{
	if (!job)
		return NULL;
	assert(job->attached_count == 0);
	assert(job->busy_count == 0);
	collectives_drop(job);
	zi_loop_disarm(&job->timer);
	zi_loop_disarm(&job->pace_timer);
	snapshot_cancel(job, -ENOENT, "its job ended");
	if (!job->is_ghost)
		job->zero->job_count--;
	zi_list_remove(&job->jobs_link);
	job->committed_step = -1; /* Even the only copy goes. */
	job->current_step = -1;
	doubt_forget(job);
	job_drop_memory(job);
	tier_charge_return(&job->nvme_charge);
	(void)snapshot_pay(job, NULL); /* Of two sets that were paid for one is left. */
	layout_unbuild(job);
	history_free(&job->history);
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++) {
		for (uint32_t which = 0; which < ZERO_BLOBS; which++)
			free(job->blobs[which][i].bytes);
	}
	job->account->flow = zi_steal(job->flow);
	zero_account_retire(job->zero, job->account);
	free(job);
	return NULL;
}

/* Return: the job of that name, or NULL. Ghosts are not found. */
struct zero_job *job_find(struct zero *zero, const char *name)
{
	zi_list_for_each(link, &zero->jobs) {
		struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		if (strcmp(job->name, name) == 0)
			return job;
	}
	return NULL;
}

/* ---- phases ---- */

/* The one function that changes a step's phase; see enum zero_step_phase. */
void job_step_set(struct zero_job *job, enum zero_step_phase phase)
{
	static const uint8_t next[] = {
		[ZERO_STEP_NONE] = 1u << ZERO_STEP_STEPPING | 1u << ZERO_STEP_COMMITTING,
		[ZERO_STEP_STEPPING] = 1u << ZERO_STEP_NONE | 1u << ZERO_STEP_UPDATING |
		                       1u << ZERO_STEP_COMMITTING,
		[ZERO_STEP_UPDATING] = 1u << ZERO_STEP_NONE | 1u << ZERO_STEP_COMMITTING,
		[ZERO_STEP_COMMITTING] = 1u << ZERO_STEP_NONE,
	};

	assert(next[job->step.phase] & 1u << phase);
	(void)next; /* Where asserts are compiled out. */
	job->step.phase = phase;
}

/* The one function that changes a group's phase; see enum zero_group_phase. */
void job_group_set(struct zero_job *job, enum zero_group_phase phase)
{
	static const uint8_t next[] = {
		[ZERO_GROUP_NONE] = 1u << ZERO_GROUP_FORMING,
		[ZERO_GROUP_FORMING] =
			1u << ZERO_GROUP_NONE | 1u << ZERO_GROUP_LIVE | 1u << ZERO_GROUP_BROKEN,
		[ZERO_GROUP_LIVE] = 1u << ZERO_GROUP_NONE | 1u << ZERO_GROUP_BROKEN,
		[ZERO_GROUP_BROKEN] = 1u << ZERO_GROUP_NONE,
	};

	assert(next[job->group.phase] & 1u << phase);
	(void)next; /* Where asserts are compiled out. */
	job->group.phase = phase;
	if (phase == ZERO_GROUP_FORMING) {
		ssize_t bytes = getrandom(&job->group.line, sizeof(job->group.line), 0);

		assert(bytes == sizeof(job->group.line)); /* Few bytes are never cut short. */
		(void)bytes;                              /* Where asserts are compiled out. */
		job->group.generation++;
	}
}

/* Of both, the one that matters to who looks in. */
const char *job_phase_name(const struct zero_job *job)
{
	if (job->is_lost)
		return "LOST";
	if (job->refusal)
		return job->refusal == -EUCLEAN ? "DAMAGED" : "REFUSED";
	if (job->step.phase == ZERO_STEP_UPDATING)
		return "UPDATING";
	if (job->step.phase == ZERO_STEP_COMMITTING)
		return "COMMITTING";
	switch (job->group.phase) {
	case ZERO_GROUP_FORMING:
		return "FORMING";
	case ZERO_GROUP_LIVE:
		return job->step.phase == ZERO_STEP_STEPPING ? "STEPPING" : "READY";
	case ZERO_GROUP_BROKEN:
		return "BROKEN";
	case ZERO_GROUP_NONE:
	default:
		return "IDLE";
	}
}

/*
 * Looked at whenever something ended. What is ahead of its commit and has nobody who will commit it
 * is committed; a job without ranks gives back what it need not hold, and
 * when it has never committed anything there is nothing to keep at all.
 */
void job_settle(struct zero_job *job)
{
	if (job->is_undo_due && !job->busy_count)
		step_undone(job);
	if (job->materialize_error && !job->busy_count) {
		materialize_failed(job);
		return;
	}
	if (job->is_destroy_due && !job->busy_count && job->step.phase == ZERO_STEP_NONE) {
		job_destroy_go(job);
		return;
	}
	if (job->busy_count || job->step.phase != ZERO_STEP_NONE || job->is_deleting ||
	    job->is_materializing) {
		if (keep_waits(job))
			snapshot_retry(job); /* Ranks in a barrier may wait for who asked. */
		return;
	}
	assert(job->pipeline.kind == ZERO_PIPELINE_NONE);
	snapshot_retry(job);
	if (job->step.phase != ZERO_STEP_NONE)
		return;
	if (ahead_commit(job))
		return;
	across_settle(job);
	if (job->group.rank_count == 0)
		job_drop_memory(job);
	if (job->attached_count == 0 && job->committed_step < 0 && !job->refusal) {
		job_delete(job); /* May free the job. */
		return;
	}
	if (materialize_is_due(job))
		materialize_start(job);
	else if (!former_tidy(job))
		evacuate_kick(job->zero);
}
