/* SPDX-License-Identifier: Apache-2.0 */
/* Units as f32 arrays: opening, shutting, gradients. */
#include "examples/gpt/units.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "examples/gpt/args.h"
#include "examples/gpt/clock.h"
#include "examples/gpt/f16.h"
#include "examples/gpt/vector.h"

/* target: (count,) f32. source: (count,) bf16 or f16. */
GPT_CLONES static void widen(uint64_t count, const uint16_t *source, enum zinf_dtype dtype,
                             float *target)
{
	for (uint64_t i = 0; i < count; i++)
		target[i] = gpt_half_widen(source[i], dtype);
}

/* The first micro-batch of a buffer. target: (count,) bf16 or f16. */
GPT_CLONES static void round_into(uint64_t count, const float *source, enum zinf_dtype dtype,
                                  uint16_t *target)
{
	for (uint64_t i = 0; i < count; i++)
		target[i] = gpt_half_round(source[i], dtype);
}

/* A later one: docs/ARITHMETIC.md, gradients reduced per step. */
GPT_CLONES static void add_into(uint64_t count, const float *source, enum zinf_dtype dtype,
                                uint16_t *target)
{
	for (uint64_t i = 0; i < count; i++)
		target[i] = gpt_half_round(gpt_half_widen(target[i], dtype) + source[i], dtype);
}

/* Elements of the largest unit but the embeddings. */
static uint64_t largest_other(const struct gpt_model *model)
{
	uint64_t count = 0;

	for (uint32_t u = GPT_UNIT_BLOCK_0; u < model->unit_count; u++)
		if (model->units[u].element_count > count)
			count = model->units[u].element_count;
	return count;
}

/* @units: deinit it, also after a failure. Return: 0, -ENOMEM. */
int gpt_units_init(struct gpt_units *units, const struct gpt_args *args,
                   const struct gpt_model *model, struct gpt_backend *backend)
{
	uint64_t embed_count = model->units[GPT_UNIT_EMBED].element_count;
	uint64_t other_count = largest_other(model);
	uint64_t most = embed_count > other_count ? embed_count : other_count;

	*units = (struct gpt_units){
		.model = model,
		.backend = backend,
		.param_dtype = gpt_param_dtype(args),
		.grad_dtype = gpt_grad_dtype(args),
		.loss_scale = 1,
		.is_sharded = args->grad_reduction == ZINF_REDUCE_PER_MICRO_BATCH,
		.has_no_sync = args->has_no_sync && backend->ops->no_sync,
	};
	if (units->param_dtype != ZINF_F32) {
		units->widened = calloc(most, sizeof(float));
		if (!units->widened)
			return -ENOMEM;
	}
	if (units->grad_dtype != ZINF_F32) {
		units->embed_grads = calloc(embed_count, sizeof(float));
		units->other_grads = calloc(other_count, sizeof(float));
		if (!units->embed_grads || !units->other_grads)
			return -ENOMEM;
	}
	return 0;
}

/* Twice is fine. */
void gpt_units_deinit(struct gpt_units *units)
{
	free(units->widened);
	free(units->embed_grads);
	free(units->other_grads);
	*units = (struct gpt_units){ 0 };
}

/*
 * Waits until a unit is there and says where its parameters lie. With 16 bits one unit is open at a
 * time: there is one scratch.
 * @ret_params: by index in the unit; valid until gpt_units_shut().
 */
int gpt_units_open(struct gpt_units *units, uint32_t unit,
                   const float *ret_params[static GPT_UNIT_PARAMS_MAX])
{
	const struct gpt_unit *u = &units->model->units[unit];
	uint64_t begin_ns = gpt_now_ns();
	int r;

	assert(unit < units->model->unit_count);
	r = units->backend->ops->unshard(units->backend, unit);
	if (r)
		return r;
	units->wait_ns += gpt_now_ns() - begin_ns;
	for (uint32_t i = 0; i < u->param_count; i++) {
		const struct gpt_param *param = &units->model->params[u->param_index + i];
		const void *data = units->backend->ops->param(units->backend, u->param_index + i);

		assert(data);
		ret_params[i] = data;
		if (units->param_dtype == ZINF_F32)
			continue;
		ret_params[i] = units->widened + param->element_index;
		widen(param->element_count, data, units->param_dtype,
		      units->widened + param->element_index);
	}
	return 0;
}

/* This use of the unit is over. Return: 0 or what the backend answered. */
int gpt_units_shut(struct gpt_units *units, uint32_t unit)
{
	return units->backend->ops->reshard(units->backend, unit);
}

static float *scratch_of(const struct gpt_units *units, uint32_t unit)
{
	return unit == GPT_UNIT_EMBED ? units->embed_grads : units->other_grads;
}

/*
 * Says where the gradients of a unit's parameters are to be computed.
 * @ret_keep: true: add to what is there (a later micro-batch in f32, reduced per step); false:
 * replace it.
 */
int gpt_units_grads_begin(struct gpt_units *units, uint32_t unit,
                          float *ret_grads[static GPT_UNIT_PARAMS_MAX], bool *ret_keep)
{
	const struct gpt_unit *u = &units->model->units[unit];
	const struct gpt_units_place *place = &units->place;
	bool is_later = place->micro_index > 0 && !units->is_sharded;
	uint64_t begin_ns = gpt_now_ns();
	int r;

	assert(place->micro_index < place->micro_count);
	/* Otherwise the buffer has been this rank's since micro-batch 0. */
	if (!is_later || units->has_no_sync) {
		r = units->backend->ops->grad_acquire(units->backend, place->lane, unit);
		if (r)
			return r;
	}
	units->wait_ns += gpt_now_ns() - begin_ns;
	for (uint32_t i = 0; i < u->param_count; i++) {
		const struct gpt_param *param = &units->model->params[u->param_index + i];

		if (units->grad_dtype != ZINF_F32)
			ret_grads[i] = scratch_of(units, unit) + param->element_index;
		else
			ret_grads[i] = units->backend->ops->grad(units->backend, place->lane,
			                                         u->param_index + i);
		assert(ret_grads[i]);
	}
	*ret_keep = is_later && units->grad_dtype == ZINF_F32;
	return 0;
}

/* The gradients of a unit are computed: into the buffer with them, and to the reduction when
 * due. */
int gpt_units_grads_end(struct gpt_units *units, uint32_t unit)
{
	const struct gpt_unit *u = &units->model->units[unit];
	const struct gpt_units_place *place = &units->place;
	bool is_later = place->micro_index > 0 && !units->is_sharded;
	bool is_last = place->micro_index + 1 == place->micro_count;

	for (uint32_t i = 0; units->grad_dtype != ZINF_F32 && i < u->param_count; i++) {
		const struct gpt_param *param = &units->model->params[u->param_index + i];
		const float *source = scratch_of(units, unit) + param->element_index;
		uint16_t *target =
			units->backend->ops->grad(units->backend, place->lane, u->param_index + i);

		if (is_later)
			add_into(param->element_count, source, units->grad_dtype, target);
		else
			round_into(param->element_count, source, units->grad_dtype, target);
	}
	if (!units->is_sharded && !units->has_no_sync && !is_last)
		return 0;
	return units->backend->ops->reduce(units->backend, place->lane, unit);
}
