/* SPDX-License-Identifier: Apache-2.0 */
/* Units as matrices and f32 vectors: opening, shutting, gradients. */
#include "examples/gpt/units.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "examples/gpt/args.h"
#include "examples/gpt/clock.h"
#include "examples/gpt/f16.h"
#include "examples/gpt/number.h"
#include "examples/gpt/product.h"
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

static bool is_vector(const struct gpt_param *param)
{
	return param->dim_count == 1;
}

static uint64_t larger(uint64_t x, uint64_t y)
{
	return x > y ? x : y;
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
		most = larger(most, count);
	}
	return most;
}

/* As many threads as the CPUs give each rank of this node. A launcher knows how many those are. */
static uint32_t thread_count(const struct gpt_args *args)
{
	static const char *const names[] = { "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
		                             "SLURM_NTASKS_PER_NODE" };
	uint64_t rank_count = args->world_count;

	if (args->thread_count)
		return args->thread_count;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *text = getenv(names[i]);
		uint64_t count = 0;

		if (args->is_launched && text && !gpt_parse_u64(text, &count) && count > 0 &&
		    count <= args->world_count) {
			rank_count = count;
			break;
		}
	}
	return gpt_team_default_threads((uint32_t)rank_count);
}

/* The most that products and attention take, forward and backward. */
static struct gpt_team *team_of(const struct gpt_args *args, const struct gpt_config *config)
{
	uint64_t rows = (uint64_t)config->batch_count * config->sequence_count;
	uint64_t tokens = config->sequence_count, channels = config->channel_count;
	uint64_t wide = larger(4 * channels, GPT_VOCAB);
	const struct gpt_product_bounds forward = { rows, wide, wide, tokens,
		                                    channels / config->head_count };
	/* The left factor of a weight's gradient is that of the outputs. */
	const struct gpt_product_bounds backward = { wide, wide, rows, 1, 1 };
	uint64_t square = (tokens * tokens + GPT_LANES) * sizeof(float);

	return gpt_team_new(
		thread_count(args),
		larger(gpt_product_shared_bytes(&forward), gpt_product_shared_bytes(&backward)),
		larger(gpt_product_scratch_bytes(&forward), gpt_product_scratch_bytes(&backward)) +
			square);
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
	units->team = team_of(args, &model->config);
	if (!units->team)
		return -ENOMEM;
	if (units->param_dtype != ZINF_F32) {
		units->widened = calloc(vector_count, sizeof(float));
		if (!units->widened)
			return -ENOMEM;
	}
	if (units->grad_dtype != ZINF_F32) {
		units->embed_grads = calloc(embed_count, sizeof(float));
		units->other_grads = calloc(vector_count, sizeof(float));
		if (!units->embed_grads || !units->other_grads)
			return -ENOMEM;
	}
	return 0;
}

/* Twice is fine. */
void gpt_units_deinit(struct gpt_units *units)
{
	(void)gpt_team_free(units->team);
	free(units->widened);
	free(units->embed_grads);
	free(units->other_grads);
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
		const void *data = units->backend->ops->param(units->backend, u->param_index + i);

		assert(data);
		ret_params->at[i] = data;
		if (units->param_dtype == ZINF_F32 || !is_vector(param))
			continue;
		widen(param->element_count, data, units->param_dtype, widened);
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

/* Of 16 bits: the scratch in which a gradient is computed. NULL: the backend's buffer itself.
 * @at: the next vector in the scratch of vectors, moved on. */
static float *scratch_of(const struct gpt_units *units, uint32_t unit,
                         const struct gpt_param *param, float **at)
{
	float *scratch = *at;

	if (units->grad_dtype == ZINF_F32)
		return NULL;
	if (unit == GPT_UNIT_EMBED)
		return units->embed_grads + param->element_index;
	if (!is_vector(param))
		return NULL;
	*at += param->element_count;
	return scratch;
}

/* Says where the gradients of a unit's parameters are to be computed. */
int gpt_units_grads_begin(struct gpt_units *units, uint32_t unit, struct gpt_unit_grads *ret_grads)
{
	const struct gpt_unit *u = &units->model->units[unit];
	const struct gpt_units_place *place = &units->place;
	bool is_later = place->micro_index > 0 && !units->is_sharded;
	bool is_direct = units->grad_dtype == ZINF_F32 || unit != GPT_UNIT_EMBED;
	float *next = units->other_grads;
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
	*ret_grads = (struct gpt_unit_grads){
		.matrix_dtype = is_direct ? units->grad_dtype : ZINF_F32,
		.keeps_matrices = is_later && is_direct,
		.keeps_vectors = is_later && units->grad_dtype == ZINF_F32,
	};
	for (uint32_t i = 0; i < u->param_count; i++) {
		const struct gpt_param *param = &units->model->params[u->param_index + i];
		void *scratch = scratch_of(units, unit, param, &next);

		ret_grads->at[i] = scratch ? scratch
		                           : units->backend->ops->grad(units->backend, place->lane,
		                                                       u->param_index + i);
		assert(ret_grads->at[i]);
	}
	return 0;
}

/* The gradients of a unit are computed: from the scratch into the buffer, and to the reduction when
 * due. */
int gpt_units_grads_end(struct gpt_units *units, uint32_t unit)
{
	const struct gpt_unit *u = &units->model->units[unit];
	const struct gpt_units_place *place = &units->place;
	bool is_later = place->micro_index > 0 && !units->is_sharded;
	bool is_last = place->micro_index + 1 == place->micro_count;
	float *next = units->other_grads;

	for (uint32_t i = 0; i < u->param_count; i++) {
		const struct gpt_param *param = &units->model->params[u->param_index + i];
		const float *source = scratch_of(units, unit, param, &next);
		uint16_t *target;

		if (!source)
			continue;
		target = units->backend->ops->grad(units->backend, place->lane, u->param_index + i);
		if (is_later)
			add_into(param->element_count, source, units->grad_dtype, target);
		else
			round_into(param->element_count, source, units->grad_dtype, target);
	}
	if (!units->is_sharded && !units->has_no_sync && !is_last)
		return 0;
	return units->backend->ops->reduce(units->backend, place->lane, unit);
}
