/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank's configuration must have in common with the other ranks' and with the stored job.
 * Floor 5, shard thread.
 */
#include "daemon/zero/job/attach_config.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/training.h"
#include "daemon/zero/job/forward.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"

/* See attach_config.h. */
int attach_one_more_check(const struct zero_job *job, const struct zero_attach *attach,
                          struct zi_text *text)
{
	const struct zero_group *group = &job->group;

	if (group->rank_count < group->local_size || group->ranks[attach->rank])
		return 0;
	return err_origin(zi_text_error(
		text, -EBUSY,
		"job '%s' has all its %u ranks of this node, and rank %u is one too many: give "
		"each run its own job name, or correct LOCAL_WORLD_SIZE",
		job->name, group->local_size, attach->rank));
}

static int differs(struct zi_text *text, int error, const char *field, const char *value,
                   const char *model, const char *whose)
{
	return zi_text_error(text, error, "%s is %s, but %s in %s", field, value, model, whose);
}

static const char *durability_name(uint32_t durability)
{
	return durability == ZI_DURABILITY_POWER ? "power" : "process";
}

static const char *dtype_name(uint32_t dtype)
{
	return zi_dtype_name((enum zi_dtype)dtype);
}

/* What is stored, or compared with the first rank, in common. */
static int config_compare_state(const struct zi_job_config *config,
                                const struct zi_job_config *model, const char *whose,
                                bool is_stored, struct zi_text *text)
{
	if (config->param_dtype != model->param_dtype)
		return differs(text, -EINVAL, "param_dtype", dtype_name(config->param_dtype),
		               dtype_name(model->param_dtype), whose);
	if (config->grad_dtype != model->grad_dtype)
		return differs(text, -EINVAL, "grad_dtype", dtype_name(config->grad_dtype),
		               dtype_name(model->grad_dtype), whose);
	if (config->optimizer != model->optimizer)
		return differs(text, -EINVAL, "optimizer",
		               zi_optimizer_name((enum zi_optimizer)config->optimizer),
		               zi_optimizer_name((enum zi_optimizer)model->optimizer), whose);
	/* NONE and CPU are the same place on a node without GPUs. */
	if ((config->offload_optimizer == ZI_OFFLOAD_NVME) ==
	    (model->offload_optimizer == ZI_OFFLOAD_NVME))
		return 0;
	return differs(text, is_stored ? -EOPNOTSUPP : -EINVAL,
	               is_stored ? "moving a job between offload settings is not built yet: "
	                           "offload_optimizer"
	                         : "offload_optimizer",
	               zi_offload_name((enum zi_offload)config->offload_optimizer),
	               zi_offload_name((enum zi_offload)model->offload_optimizer), whose);
}

/* See attach_config.h. */
int attach_compare_stored(const struct zi_job_config *config,
                          const struct zi_job_training *training, const struct zero_job *job,
                          struct zi_text *text)
{
	struct zi_job_config asked = *config;
	int r = forward_start_check(job, training, text);

	if (r || !job->is_stored)
		return err_trace(r);
	/* What says how gradients and state look is the stored job's then (forward.h). */
	if (zi_training_is_forward_only(training)) {
		asked.grad_dtype = job->config.grad_dtype;
		asked.optimizer = job->config.optimizer;
	}
	return err_trace(config_compare_state(&asked, &job->config, "the stored job", true, text));
}

/* See attach_config.h. */
int attach_compare(const struct zi_job_config *config, const struct zi_job_config *model,
                   const char *whose, struct zi_text *text)
{
	int r;

	r = config_compare_state(config, model, whose, false, text);
	if (r)
		return err_origin(r);
	if (config->schedule != model->schedule)
		return err_origin(differs(text, -EINVAL, "grad_reduction",
		                          zi_schedule_name((enum zi_schedule)config->schedule),
		                          zi_schedule_name((enum zi_schedule)model->schedule),
		                          whose));
	if (config->durability != model->durability)
		return err_origin(differs(text, -EINVAL, "durability",
		                          durability_name(config->durability),
		                          durability_name(model->durability), whose));
	if (config->resident_bytes != model->resident_bytes)
		return err_origin(differs(text, -EINVAL, "resident_bytes",
		                          zi_format_bytes(config->resident_bytes).chars,
		                          zi_format_bytes(model->resident_bytes).chars, whose));
	if (ZI_MAX(config->commit_interval, 1u) != ZI_MAX(model->commit_interval, 1u))
		return err_origin(zi_text_error(text, -EINVAL,
		                                "commit_interval is %u, but %u in %s",
		                                ZI_MAX(config->commit_interval, 1u),
		                                ZI_MAX(model->commit_interval, 1u), whose));
	if (config->staging_bytes != model->staging_bytes)
		return err_origin(differs(text, -EINVAL, "staging_bytes",
		                          zi_format_bytes(config->staging_bytes).chars,
		                          zi_format_bytes(model->staging_bytes).chars, whose));
	/* NONE and CPU are the same place here too; a stored job may move from one to the other. */
	if ((config->offload_param == ZI_OFFLOAD_NVME) != (model->offload_param == ZI_OFFLOAD_NVME))
		return err_origin(differs(text, -EINVAL, "offload_param",
		                          zi_offload_name((enum zi_offload)config->offload_param),
		                          zi_offload_name((enum zi_offload)model->offload_param),
		                          whose));
	if (config->io_weight != model->io_weight)
		return err_origin(zi_text_error(text, -EINVAL, "io_weight is %u, but %u in %s",
		                                config->io_weight, model->io_weight, whose));
	if (config->snapshot_interval != model->snapshot_interval ||
	    config->snapshot_keep != model->snapshot_keep)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"snapshot_interval is %u, snapshot_keep %u, but %u and %u in %s",
			config->snapshot_interval, config->snapshot_keep, model->snapshot_interval,
			model->snapshot_keep, whose));
	if (config->param_budget_bytes != model->param_budget_bytes)
		return err_origin(differs(text, -EINVAL, "param_budget_bytes",
		                          zi_format_bytes(config->param_budget_bytes).chars,
		                          zi_format_bytes(model->param_budget_bytes).chars, whose));
	return 0;
}

/* See attach_config.h. */
uint32_t attach_local_size(const struct zero_attach *attach)
{
	return attach->local_size ? attach->local_size : attach->world_size;
}

/* See attach_config.h. */
int attach_config_check(const struct zero_job *job, const struct zero_attach *attach, bool is_new,
                        struct zi_text *text)
{
	const struct zero_group *group = &job->group;
	int r;

	assert(attach->config.offload_param != ZI_OFFLOAD_NVME ||
	       attach->config.offload_optimizer == ZI_OFFLOAD_NVME);
	if (attach->config.offload_optimizer == ZI_OFFLOAD_NVME && !job->nvme_tier)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "offload_optimizer is nvme, but the daemon has no "
		                                "nvme tier: configure one, or use cpu"));
	if (attach->config.snapshot_interval && !job->nvme_tier)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "snapshot_interval is %u, but the daemon has no "
		                                "nvme tier to keep snapshots on: configure one, or "
		                                "leave it 0",
		                                attach->config.snapshot_interval));
	r = attach_compare_stored(&attach->config, &attach->training, job, text);
	if (r)
		return err_trace(r);
	if (is_new || group->phase == ZERO_GROUP_NONE)
		return 0;
	if (attach->world_size != group->world_size)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "world_size is %u, but %u in the other ranks",
		                                attach->world_size, group->world_size));
	if (attach_local_size(attach) != group->local_size)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"LOCAL_WORLD_SIZE differs: rank %u has %u, the other ranks of this "
			"node have %u",
			attach->rank, attach_local_size(attach), group->local_size));
	r = attach_one_more_check(job, attach, text);
	if (r)
		return err_trace(r);
	r = attach_compare(&attach->config, &group->config, "the other ranks", text);
	if (r)
		return err_trace(r);
	r = zi_training_compare(&attach->training, &group->training, &group->config,
	                        "the other ranks", text);
	if (r)
		return err_trace(r);
	return err_trace(group_process_check(group, attach, text));
}
