/* SPDX-License-Identifier: Apache-2.0 */
/* Its table is the backend's own, but for a few functions. */
#include "examples/gpt/staged.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "examples/gpt/args.h"

struct gpt_staged {
	struct gpt_backend_ops ops;
	const struct gpt_backend_ops *inner;
	const struct gpt_model *model;
	uint64_t param_bytes, grad_bytes; /* of an element */
	/* On the GPU, as units lie in the flat space of parameters: */
	char *params; /* (padded_count,) */
	char *grads;  /* (lane_count, padded_count) */
};

static uint64_t element_of(const struct gpt_staged *staged, uint32_t param)
{
	const struct gpt_param *p = &staged->model->params[param];

	return staged->model->units[p->unit].global_index + p->element_index;
}

static const void *staged_param(const struct gpt_backend *backend, uint32_t param)
{
	const struct gpt_staged *staged = backend->staged;

	return staged->params + element_of(staged, param) * staged->param_bytes;
}

static void *staged_grad(const struct gpt_backend *backend, uint32_t lane, uint32_t param)
{
	const struct gpt_staged *staged = backend->staged;
	uint64_t element = lane * staged->model->padded_count + element_of(staged, param);

	assert(lane < backend->lane_count);
	return staged->grads + element * staged->grad_bytes;
}

static int staged_unshard(struct gpt_backend *backend, uint32_t unit)
{
	const struct gpt_staged *staged = backend->staged;
	const struct gpt_unit *u = &staged->model->units[unit];
	int r = staged->inner->unshard(backend, unit);

	for (uint32_t p = u->param_index; !r && p < u->param_index + u->param_count; p++)
		gpt_device_store(backend->device, (void *)staged_param(backend, p),
		                 staged->inner->param(backend, p),
		                 staged->model->params[p].element_count * staged->param_bytes);
	return r ? r : gpt_device_wait(backend->device);
}

static int staged_reduce(struct gpt_backend *backend, uint32_t lane, uint32_t unit)
{
	const struct gpt_staged *staged = backend->staged;
	const struct gpt_unit *u = &staged->model->units[unit];
	int r = 0;

	for (uint32_t p = u->param_index; !r && p < u->param_index + u->param_count; p++)
		r = gpt_device_fetch(backend->device, staged_grad(backend, lane, p),
		                     staged->model->params[p].element_count * staged->grad_bytes,
		                     staged->inner->grad(backend, lane, p));
	return r ? r : staged->inner->reduce(backend, lane, unit);
}

/* Return: the table of the backend below. */
static const struct gpt_backend_ops *unwrap(struct gpt_backend *backend)
{
	struct gpt_staged *staged = backend->staged;
	const struct gpt_backend_ops *inner = staged->inner;

	gpt_device_free(backend->device, staged->params);
	gpt_device_free(backend->device, staged->grads);
	free(staged);
	return inner;
}

static void staged_close(struct gpt_backend *backend)
{
	unwrap(backend)->close(backend);
}

static int staged_destroy(struct gpt_backend *backend)
{
	return unwrap(backend)->destroy(backend);
}

static uint64_t bytes_of(enum zinf_dtype dtype)
{
	return dtype == ZINF_F32 ? sizeof(float) : sizeof(uint16_t);
}

int gpt_staged_wrap(struct gpt_backend *backend, const struct gpt_args *args,
                    const struct gpt_model *model, struct gpt_device *device,
                    struct gpt_problem *problem)
{
	struct gpt_staged *staged = calloc(1, sizeof(*staged));

	assert(!backend->device);
	if (!staged)
		return gpt_problem_set(problem, -ENOMEM, "No memory for a backend");
	*staged = (struct gpt_staged){
		.ops = *backend->ops,
		.inner = backend->ops,
		.model = model,
		.param_bytes = bytes_of(gpt_param_dtype(args)),
		.grad_bytes = bytes_of(gpt_grad_dtype(args)),
	};
	staged->ops.gpu_param = staged_param;
	staged->ops.gpu_grad = staged_grad;
	staged->ops.unshard = staged_unshard;
	staged->ops.reduce = staged_reduce;
	staged->ops.close = staged_close;
	staged->ops.destroy = staged_destroy;
	staged->params = gpt_device_alloc(device, model->padded_count * staged->param_bytes);
	staged->grads = gpt_device_alloc(device, backend->lane_count * model->padded_count *
	                                                 staged->grad_bytes);
	if (!staged->params || !staged->grads) {
		gpt_device_free(device, staged->params);
		gpt_device_free(device, staged->grads);
		free(staged);
		return gpt_problem_set(
			problem, -ENOMEM,
			"no room on the GPU for %llu parameters and the gradients of "
			"%u ranks: %s",
			(unsigned long long)model->element_count, backend->lane_count,
			gpt_device_error_text(device));
	}
	backend->staged = staged;
	backend->device = device;
	backend->ops = &staged->ops;
	return 0;
}
