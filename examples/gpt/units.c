/* SPDX-License-Identifier: Apache-2.0 */
/* Units as matrices and f32 vectors: opening, shutting, gradients. */
#include "examples/gpt/units.h"

#include <assert.h>
#include <errno.h>

#include "examples/gpt/arena.h"
#include "examples/gpt/args.h"
#include "examples/gpt/clock.h"
#include "examples/gpt/layers_cpu.h"
#include "examples/gpt/layers_gpu.h"

static bool is_vector(const struct gpt_param *param)
{
	return param->dim_count == 1;
}

/* Elements of the most that a unit has of vectors. */
static uint64_t most_of_vectors(const struct gpt_model *model)
{
	uint64_t most = 0;

	for (uint32_t u = 0; u < model->unit_count; u++) {
		const struct gpt_unit *unit = &model->units[u];
		uint64_t count = 0;

		for (uint32_t i = 0; i < unit->param_count; i++) {
			const struct gpt_param *param = &model->params[unit->param_index + i];

			count += is_vector(param) ? param->element_count : 0;
		}
		most = count > most ? count : most;
	}
	return most;
}

/* Gradients of the embeddings are under way through all of backward, and the GPU memory for
 * gradients may hold no more than two units. So they lie in the scratch, and take their place there
 * at the end. Several lanes have memory of their own, and one scratch. */
static bool is_late(const struct gpt_units *units, uint32_t unit)
{
	return unit == GPT_UNIT_EMBED && units->backend->device && units->backend->lane_count == 1;
}

/* @units: deinit it, also after a failure. Return: 0, -ENOMEM. */
int gpt_units_init(struct gpt_units *units, const struct gpt_args *args,
                   const struct gpt_model *model, struct gpt_backend *backend)
{
	uint64_t embed_count = model->units[GPT_UNIT_EMBED].element_count;
	uint64_t vector_count = most_of_vectors(model);

	*units = (struct gpt_units){
		.model = model,
		.backend = backend,
		.param_dtype = gpt_param_dtype(args),
		.grad_dtype = gpt_grad_dtype(args),
		.loss_scale = 1,
		.is_sharded = args->grad_reduction == ZINF_REDUCE_PER_MICRO_BATCH,
		.has_no_sync = args->has_no_sync && backend->ops->no_sync,
	};
	units->layers = backend->device ? gpt_layers_gpu_new(backend->device, &model->config,
	                                                     units->param_dtype == ZINF_BF16)
	                                : gpt_layers_cpu_new(args, &model->config);
	if (!units->layers)
		return -ENOMEM;
	if (units->param_dtype != ZINF_F32)
		units->widened = gpt_arena_new(backend->device, vector_count * sizeof(float));
	if (units->grad_dtype != ZINF_F32 || is_late(units, GPT_UNIT_EMBED)) {
		units->embed_grads = gpt_arena_new(backend->device, embed_count * sizeof(float));
		if (!units->embed_grads)
			return -ENOMEM;
	}
	if (units->grad_dtype != ZINF_F32) {
		units->other_grads = gpt_arena_new(backend->device, vector_count * sizeof(float));
		if (!units->other_grads)
			return -ENOMEM;
	}
	return units->param_dtype != ZINF_F32 && !units->widened ? -ENOMEM : 0;
}

/* Twice is fine. */
void gpt_units_deinit(struct gpt_units *units)
{
	struct gpt_device *device = units->backend ? units->backend->device : NULL;

	if (units->layers)
		units->layers->ops->free(units->layers);
	gpt_arena_free(device, units->widened);
	gpt_arena_free(device, units->embed_grads);
	gpt_arena_free(device, units->other_grads);
	*units = (struct gpt_units){ 0 };
}

/*
 * Waits until a unit is there and says where its parameters lie. With 16 bits one unit is open at a
 * time: there is one scratch for vectors.
 * @ret_params: valid until gpt_units_shut().
 */
int gpt_units_open(struct gpt_units *units, uint32_t unit, struct gpt_unit_params *ret_params)
{
	const struct gpt_unit *u = &units->model->units[unit];
	uint64_t begin_ns = gpt_now_ns();
	float *widened = units->widened;
	int r;

	assert(unit < units->model->unit_count);
	r = units->backend->ops->unshard(units->backend, unit);
	if (r)
		return r;
	units->wait_ns += gpt_now_ns() - begin_ns;
	ret_params->dtype = units->param_dtype;
	for (uint32_t i = 0; i < u->param_count; i++) {
		const struct gpt_param *param = &units->model->params[u->param_index + i];
		const void *data = gpt_backend_param(units->backend, u->param_index + i);

		assert(data);
		ret_params->at[i] = data;
		if (units->param_dtype == ZINF_F32 || !is_vector(param))
			continue;
		units->layers->ops->widen(units->layers, param->element_count, data,
		                          units->param_dtype, widened);
		ret_params->at[i] = widened;
		widened += param->element_count;
	}
	return 0;
}

/* This use of the unit is over. Return: 0 or what the backend answered. */
int gpt_units_shut(struct gpt_units *units, uint32_t unit)
{
	return units->backend->ops->reshard(units->backend, unit);
}

/* The scratch in which a gradient is computed. NULL: the backend's buffer itself.
 * @at: the next vector in the scratch of vectors, moved on. */
static float *scratch_of(const struct gpt_units *units, uint32_t unit,
                         const struct gpt_param *param, float **at)
{
	float *scratch = *at;

	if (unit == GPT_UNIT_EMBED)
		return units->embed_grads ? units->embed_grads + param->element_index : NULL;
	if (units->grad_dtype == ZINF_F32 || !is_vector(param))
		return NULL;
	*at += param->element_count;
	return scratch;
}

static int acquire(struct gpt_units *units, uint32_t unit)
{
	uint64_t begin_ns = gpt_now_ns();
	int r = units->backend->ops->grad_acquire(units->backend, units->place.lane, unit);

	units->wait_ns += gpt_now_ns() - begin_ns;
	return r;
}

/* Says where the gradients of a unit's parameters are to be computed. */
int gpt_units_grads_begin(struct gpt_units *units, uint32_t unit, struct gpt_unit_grads *ret_grads)
{
	const struct gpt_unit *u = &units->model->units[unit];
	const struct gpt_units_place *place = &units->place;
	bool is_later = place->micro_index > 0 && !units->is_sharded;
	bool is_direct = units->grad_dtype == ZINF_F32 || unit != GPT_UNIT_EMBED;
	float *next = units->other_grads;
	int r;

	assert(place->micro_index < place->micro_count);
	/* Otherwise the buffer has been this rank's since micro-batch 0. */
	if ((!is_later || units->has_no_sync) && !is_late(units, unit)) {
		r = acquire(units, unit);
		if (r)
			return r;
	}
	*ret_grads = (struct gpt_unit_grads){
		.matrix_dtype = is_direct ? units->grad_dtype : ZINF_F32,
		.keeps_matrices = is_later && is_direct,
		.keeps_vectors = is_later && units->grad_dtype == ZINF_F32,
	};
	for (uint32_t i = 0; i < u->param_count; i++) {
		const struct gpt_param *param = &units->model->params[u->param_index + i];
		void *scratch = scratch_of(units, unit, param, &next);

		ret_grads->at[i] =
			scratch ? scratch
				: gpt_backend_grad(units->backend, place->lane, u->param_index + i);
		assert(ret_grads->at[i]);
	}
	return 0;
}

/* From the scratch into the buffer. In f32 the scratch has the sum of the micro-batches. */
static void store(struct gpt_units *units, uint32_t unit, bool is_later)
{
	const struct gpt_layers_ops *ops = units->layers->ops;
	const struct gpt_unit *u = &units->model->units[unit];
	float *next = units->other_grads;

	for (uint32_t i = 0; i < u->param_count; i++) {
		const struct gpt_param *param = &units->model->params[u->param_index + i];
		const float *source = scratch_of(units, unit, param, &next);
		void *target;

		if (!source)
			continue;
		target = gpt_backend_grad(units->backend, units->place.lane, u->param_index + i);
		if (units->grad_dtype == ZINF_F32)
			ops->copy(units->layers, param->element_count, source, target);
		else
			ops->narrow(units->layers, param->element_count, source, units->grad_dtype,
			            is_later, target);
	}
}

/* The gradients of a unit are computed: from the scratch into the buffer, and to the reduction when
 * due. */
int gpt_units_grads_end(struct gpt_units *units, uint32_t unit)
{
	const struct gpt_units_place *place = &units->place;
	bool is_later = place->micro_index > 0 && !units->is_sharded;
	bool is_last = place->micro_index + 1 == place->micro_count;
	bool is_due = units->is_sharded || units->has_no_sync || is_last;
	bool is_wide = units->grad_dtype == ZINF_F32;
	int r = 0;

	/* In f32 the buffer is needed only when it is handed over. */
	if (is_late(units, unit) && (is_wide ? is_due : !is_later || units->has_no_sync))
		r = acquire(units, unit);
	if (r)
		return r;
	if (is_due || !is_wide)
		store(units, unit, is_later);
	if (units->layers->error) /* No gradient that was not computed is handed over. */
		return units->layers->error;
	return is_due ? units->backend->ops->reduce(units->backend, place->lane, unit) : 0;
}
