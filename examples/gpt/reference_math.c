/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of docs/ARITHMETIC.md, section by section. */
#include "examples/gpt/reference_math.h"

#include <assert.h>
#include <math.h>

#include "examples/gpt/f16.h"

#define BLOCK_ELEMENTS 4096u
#define NORM_LANES     16u

/*
 * Reduction over ranks: the tree that splits at the largest power of two below the count. Joining
 * neighbours level by level, an odd one waiting, makes the same tree: 0+1, 2+3, 4 → 0..3, 4 → 0..4.
 * @values: (count,), overwritten.
 */
float gpt_reference_tree(float *values, uint32_t count)
{
	assert(count > 0);
	for (uint32_t width = 1; width < count; width *= 2)
		for (uint32_t i = 0; i + width < count; i += 2 * width)
			values[i] = values[i] + values[i + width];
	return values[0];
}

/* Norm of one block. reduced: (4096,) f32, padding included. */
double gpt_reference_block_sum(const float *reduced, float unscale)
{
	double lanes[NORM_LANES] = { 0 };

	for (uint32_t i = 0; i < BLOCK_ELEMENTS; i++) {
		float x = reduced[i] * unscale;

		lanes[i % NORM_LANES] += (double)x * (double)x;
	}
	for (uint32_t width = NORM_LANES / 2; width >= 1; width /= 2)
		for (uint32_t j = 0; j < width; j++)
			lanes[j] += lanes[j + width];
	return lanes[0];
}

/* The blocks of the whole job, joined by the same tree as the ranks, in f64. @block_sums: (count,),
 * overwritten. Return: the norm; not finite when a gradient is not. */
double gpt_reference_norm(double *block_sums, uint64_t count)
{
	assert(count > 0);
	for (uint64_t width = 1; width < count; width *= 2)
		for (uint64_t i = 0; i + width < count; i += 2 * width)
			block_sums[i] = block_sums[i] + block_sums[i + width];
	return sqrt(block_sums[0]);
}

/* torch.nn.utils.clip_grad_norm_: the factor that brings @norm down to @max_norm; 0 of it: 1. */
float gpt_reference_clip(double norm, double max_norm)
{
	float factor;

	if (!(max_norm > 0))
		return 1.0f;
	factor = (float)(max_norm / (norm + 1e-6));
	return factor < 1.0f ? factor : 1.0f; /* a NaN counts as 1 */
}

/* Each in f64, rounded once. The powers are those of the step that is being made. @update_count:
 * of those before it. */
void gpt_reference_scalars_init(struct gpt_reference_scalars *scalars,
                                enum zinf_optimizer optimizer,
                                const struct zinf_step_options *options, double beta1_power,
                                double beta2_power, float clip, uint64_t update_count)
{
	bool is_corrected = !options->no_bias_correction;

	*scalars = (struct gpt_reference_scalars){
		.unscale = (float)options->unscale,
		.clip = clip,
		.eps = (float)options->eps,
		.wd = (float)options->weight_decay,
		.lr = (float)options->lr,
		.is_first = update_count == 0,
		.is_nesterov = options->nesterov,
	};
	if (optimizer == ZINF_SGD) {
		scalars->mu = (float)options->beta1;
		scalars->one_m_damp = (float)(1.0 - options->beta2);
		return;
	}
	if (optimizer == ZINF_ADAGRAD)
		scalars->lr =
			(float)(options->lr / (1.0 + (double)update_count * options->lr_decay));
	scalars->decay = (float)(1.0 - options->lr * options->weight_decay);
	scalars->step_size =
		(float)(is_corrected ? options->lr / (1.0 - beta1_power) : options->lr);
	scalars->root_bc2 = is_corrected ? (float)sqrt(1.0 - beta2_power) : 1.0f;
	scalars->b1 = (float)options->beta1;
	scalars->b2 = (float)options->beta2;
	scalars->one_m_b1 = (float)(1.0 - options->beta1);
	scalars->one_m_b2 = (float)(1.0 - options->beta2);
}

static void update_adam(const struct gpt_reference_scalars *s, bool is_decoupled, float g,
                        struct gpt_reference_state *state)
{
	float d;

	if (is_decoupled)
		state->p = state->p * s->decay;
	else
		g = fmaf(s->wd, state->p, g);
	state->m = fmaf(s->one_m_b1, g, s->b1 * state->m);
	state->v = fmaf(s->one_m_b2 * g, g, s->b2 * state->v);
	d = sqrtf(state->v) / s->root_bc2 + s->eps;
	state->p = fmaf(-s->step_size, state->m / d, state->p);
}

static void update_sgd(const struct gpt_reference_scalars *s, float g,
                       struct gpt_reference_state *state)
{
	float u;

	g = fmaf(s->wd, state->p, g);
	state->m = s->is_first ? g : fmaf(s->one_m_damp, g, s->mu * state->m);
	u = s->is_nesterov ? fmaf(s->mu, state->m, g) : state->m;
	state->p = fmaf(-s->lr, u, state->p);
}

/* Its sum of squares is the one moment, kept where others keep their first. */
static void update_adagrad(const struct gpt_reference_scalars *s, float g,
                           struct gpt_reference_state *state)
{
	float d;

	g = fmaf(s->wd, state->p, g);
	state->m = fmaf(g, g, state->m);
	d = sqrtf(state->m) + s->eps;
	state->p = fmaf(-s->lr, g / d, state->p);
}

static void update_lion(const struct gpt_reference_scalars *s, float g,
                        struct gpt_reference_state *state)
{
	float c = fmaf(s->one_m_b1, g, s->b1 * state->m);
	float u = c * 0.0f; /* of either zero nothing, of a NaN a NaN */

	if (c > 0.0f)
		u = s->lr;
	if (c < 0.0f)
		u = -s->lr;
	state->p = fmaf(state->p, s->decay, -u);
	state->m = fmaf(s->one_m_b2, g, s->b2 * state->m);
}

/* @reduced: the reduced gradient, widened. */
void gpt_reference_update(const struct gpt_reference_scalars *scalars,
                          enum zinf_optimizer optimizer, float reduced,
                          struct gpt_reference_state *state)
{
	float g = reduced * scalars->unscale;

	g = g * scalars->clip;
	switch (optimizer) {
	case ZINF_SGD:
		update_sgd(scalars, g, state);
		return;
	case ZINF_ADAGRAD:
		update_adagrad(scalars, g, state);
		return;
	case ZINF_LION:
		update_lion(scalars, g, state);
		return;
	default:
		update_adam(scalars, optimizer == ZINF_ADAMW, g, state);
	}
}

/* bf16 and remainder → f32. */
float gpt_reference_join(uint16_t param, int16_t remainder)
{
	return gpt_from_bits(((uint32_t)param << 16) + (uint32_t)(int32_t)remainder);
}

/* f32 → bf16 and remainder; any NaN becomes the positive quiet one first. */
void gpt_reference_split(float master, uint16_t *ret_param, int16_t *ret_remainder)
{
	uint32_t bits = isnan(master) ? 0x7fc00000u : gpt_bits(master);
	uint32_t p = (bits + 0x8000u) >> 16;

	*ret_param = (uint16_t)p;
	*ret_remainder = (int16_t)(uint16_t)(bits - (p << 16));
}

/* f16 and remainder → f32. */
float gpt_reference_join_f16(uint16_t param, int32_t remainder)
{
	return gpt_from_bits(gpt_bits(gpt_f16_widen(param)) + (uint32_t)remainder);
}

/* f32 → f16 and remainder; any NaN becomes the positive quiet one first. */
void gpt_reference_split_f16(float master, uint16_t *ret_param, int32_t *ret_remainder)
{
	uint32_t bits = isnan(master) ? 0x7fc00000u : gpt_bits(master);
	uint16_t p = gpt_f16_round(gpt_from_bits(bits));

	*ret_param = p;
	*ret_remainder = (int32_t)(bits - gpt_bits(gpt_f16_widen(p)));
}
