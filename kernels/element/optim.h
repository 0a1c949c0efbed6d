/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fused step of one element: the definition (docs/ARITHMETIC.md, "Optimizers"). Floor 1.
 *
 * No product but those of kern_f32_fma() feeds an addition, so on a CPU the bits are the same under
 * -ffp-contract=fast and -mfma as well.
 */
#pragma once

#include "kernels/element/tree.h"
#include "kernels/optim.h"

KERN_ELEMENT bool kern_optim_is_adam(enum zi_optimizer optimizer)
{
	return optimizer == ZI_OPTIMIZER_ADAMW || optimizer == ZI_OPTIMIZER_ADAM;
}

/* The tree's @sum over the ranks, averaged and rounded to the dtype of the gradients. */
KERN_ELEMENT float kern_optim_reduced(float sum, float average, enum zi_dtype grad_dtype)
{
	sum = kern_f32_mul(sum, average);
	if (grad_dtype == ZI_DTYPE_BF16)
		return kern_bf16_to_f32(kern_f32_to_bf16(sum));
	if (grad_dtype == ZI_DTYPE_F16)
		return kern_f16_to_f32(kern_f32_to_f16(sum));
	return sum;
}

/* The gradient that an optimizer takes. */
KERN_ELEMENT float kern_optim_gradient(const struct kern_optim_scalars *s, float reduced)
{
	return kern_f32_mul(kern_f32_mul(reduced, s->unscale), s->clip);
}

KERN_ELEMENT float kern_adam_element(const struct kern_optim_scalars *s,
                                     enum zi_optimizer optimizer, float p, float g, float *exp_avg,
                                     float *exp_avg_sq)
{
	float m, v, d;

	if (optimizer == ZI_OPTIMIZER_ADAMW)
		p = kern_f32_mul(p, s->decay);
	else
		g = kern_f32_fma(s->weight_decay, p, g);
	m = kern_f32_fma(s->one_minus_b1, g, kern_f32_mul(s->b1, *exp_avg));
	v = kern_f32_fma(kern_f32_mul(s->one_minus_b2, g), g, kern_f32_mul(s->b2, *exp_avg_sq));
	d = kern_f32_add(kern_f32_div(kern_f32_sqrt(v), s->root_bc2), s->eps);
	*exp_avg = kern_canonical(m);
	*exp_avg_sq = kern_canonical(v);
	return kern_f32_fma(-s->step_size, kern_f32_div(m, d), p);
}

KERN_ELEMENT float kern_sgd_element(const struct kern_optim_scalars *s, float p, float g,
                                    float *momentum)
{
	float m, u;

	g = kern_f32_fma(s->weight_decay, p, g);
	m = g;
	if (!s->is_first)
		m = kern_f32_fma(s->one_minus_b2, g, kern_f32_mul(s->b1, *momentum));
	u = s->is_nesterov ? kern_f32_fma(s->b1, m, g) : m;
	*momentum = kern_canonical(m);
	return kern_f32_fma(-s->step_size, u, p);
}

/* @square_sum: of all gradients so far. */
KERN_ELEMENT float kern_adagrad_element(const struct kern_optim_scalars *s, float p, float g,
                                        float *square_sum)
{
	float v, d;

	g = kern_f32_fma(s->weight_decay, p, g);
	v = kern_f32_fma(g, g, *square_sum);
	d = kern_f32_add(kern_f32_sqrt(v), s->eps);
	*square_sum = kern_canonical(v);
	return kern_f32_fma(-s->step_size, kern_f32_div(g, d), p);
}

/* A zero of either sign moves nothing, a NaN makes one. */
KERN_ELEMENT float kern_lion_move(float c, float step)
{
	float move = kern_f32_mul(c, 0.0f);

	move = c < 0.0f ? -step : move;
	return c > 0.0f ? step : move;
}

KERN_ELEMENT float kern_lion_element(const struct kern_optim_scalars *s, float p, float g,
                                     float *momentum)
{
	float c = kern_f32_fma(s->one_minus_b1, g, kern_f32_mul(s->b1, *momentum));
	float m = kern_f32_fma(s->one_minus_b2, g, kern_f32_mul(s->b2, *momentum));

	*momentum = kern_canonical(m);
	return kern_f32_fma(p, s->decay, -kern_lion_move(c, s->step_size));
}

/*
 * One step. @optimizer: s->optimizer, which a GPU's kernel knows as a constant. @p: the parameter,
 * @g: kern_optim_gradient(). @exp_avg: updated in place; so is @exp_avg_sq with two moments, else
 * it may be NULL. Return: the parameter, not yet canonical.
 */
KERN_ELEMENT float kern_optim_element(const struct kern_optim_scalars *s,
                                      enum zi_optimizer optimizer, float p, float g, float *exp_avg,
                                      float *exp_avg_sq)
{
	switch (optimizer) {
	case ZI_OPTIMIZER_SGD:
		return kern_sgd_element(s, p, g, exp_avg);
	case ZI_OPTIMIZER_ADAGRAD:
		return kern_adagrad_element(s, p, g, exp_avg);
	case ZI_OPTIMIZER_LION:
		return kern_lion_element(s, p, g, exp_avg);
	default:
		return kern_adam_element(s, optimizer, p, g, exp_avg, exp_avg_sq);
	}
}

/* The fp32 master of a parameter. @remainder: as of struct kern_optim_run. */
KERN_ELEMENT float kern_master_at(const void *param, const void *remainder, uint64_t index,
                                  enum zi_dtype dtype)
{
	const uint16_t *half = (const uint16_t *)param;

	if (dtype == ZI_DTYPE_F32)
		return ((const float *)param)[index];
	if (dtype == ZI_DTYPE_F16)
		return kern_join_f16(half[index], ((const int32_t *)remainder)[index]);
	return kern_join(half[index], ((const int16_t *)remainder)[index]);
}

/* The master @p, made canonical, as parameter and remainder. @param_copy: NULL, or a second place
 * of the parameter. */
KERN_ELEMENT void kern_master_put(void *param, void *param_copy, void *remainder, uint64_t index,
                                  float p, enum zi_dtype dtype)
{
	uint16_t half;

	p = kern_canonical(p);
	if (dtype == ZI_DTYPE_F32) {
		((float *)param)[index] = p;
		if (param_copy)
			((float *)param_copy)[index] = p;
		return;
	}
	if (dtype == ZI_DTYPE_F16)
		kern_split_f16(p, &half, &((int32_t *)remainder)[index]);
	else
		kern_split(p, &half, &((int16_t *)remainder)[index]);
	((uint16_t *)param)[index] = half;
	if (param_copy)
		((uint16_t *)param_copy)[index] = half;
}
