/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the caller's options and the launcher's environment to what ATTACH says. What is wrong is
 * told by name, here, before anything was connected; the daemon checks it all once more. Floor 2.
 */
#include <errno.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/wire/check.h"
#include "libclient/client.h"
#include "libclient/sized.h"

/* The first one's: the struct has only grown since. */
#define OPTIONS_BYTES_MIN offsetof(struct zinf_options, strategy)
static_assert(OPTIONS_BYTES_MIN == 128, "programs of the first version go on");

static_assert((int)ZINF_F32 == (int)ZI_DTYPE_F32, "the public values travel as they are");
static_assert((int)ZINF_F16 == (int)ZI_DTYPE_F16, "as above");
static_assert((int)ZINF_BF16 == (int)ZI_DTYPE_BF16, "as above");
static_assert((int)ZINF_ADAMW == (int)ZI_OPTIMIZER_ADAMW, "as above");
static_assert((int)ZINF_ADAM == (int)ZI_OPTIMIZER_ADAM, "as above");
static_assert((int)ZINF_SGD == (int)ZI_OPTIMIZER_SGD, "as above");
static_assert((int)ZINF_ADAGRAD == (int)ZI_OPTIMIZER_ADAGRAD, "as above");
static_assert((int)ZINF_LION == (int)ZI_OPTIMIZER_LION, "as above");
static_assert((int)ZINF_REDUCE_PER_STEP == (int)ZI_SCHEDULE_LOCAL, "as above");
static_assert((int)ZINF_REDUCE_PER_MICRO_BATCH == (int)ZI_SCHEDULE_SHARDED, "as above");
static_assert((int)ZINF_OFFLOAD_NONE == (int)ZI_OFFLOAD_NONE, "as above");
static_assert((int)ZINF_OFFLOAD_CPU == (int)ZI_OFFLOAD_CPU, "as above");
static_assert((int)ZINF_OFFLOAD_NVME == (int)ZI_OFFLOAD_NVME, "as above");
static_assert((int)ZINF_DP == (int)ZI_STRATEGY_DP, "as above");
static_assert((int)ZINF_DDP == (int)ZI_STRATEGY_DDP, "as above");
static_assert((int)ZINF_ZERO1 == (int)ZI_STRATEGY_ZERO1, "as above");
static_assert((int)ZINF_ZERO2 == (int)ZI_STRATEGY_ZERO2, "as above");
static_assert((int)ZINF_ZERO3 == (int)ZI_STRATEGY_ZERO3, "as above");
static_assert((int)ZINF_DURABILITY_PROCESS == (int)ZI_DURABILITY_PROCESS, "as above");
static_assert((int)ZINF_DURABILITY_POWER == (int)ZI_DURABILITY_POWER, "as above");
static_assert(ZINF_NAME_BYTES == ZI_NAME_BYTES, "as above");
static_assert(ZINF_PARAM_NAME_BYTES == ZI_PARAM_NAME_BYTES, "as above");
static_assert(ZINF_DIMS_MAX == ZI_PARAM_DIMS_MAX, "as above");
static_assert(ZINF_WORLD_MAX == ZI_WORLD_MAX, "as above");
static_assert(ZINF_BLOB_BYTES == ZI_BLOB_BYTES, "as above");

static int resolve_path(struct zinf *zinf, const char *named)
{
	int r;

	if (named)
		r = zi_copy_name(zinf->path, sizeof(zinf->path), named);
	else
		r = zi_control_default_path(zinf->path, sizeof(zinf->path));
	if (r)
		return zi_client_error(zinf, r, "the path of the socket is too long");
	return 0;
}

/*
 * Of any version. What a program of a former one does not know of is zero; a later one's fields
 * must be untouched: this library does not know them. *@ret_options: the caller's, as this version
 * has them; only so many bytes of @options are there as it says.
 */
static int take_options(struct zinf *zinf, const struct zinf_options *options,
                        struct zinf_options *ret_options)
{
	static const struct zi_sized sized = { "options", "ZINF_OPTIONS_INIT", OPTIONS_BYTES_MIN,
		                               sizeof(*options) };
	struct zinf_options taken = { 0 };
	uint32_t reserved;
	int r = zi_client_check_sized(&sized, options, &zinf->text);

	if (r)
		return err_trace(r);
	memcpy(&taken, options, ZI_MIN(options->bytes, sizeof(taken)));
	reserved = taken.reserved[0] | taken.reserved[1] | taken.reserved_end[0];
	if (reserved)
		return zi_client_error(zinf, -EINVAL, "reserved options are set");
	*ret_options = taken;
	return 0;
}

static void put_config(struct zi_job_config *config, const struct zinf_options *options)
{
	*config = (struct zi_job_config){
		.param_dtype = options->param_dtype,
		.grad_dtype = options->grad_dtype,
		.optimizer = options->optimizer,
		.schedule = options->grad_reduction,
		.offload_optimizer = options->offload_optimizer,
		.offload_param = options->offload_param,
		.durability = options->durability,
		.io_weight = options->io_weight,
		.resident_bytes = options->resident_bytes,
		.staging_bytes = options->staging_bytes,
		.param_budget_bytes = options->param_budget_bytes,
		/* 0 and 1 are the same, and an older daemon knows 0 alone. */
		.commit_interval = options->commit_interval > 1 ? options->commit_interval : 0,
		.snapshot_interval = options->snapshot_interval,
		.snapshot_keep = options->snapshot_keep,
	};
}

/* After rank and world are known. */
static int put_training(struct zinf *zinf, const struct zinf_options *options)
{
	uint32_t local_size = zinf->attach.local_world_size ? zinf->attach.local_world_size
	                                                    : zinf->attach.world_size;
	struct zi_scaler_options scaler = { .kind = ZI_SCALER_NONE };
	int r = 0;

	zinf->training = (struct zi_job_training){
		.strategy = options->strategy,
		.shard_size =
			options->shard_size == ZINF_SHARD_NODE ? local_size : options->shard_size,
		/* 0 and 1 are the same, and an older daemon knows 0 alone; so with groups. */
		.accumulation = options->accumulation > 1 ? options->accumulation : 0,
		.reduce_dtype = options->reduce_dtype,
		.flags = (options->is_forward_only ? ZI_TRAINING_FORWARD_ONLY : 0) |
		         (options->finds_unused ? ZI_TRAINING_FIND_UNUSED : 0),
		.group_count = options->group_count > 1 ? options->group_count : 0,
		.grad_budget_bytes = options->grad_budget_bytes,
	};
	if (options->scaler)
		r = zi_client_take_scaler(options->scaler, &scaler, &zinf->text);
	if (r)
		return err_trace(r);
	zi_training_set_scaler(&zinf->training, &scaler);
	return err_trace(zi_check_training(&zinf->training, &zinf->attach.config,
	                                   zinf->attach.world_size, local_size, &zinf->text));
}

/**
 * zi_client_options() - resolve what the caller left open
 * @given: the caller's, of any version
 * @zinf: gets ->attach (without header), ->training, ->path, ->timeout_ns, or ->text on failure
 *
 * Return: 0; -EINVAL, -EOPNOTSUPP, -ENAMETOOLONG with the option or variable in the text.
 */
int zi_client_options(const struct zinf_options *given, struct zinf *zinf)
{
	struct zinf_options taken = { 0 };
	const struct zinf_options *options = &taken;
	const char *job;
	int r;

	r = take_options(zinf, given, &taken);
	if (r)
		return err_trace(r);
	job = options->job ? options->job : zi_client_environment("ZINF_JOB");
	if (zi_copy_name(zinf->attach.job, sizeof(zinf->attach.job), job ? job : "default"))
		return zi_client_error(zinf, -EINVAL,
		                       "job name '%.64s' is too long: at most %zu bytes", job,
		                       sizeof(zinf->attach.job) - 1);
	r = zi_client_resolve_incarnation(zinf, options->incarnation);
	if (r)
		return err_trace(r);
	r = zi_client_resolve_rank(zinf, options->rank, options->world_size);
	if (r)
		return err_trace(r);
	r = resolve_path(zinf, options->socket_path);
	if (r)
		return err_trace(r);
	zinf->attach.flags = (options->takeover ? ZI_ATTACH_TAKEOVER : 0) |
	                     (options->must_exist ? ZI_ATTACH_MUST_EXIST : 0);
	zinf->attach.timeout_ms = options->timeout_ms ? options->timeout_ms : ZI_CLIENT_TIMEOUT_MS;
	zinf->timeout_ns = zinf->attach.timeout_ms * ZI_NS_PER_MS;
	zinf->coll_timeout_ms = options->timeout_ms; /* 0: what the daemon says (join()) */
	put_config(&zinf->attach.config, options);
	r = zi_check_attach(&zinf->attach, &zinf->text);
	if (r)
		return err_trace(r);
	return err_trace(put_training(zinf, options));
}
