/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job begins with a snapshot: the same parameters, optimizer state, step and blobs, held a second
 * time and not copied. The world's size and the offload settings may be others than the snapshot's;
 * the model may not. A job that is forward only takes its parameters alone (zero/job/forward.h).
 * Floor 5, shard thread.
 *
 *   zero_load() by every rank ─▶ materialize: compared (load_check()), taken over (load_adopt()),
 *   read where it is resident, and told to the catalog as one new job with a step
 *
 * A job that has a step of its own goes on from there: whoever restarts a trainer need not take the
 * request away.
 */
#include "daemon/zero/snapshot/load.h"

#include <stdio.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/forward.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/param/fetch.h"
#include "daemon/zero/place/evacuate.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/record.h"
#include "daemon/zero/place/recover_take.h"
#include "daemon/zero/snapshot/part.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/step/ahead.h"

/* Is this job made from a snapshot now? */
bool load_is_due(const struct zero_job *job)
{
	return !job->is_stored && job->group.ranks[job_first_rank(job)]->load;
}

/* The rank no longer needs it. */
void load_forget(struct zero_rank *rank)
{
	if (!rank->load)
		return;
	assert(rank->load->use_count > 0);
	rank->load->use_count--;
	rank->load = NULL;
	evacuate_kick(rank->job->zero);
}

/* Whose state it can go on with: AdamW and Adam keep the same. SGD, Adagrad and Lion keep one
 * moment each, of equal width, that means something else in each. */
static enum zi_optimizer state_kind(uint32_t optimizer)
{
	return optimizer == ZI_OPTIMIZER_ADAM ? ZI_OPTIMIZER_ADAMW : (enum zi_optimizer)optimizer;
}

/* See load.h. */
int load_config_check(const struct zi_job_config *config, bool is_stateless,
                      const struct zero_snapshot *snapshot, struct zi_text *text)
{
	const struct catalog_job_config *stored = &snapshot->record->config;

	if (config->param_dtype != stored->param_dtype)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"'%s/%s' is a snapshot of another model: param_dtype is %s, but %s there",
			snapshot->job_name, snapshot->name,
			zi_dtype_name((enum zi_dtype)config->param_dtype),
			zi_dtype_name((enum zi_dtype)stored->param_dtype)));
	if (is_stateless)
		return 0; /* Whatever state it has is left where it is. */
	if (forward_is_stateless(snapshot->record))
		return err_origin(zi_text_error(
			text, -EINVAL,
			"'%.63s/%.63s' is a snapshot of a forward-only job, without optimizer "
			"state: set is_forward_only, or start a new job with its parameters "
			"(zctl export, zctl load)",
			snapshot->job_name, snapshot->name));
	if (state_kind(config->optimizer) == state_kind(stored->optimizer))
		return 0;
	return err_origin(zi_text_error(
		text, -EINVAL,
		"'%s/%s' is a snapshot with other optimizer state: optimizer is %s, but %s there",
		snapshot->job_name, snapshot->name,
		zi_optimizer_name((enum zi_optimizer)config->optimizer),
		zi_optimizer_name((enum zi_optimizer)stored->optimizer)));
}

/* See load.h. */
int load_model_check(const struct zero_layout *layout, const char *who,
                     const struct zero_snapshot *snapshot, struct zi_text *text)
{
	const struct catalog_job *record = snapshot->record;
	struct zi_text why = { "" };
	int r = layout_compare(layout, who,
	                       &(struct zero_layout){ .units = record->units,
	                                              .unit_count = record->unit_count,
	                                              .params = record->params,
	                                              .param_count = record->param_count },
	                       "the snapshot", &why);

	if (r)
		zi_text_set(text, "%.140s; '%.30s/%.20s' is a snapshot of another model", why.chars,
		            snapshot->job_name, snapshot->name);
	return err_trace(r);
}

/**
 * zero_load() - the job, if it is new, begins with a snapshot
 * @job: whose snapshot
 * @name: of the snapshot
 * @text: why not
 *
 * Before zero_materialize(), by every rank with the same names.
 * Return: 0, also where the job has a step of its own; -ENOENT; -EBUSY it is being made or
 * removed, or materialised; -EUCLEAN, -ENODEV it cannot be read; -EINVAL another configuration.
 * Context: shard thread.
 */
int zero_load(struct zero_rank *rank, const char *job, const char *name, struct zi_text *text)
{
	struct zero_snapshot *snapshot = snapshot_find(rank->job->zero, job, name);
	int r;

	if (rank->job->group.phase != ZERO_GROUP_FORMING || materialize_is_on(rank->job))
		return err_origin(zi_text_error(text, -EBUSY, "load comes before materialize"));
	/* A snapshot of another uid is not there for this one. */
	if (!snapshot || (rank->uid != snapshot->uid && rank->uid != 0))
		return err_origin(zi_text_error(text, -ENOENT,
		                                "no snapshot '%s/%s': zctl snapshot list shows "
		                                "all snapshots",
		                                job, name));
	if (snapshot->phase != ZERO_SNAPSHOT_KEPT)
		return err_origin(zi_text_error(
			text, -EBUSY, "snapshot '%s/%s' is being made or removed", job, name));
	if (snapshot->refusal)
		return err_origin(zi_text_error(text, snapshot->refusal,
		                                "snapshot '%s/%s' cannot be read: %s", job, name,
		                                snapshot->refusal_text.chars));
	r = load_config_check(&rank->job->group.config,
	                      zi_training_is_forward_only(&rank->job->group.training), snapshot,
	                      text);
	if (r)
		return err_trace(r);
	load_forget(rank);
	rank->load = snapshot;
	snapshot->use_count++;
	return 0;
}

/* @rank: its model is known. Another rank that has come asks for the same; and the model is the
 * snapshot's. Return: 0; -EINVAL with the first difference; -EOPNOTSUPP a part alone is here. */
int load_check(const struct zero_rank *rank, struct zi_text *text)
{
	const struct zero_job *job = rank->job;
	const struct zero_snapshot *snapshot = rank->load;
	char who[24], what[2 * ZI_NAME_BYTES + 16];
	int r;

	if (job->is_stored)
		return 0;
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *other = job->group.ranks[i];

		if (!other || !other->gathered[ZERO_GATHER_MATERIALIZE] || other->load == snapshot)
			continue;
		return err_origin(zi_text_error(
			text, -EINVAL, "rank %u loads snapshot '%.63s', but rank %u loads '%.63s'",
			rank->number, snapshot ? snapshot->name : "", i,
			other->load ? other->load->name : ""));
	}
	if (!snapshot)
		return 0;
	(void)snprintf(who, sizeof(who), "rank %u", rank->number); /* Fits. */
	r = load_model_check(&rank->layout, who, snapshot, text);
	/* Of several nodes each may have its part: they see to that together (load_nodes.h). */
	if (r || job_spans_nodes(job))
		return err_trace(r);
	(void)snprintf(what, sizeof(what), "snapshot '%s/%s'", snapshot->job_name,
	               snapshot->name); /* Fits. */
	return err_trace(part_check(snapshot->record, what, text));
}

/*
 * What the snapshot holds becomes the job's, as if it had committed it. Precondition:
 * load_is_due(), and the layout is built. Return: 0; -ENOMEM; -EUCLEAN. load_undo() takes it back.
 */
int load_adopt(struct zero_job *job, struct zi_text *text)
{
	const struct zero_snapshot *snapshot = job->group.ranks[job_first_rank(job)]->load;
	const struct catalog_job *record = snapshot->record;
	struct tier *former_tier = job->nvme_tier;
	struct zero_scale scale = { 0 };
	int r;

	assert(job->committed_step < 0);
	job->nvme_tier = NULL; /* The one that the snapshot lies on. */
	r = recover_state(job, record, true);
	if (!job->nvme_tier)
		job->nvme_tier = former_tier;
	if (r) {
		zi_text_set(text, "snapshot '%.63s' cannot be loaded: %s", snapshot->name,
		            job->refusal ? job->refusal_text.chars : zi_err_name(r));
		job->refusal = 0;
		load_undo(job);
		return err_trace(r);
	}
	/* Of parameters alone no optimizer has made anything yet. */
	if (!job->is_stateless)
		(void)scale_get(record, &scale); /* It was looked at when the snapshot was found. */
	ahead_set(
		job, record->step,
		&(struct zero_marks){ .update_count = job->is_stateless ? 0 : record->update_count,
	                              .beta1_power = job->is_stateless ? 1 : record->beta1_power,
	                              .beta2_power = job->is_stateless ? 1 : record->beta2_power,
	                              .scale = scale,
	                              .blob_index = job->blob_index,
	                              .world = job->world,
	                              .number = 1,
	                              .line = job->group.line,
	                              .placement = record_placement(job) });
	return 0;
}

/* The job is not made. No-op where nothing was loaded. */
void load_undo(struct zero_job *job)
{
	assert(!job->is_stored);
	extents_release_all(job);
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		job->blobs[job->blob_index][i].byte_count = 0;
	ahead_set(job, -1,
	          &(struct zero_marks){
			  .beta1_power = 1.0, .beta2_power = 1.0, .blob_index = job->blob_index });
}
