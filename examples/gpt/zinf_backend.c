/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend that trains for real: one rank, everything in zinfd. Hardly more than a translation,
 * as the interface of a backend is libzinf's. Read it as the answer to "what must my trainer
 * call?".
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "examples/gpt/args.h"
#include "examples/gpt/args_strategy.h"
#include "examples/gpt/backend.h"
#include "examples/gpt/gpu_backend.h"
#include "examples/gpt/resume.h"
#include "examples/gpt/use.h"

struct zinf_backend {
	struct gpt_backend base;
	struct zinf *zinf;
	zinf_ticket ticket;   /* of the step that is ending; 0: none */
	bool has_collectives; /* of ranks that a launcher started */
};

static struct zinf *zinf_of(const struct gpt_backend *backend)
{
	return ((const struct zinf_backend *)backend)->zinf;
}

static int backend_unshard(struct gpt_backend *backend, uint32_t unit)
{
	return zinf_unshard(zinf_of(backend), unit);
}

static int backend_reshard(struct gpt_backend *backend, uint32_t unit)
{
	return zinf_reshard(zinf_of(backend), unit);
}

static int backend_prefetch(struct gpt_backend *backend, uint32_t unit)
{
	return zinf_prefetch(zinf_of(backend), unit);
}

static const void *backend_param(const struct gpt_backend *backend, uint32_t param)
{
	return zinf_param_data(zinf_of(backend), param);
}

static const void *backend_gpu_param(const struct gpt_backend *backend, uint32_t param)
{
	return gpt_gpu_param(zinf_of(backend), param);
}

static int backend_grad_acquire(struct gpt_backend *backend, uint32_t lane, uint32_t unit)
{
	assert(lane == 0);
	(void)lane;
	return zinf_grad_acquire(zinf_of(backend), unit);
}

static void *backend_grad(const struct gpt_backend *backend, uint32_t lane, uint32_t param)
{
	assert(lane == 0);
	(void)lane;
	return zinf_grad_data(zinf_of(backend), param);
}

static void *backend_gpu_grad(const struct gpt_backend *backend, uint32_t lane, uint32_t param)
{
	assert(lane == 0);
	(void)lane;
	return gpt_gpu_grad(zinf_of(backend), param);
}

static int backend_reduce(struct gpt_backend *backend, uint32_t lane, uint32_t unit)
{
	assert(lane == 0);
	(void)lane;
	return zinf_reduce(zinf_of(backend), unit);
}

static int backend_no_sync(struct gpt_backend *backend, bool is_begin)
{
	return is_begin ? zinf_no_sync_begin(zinf_of(backend)) : zinf_no_sync_end(zinf_of(backend));
}

static int backend_write_begin(struct gpt_backend *backend, uint32_t unit)
{
	return zinf_param_write_begin(zinf_of(backend), unit);
}

static int backend_write_end(struct gpt_backend *backend, uint32_t unit)
{
	return zinf_param_write_end(zinf_of(backend), unit, 0);
}

static int backend_commit(struct gpt_backend *backend, const void *blob, size_t blob_bytes)
{
	return zinf_commit(zinf_of(backend), blob, blob_bytes);
}

static int64_t backend_committed_step(const struct gpt_backend *backend)
{
	return zinf_committed_step(zinf_of(backend));
}

static int64_t backend_lost_step(const struct gpt_backend *backend)
{
	return zinf_lost_step(zinf_of(backend));
}

static int64_t backend_update_count(const struct gpt_backend *backend)
{
	return zinf_update_count(zinf_of(backend));
}

static int backend_loss_scale(struct gpt_backend *backend, double *ret_scale)
{
	return zinf_loss_scale(zinf_of(backend), ret_scale);
}

static int backend_blob_get(struct gpt_backend *backend, void *blob, size_t blob_bytes,
                            size_t *ret_bytes)
{
	return zinf_blob_get(zinf_of(backend), blob, blob_bytes, ret_bytes);
}

static int backend_step_begin(struct gpt_backend *backend, const struct zinf_step_options *options)
{
	return zinf_step_begin(zinf_of(backend), options);
}

static int backend_step(struct gpt_backend *backend, const void *blob, size_t blob_bytes)
{
	struct zinf_backend *own = (struct zinf_backend *)backend;

	assert(!own->ticket);
	return zinf_step(own->zinf, blob, blob_bytes, &own->ticket);
}

static int backend_wait(struct gpt_backend *backend, struct zinf_step_stats *ret_stats)
{
	struct zinf_backend *own = (struct zinf_backend *)backend;
	zinf_ticket ticket = own->ticket;

	assert(ticket);
	own->ticket = 0;
	*ret_stats = (struct zinf_step_stats){ .bytes = sizeof(*ret_stats) };
	return zinf_wait(own->zinf, ticket, ret_stats);
}

static int backend_join(struct gpt_backend *backend, uint32_t lane)
{
	assert(lane == 0);
	(void)lane;
	return zinf_join(zinf_of(backend), true);
}

static int backend_barrier(struct gpt_backend *backend)
{
	return zinf_barrier(zinf_of(backend));
}

/* The bytes of a double, which no collective calculates with. */
static int backend_gather(struct gpt_backend *backend, double *values)
{
	struct zinf_backend *own = (struct zinf_backend *)backend;

	assert(own->has_collectives);
	return zinf_coll_all_gather(own->zinf, &values[backend->rank_first], values,
	                            sizeof(*values), ZINF_U8, NULL);
}

static int backend_tensor_open(struct gpt_backend *backend, uint64_t budget_bytes)
{
	return zinf_tensor_open(zinf_of(backend), budget_bytes);
}

static int backend_tensor_alloc(struct gpt_backend *backend, uint64_t id, size_t bytes,
                                void **ret_place)
{
	return zinf_tensor_alloc(zinf_of(backend), id, bytes, ret_place);
}

static int backend_tensor_put(struct gpt_backend *backend, uint64_t id, size_t bytes,
                              zinf_ticket *ret_ticket)
{
	return zinf_tensor_put(zinf_of(backend), id, NULL, bytes, ret_ticket);
}

static int backend_tensor_prefetch(struct gpt_backend *backend, uint64_t id,
                                   zinf_ticket *ret_ticket)
{
	return zinf_tensor_prefetch(zinf_of(backend), id, ret_ticket);
}

static int backend_tensor_wait(struct gpt_backend *backend, zinf_ticket ticket)
{
	return zinf_wait(zinf_of(backend), ticket, NULL);
}

static int backend_tensor_map(struct gpt_backend *backend, uint64_t id, void **ret_place)
{
	const void *place;
	size_t bytes;
	int r = zinf_tensor_map(zinf_of(backend), id, &place, &bytes);

	if (!r)
		*ret_place = (void *)place; /* Backward only reads it. */
	return r;
}

static int backend_tensor_drop(struct gpt_backend *backend, uint64_t id)
{
	int r = zinf_tensor_unmap(zinf_of(backend), id);

	return r ? r : zinf_tensor_free(zinf_of(backend), id);
}

static int backend_tensor_free(struct gpt_backend *backend, uint64_t id)
{
	return zinf_tensor_free(zinf_of(backend), id);
}

static const char *backend_error_text(const struct gpt_backend *backend)
{
	return zinf_error_text(zinf_of(backend));
}

static void backend_close(struct gpt_backend *backend)
{
	zinf_detach(zinf_of(backend));
	free(backend);
}

static int backend_destroy(struct gpt_backend *backend)
{
	int r = zinf_destroy_job(zinf_of(backend));

	if (!r)
		free(backend);
	return r;
}

static const struct gpt_backend_ops zinf_ops = {
	.unshard = backend_unshard,
	.reshard = backend_reshard,
	.prefetch = backend_prefetch,
	.param = backend_param,
	.gpu_param = backend_gpu_param,
	.gpu_grad = backend_gpu_grad,
	.grad_acquire = backend_grad_acquire,
	.grad = backend_grad,
	.reduce = backend_reduce,
	.no_sync = backend_no_sync,
	.write_begin = backend_write_begin,
	.write_end = backend_write_end,
	.commit = backend_commit,
	.committed_step = backend_committed_step,
	.lost_step = backend_lost_step,
	.update_count = backend_update_count,
	.loss_scale = backend_loss_scale,
	.blob_get = backend_blob_get,
	.step_begin = backend_step_begin,
	.step = backend_step,
	.wait = backend_wait,
	.join = backend_join,
	.barrier = backend_barrier,
	.gather = backend_gather,
	.tensor_open = backend_tensor_open,
	.tensor_alloc = backend_tensor_alloc,
	.tensor_put = backend_tensor_put,
	.tensor_prefetch = backend_tensor_prefetch,
	.tensor_wait = backend_tensor_wait,
	.tensor_map = backend_tensor_map,
	.tensor_drop = backend_tensor_drop,
	.tensor_free = backend_tensor_free,
	.error_text = backend_error_text,
	.close = backend_close,
	.destroy = backend_destroy,
};

static int attach(const struct gpt_args *args, struct zinf **ret_zinf)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	int r;

	options.socket_path = args->socket;
	options.job = gpt_job_name(args);
	options.incarnation = args->incarnation;
	options.rank = args->rank;
	options.world_size = (int32_t)args->world_count;
	options.wait_for_daemon = args->is_waiting_for_daemon;
	options.timeout_ms = args->timeout_s * 1000;
	options.param_dtype = gpt_param_dtype(args);
	options.grad_dtype = gpt_grad_dtype(args);
	options.reduce_dtype = (enum zinf_dtype)args->reduce_dtype;
	options.optimizer = (enum zinf_optimizer)args->optimizer;
	options.grad_reduction = (enum zinf_grad_reduction)args->grad_reduction;
	options.offload_optimizer = (enum zinf_offload)args->offload_optimizer;
	options.durability = (enum zinf_durability)args->durability;
	options.offload_param = (enum zinf_offload)args->offload_param;
	options.param_budget_bytes = args->param_budget_bytes;
	options.grad_budget_bytes = args->grad_budget_bytes;
	options.resident_bytes = args->resident_bytes;
	options.commit_interval = args->commit_interval;
	options.snapshot_interval = args->snapshot_interval;
	options.snapshot_keep = args->snapshot_keep;
	options.staging_bytes = args->staging_bytes;
	options.scaler = args->scaler.kind == ZINF_SCALER_NONE ? NULL : &args->scaler;
	options.group_count = gpt_group_count(args);
	options.is_forward_only = gpt_is_using(args); /* Parameters alone: see use.h. */
	/* A run that only uses a job makes none: nobody would delete it. */
	options.must_exist = gpt_is_using(args) && !args->load;
	gpt_strategy_set(args, &options);
	r = zinf_attach(&options, ret_zinf);
	if (r != -EOPNOTSUPP || !options.must_exist)
		return r;
	options.must_exist = false; /* An older zinfd does not know it. */
	return zinf_attach(&options, ret_zinf);
}

/* Other flags than those of the job. */
static bool is_mismatch(int r)
{
	return r == -EINVAL || r == -EOPNOTSUPP;
}

/* As the flags say, or, to use what was trained, as the job was trained. Where no guess is right
 * the sentence of the first refusal stays. */
static int attach_as_stored(struct gpt_args *args, struct gpt_problem *problem,
                            struct zinf **ret_zinf)
{
	const struct gpt_args given = *args;
	int r = attach(args, ret_zinf), other = r;

	if (r)
		(void)gpt_problem_set(problem, r, "%s", zinf_attach_error());
	for (uint32_t i = 0; is_mismatch(other) && gpt_use_guess(&given, i, args); i++)
		other = attach(args, ret_zinf);
	if (other == -ENODATA)
		return gpt_problem_set(problem, other, GPT_USE_UNTRAINED);
	if (other && !is_mismatch(other))
		return gpt_problem_set(problem, other, "%s", zinf_attach_error());
	if (!other)
		return 0;
	*args = given;
	return r;
}

/* Tells the daemon the model, in the order of its table: indices here and there are the same. */
static int describe(struct zinf *zinf, const struct gpt_args *args, const struct gpt_model *model)
{
	uint32_t index;
	int r;

	for (uint32_t u = 0; u < model->unit_count; u++) {
		const struct gpt_unit *unit = &model->units[u];

		r = zinf_unit_add(zinf, unit->name, &index);
		if (r)
			return r;
		assert(index == u);
		for (uint32_t p = unit->param_index; p < unit->param_index + unit->param_count;
		     p++) {
			const struct gpt_param *param = &model->params[p];

			r = zinf_param_add(zinf, param->name, param->dim_count, param->shape,
			                   &index);
			if (!r && gpt_param_group(args, param))
				r = zinf_param_group(zinf, index, gpt_param_group(args, param));
			if (r)
				return r;
			assert(index == p);
		}
	}
	return 0;
}

/* Collectives come before the model, where ranks are on several nodes. */
static int materialize(struct zinf *zinf, bool has_collectives, struct gpt_problem *problem)
{
	int r = has_collectives ? zinf_coll_open(zinf, 1) : 0;

	if (!r)
		r = zinf_materialize(zinf);

	return r ? gpt_problem_set(problem, r, "%s", zinf_error_text(zinf)) : 0;
}

/* Attaches as one rank and describes the model. @args: flags that only the stored job knows are
 * changed (gpt_use_guess()). @device: NULL: the CPU computes. Return: 0, or zinf's errno with its
 * sentence. */
int gpt_zinf_open(struct gpt_args *args, const struct gpt_model *model, struct gpt_device *device,
                  struct gpt_problem *problem, struct gpt_backend **ret_backend)
{
	struct zinf_backend *own;
	struct zinf *zinf = NULL;
	int r;

	assert(args->rank >= 0);
	own = calloc(1, sizeof(*own));
	if (!own)
		return gpt_problem_set(problem, -ENOMEM, "No memory for a backend");
	own->has_collectives = args->is_launched && args->world_count > 1;
	r = attach_as_stored(args, problem, &zinf);
	if (r) {
		free(own);
		return r;
	}
	r = describe(zinf, args, model);
	if (r)
		r = gpt_problem_set(problem, r, "%s", zinf_error_text(zinf));
	if (!r)
		r = gpt_resume_load(args, zinf, problem);
	if (!r && device)
		r = gpt_gpu_attach(zinf, args, device, problem);
	if (!r)
		r = materialize(zinf, own->has_collectives, problem);
	if (!r)
		r = gpt_resume_verify(args, zinf, problem);
	if (r) {
		zinf_detach(zinf);
		free(own);
		return r;
	}
	own->zinf = zinf;
	own->base = (struct gpt_backend){ .ops = &zinf_ops,
		                          .rank_first = args->rank,
		                          .lane_count = 1,
		                          .world_count = args->world_count,
		                          .device = device };
	*ret_backend = &own->base;
	return 0;
}
