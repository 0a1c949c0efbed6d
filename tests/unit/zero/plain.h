/* SPDX-License-Identifier: Apache-2.0 */
/* The plain computation beside a node: one array per plane and unit, one pass after the other. */
#pragma once

#include "tests/unit/zero/model.h"

struct plain {
	struct zi_job_config config;
	uint32_t world;
	uint64_t joined;      /* ranks whose gradients are zeros */
	bool divides_by_live; /* and are not counted */
	void *param[UNITS];
	void *remainder[UNITS];
	float *exp_avg[UNITS], *exp_avg_sq[UNITS];
	double beta1_power, beta2_power, norm;
	uint64_t update_count;
};

static inline void plain_init(struct plain *plain, const struct zi_job_config *config,
                              uint32_t world)
{
	*plain = (struct plain){
		.config = *config, .world = world, .beta1_power = 1, .beta2_power = 1
	};
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint64_t padded = zi_geometry_padded(model_elements[unit]);

		plain->param[unit] = aligned_alloc(64, padded * 4);
		plain->remainder[unit] = aligned_alloc(64, padded * 4);
		plain->exp_avg[unit] = aligned_alloc(64, padded * 4);
		plain->exp_avg_sq[unit] = aligned_alloc(64, padded * 4);
		memset(plain->param[unit], 0, padded * 4);
		memset(plain->remainder[unit], 0, padded * 4);
		memset(plain->exp_avg[unit], 0, padded * 4);
		memset(plain->exp_avg_sq[unit], 0, padded * 4);
		fill(plain->param[unit], 900 + unit, model_elements[unit], config->param_dtype);
	}
}

static inline void plain_deinit(struct plain *plain)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		free(plain->param[unit]);
		free(plain->remainder[unit]);
		free(plain->exp_avg[unit]);
		free(plain->exp_avg_sq[unit]);
	}
}

/* The reduced gradient of a unit: (padded,) of grad_dtype, the caller's. */
static inline void *plain_reduce(const struct plain *plain, uint64_t step, uint32_t unit,
                                 const struct zi_step_options *options)
{
	uint64_t padded = zi_geometry_padded(model_elements[unit]);
	enum zi_dtype dtype = (enum zi_dtype)plain->config.grad_dtype;
	uint64_t members = model_members(unit, plain->world);
	uint32_t member_count = (uint32_t)__builtin_popcountll(members);
	uint32_t divisor = plain->divides_by_live
	                           ? (uint32_t)__builtin_popcountll(members & ~plain->joined)
	                           : member_count;
	void *grads[ZI_WORLD_MAX];
	float *sum = aligned_alloc(64, padded * 4);
	struct kern_reduce_options reduce = {
		.dtype = dtype,
		.average = options->flags & ZI_STEP_SUM ? 1.0f : (float)(1.0 / (double)divisor),
	};

	for (uint32_t micro = 0; micro < options->micro_batches; micro++) {
		uint32_t count = 0;

		for (uint32_t rank = 0; rank < plain->world; rank++) {
			if (!(members >> rank & 1))
				continue;
			grads[count] = aligned_alloc(64, padded * 4);
			memset(grads[count], 0, padded * 4);
			if (!(plain->joined >> rank & 1))
				fill_grad(grads[count], grad_what(step, micro, rank, unit),
				          model_elements[unit], dtype);
			count++;
		}
		cr_assert_eq(count, member_count);
		kern_reduce_accumulate(sum, (const void *const *)grads, count, padded, micro == 0,
		                       dtype);
		for (uint32_t i = 0; i < count; i++)
			free(grads[i]);
	}
	void *target = aligned_alloc(64, padded * 4);

	kern_reduce_finish(target, sum, padded, &reduce);
	free(sum);
	return target;
}

static inline double plain_norm(const struct plain *plain, void *const *reduced,
                                const struct zi_step_options *options)
{
	uint64_t blocks = 0;
	double *sums;
	double total;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		blocks += zi_geometry_padded(model_elements[unit]) / ZI_BLOCK_ELEMENTS;
	sums = calloc(blocks, sizeof(*sums));
	blocks = 0;
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint64_t padded = zi_geometry_padded(model_elements[unit]);

		kern_norm_blocks(sums + blocks, reduced[unit], padded, (float)options->unscale,
		                 (enum zi_dtype)plain->config.grad_dtype);
		blocks += padded / ZI_BLOCK_ELEMENTS;
	}
	total = kern_norm_join(sums, blocks);
	free(sums);
	return sqrt(total);
}

static inline void plain_step(struct plain *plain, uint64_t step,
                              const struct zi_step_options *options)
{
	bool has_remainder = plain->config.param_dtype != ZI_DTYPE_F32;
	bool has_second = zi_optimizer_moments((enum zi_optimizer)plain->config.optimizer) == 2;
	void *reduced[UNITS];
	struct kern_optim_scalars scalars;
	float clip = 1;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		reduced[unit] = plain_reduce(plain, step, unit, options);
	plain->norm = plain_norm(plain, reduced, options);
	if (options->max_norm > 0)
		clip = fminf(1, (float)(options->max_norm / (plain->norm + 1e-6)));
	plain->beta1_power *= options->beta1;
	plain->beta2_power *= options->beta2;
	kern_optim_prepare(
		&scalars,
		&(struct kern_hyper){
			.optimizer = (enum zi_optimizer)plain->config.optimizer,
			.lr = options->lr,
			.beta1 = options->beta1,
			.beta2 = options->beta2,
			.eps = options->eps,
			.weight_decay = options->weight_decay,
			.is_nesterov = options->flags & ZI_STEP_NESTEROV,
			.beta1_power = plain->beta1_power,
			.beta2_power = plain->beta2_power,
			.is_first = plain->update_count == 0,
			.update_count = plain->update_count,
			.average = 1,
			.unscale = (float)options->unscale,
			.clip = clip,
			.lr_decay = options->lr_decay,
			.has_no_bias_correction = options->flags & ZI_STEP_NO_BIAS_CORRECTION,
		});
	plain->update_count++;
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		const void *grads[1] = { reduced[unit] };

		kern_optim_step(
			&(struct kern_optim_run){
				.param = plain->param[unit],
				.remainder = has_remainder ? plain->remainder[unit] : NULL,
				.exp_avg = plain->exp_avg[unit],
				.exp_avg_sq = has_second ? plain->exp_avg_sq[unit] : NULL,
				.grads = grads,
				.rank_count = 1,
				.is_reduced = true,
				.element_count = zi_geometry_padded(model_elements[unit]),
				.param_dtype = (enum zi_dtype)plain->config.param_dtype,
				.grad_dtype = (enum zi_dtype)plain->config.grad_dtype,
			},
			&scalars);
		free(reduced[unit]);
	}
}

/* What the rank sees of a unit is what was computed, bit by bit. With a pool it has to unshard it
 * for that. */
static inline bool plain_equals_unit(const struct plain *plain, struct actor *actor, uint32_t unit)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)plain->config.param_dtype);
	const void *seen = unit_of(actor, actor->memory.param, unit);
	bool is_equal;

	if (actor->rank->job->residency) {
		cr_assert_eq(actor_unit(actor, zero_unshard, unit), 0, "%s", actor->text.chars);
		seen = (char *)actor->memory.param->region.base + actor->calls[0].op.offset_bytes;
	}
	is_equal = memcmp(plain->param[unit], seen, model_elements[unit] * width) == 0;
	if (actor->rank->job->residency)
		cr_assert_eq(actor_unit(actor, zero_reshard, unit), 0, "%s", actor->text.chars);
	return is_equal;
}

static inline bool plain_equals(const struct plain *plain, struct actor *actor)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		if (!plain_equals_unit(plain, actor, unit))
			return false;
	return true;
}

/* Steps @first to @last with the model's own options. */
static inline void plain_train(struct plain *plain, uint64_t first, uint64_t last)
{
	struct zi_step_options options = model_options();

	for (uint64_t step = first; step <= last; step++)
		plain_step(plain, step, &options);
}
