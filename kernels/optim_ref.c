/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fused step: the definition (docs/ARITHMETIC.md, "Optimizers"), element by element. Floor 1.
 *
 * A fused multiply-add happens exactly where fmaf() is written. No other product feeds an addition,
 * so the element-wise part means the same under -ffp-contract=fast and -mfma as well.
 */
#include "kernels/optim.h"
#include "kernels/optim_apart.h"
#include "kernels/table.h"
#include "kernels/tree.h"

static bool is_adam(enum zi_optimizer optimizer)
{
	return optimizer == ZI_OPTIMIZER_ADAMW || optimizer == ZI_OPTIMIZER_ADAM;
}

/* What a parameter moves by, for each unit of its direction. */
static double step_size(const struct kern_hyper *hyper)
{
	if (hyper->optimizer == ZI_OPTIMIZER_ADAGRAD)
		return hyper->lr / (1.0 + (double)hyper->update_count * hyper->lr_decay);
	if (is_adam(hyper->optimizer) && !hyper->has_no_bias_correction)
		return hyper->lr / (1.0 - hyper->beta1_power);
	return hyper->lr;
}

/* See optim.c. f64, each value rounded once to f32. */
void kern_optim_prepare_ref(struct kern_optim_scalars *ret_scalars, const struct kern_hyper *hyper)
{
	bool is_corrected = is_adam(hyper->optimizer) && !hyper->has_no_bias_correction;

	*ret_scalars = (struct kern_optim_scalars){
		.optimizer = hyper->optimizer,
		.is_nesterov = hyper->is_nesterov,
		.is_first = hyper->is_first,
		.average = hyper->average,
		.unscale = hyper->unscale,
		.clip = hyper->clip,
		.decay = (float)(1.0 - hyper->lr * hyper->weight_decay),
		.weight_decay = (float)hyper->weight_decay,
		.eps = (float)hyper->eps,
		.b1 = (float)hyper->beta1,
		.one_minus_b1 = (float)(1.0 - hyper->beta1),
		.b2 = (float)hyper->beta2,
		.one_minus_b2 = (float)(1.0 - hyper->beta2),
		.step_size = (float)step_size(hyper),
		.root_bc2 = (float)(is_corrected ? sqrt(1.0 - hyper->beta2_power) : 1.0),
	};
}

static float reduced_gradient(const struct kern_optim_run *run,
                              const struct kern_optim_scalars *scalars, uint64_t index)
{
	float sum = kern_tree_at(run->grads, run->rank_count, index, run->grad_dtype);

	if (run->is_reduced)
		return sum;
	sum *= scalars->average;
	if (run->grad_dtype == ZI_DTYPE_BF16)
		return kern_bf16_to_f32(kern_f32_to_bf16(sum));
	if (run->grad_dtype == ZI_DTYPE_F16)
		return kern_f16_to_f32(kern_f32_to_f16(sum));
	return sum;
}

static float adam_element(const struct kern_optim_scalars *s, float p, float g, float *exp_avg,
                          float *exp_avg_sq)
{
	float m, v, d;

	if (s->optimizer == ZI_OPTIMIZER_ADAMW)
		p *= s->decay;
	else
		g = fmaf(s->weight_decay, p, g);
	m = fmaf(s->one_minus_b1, g, s->b1 * *exp_avg);
	v = fmaf(s->one_minus_b2 * g, g, s->b2 * *exp_avg_sq);
	d = sqrtf(v) / s->root_bc2 + s->eps;
	*exp_avg = kern_canonical(m);
	*exp_avg_sq = kern_canonical(v);
	return fmaf(-s->step_size, m / d, p);
}

static float sgd_element(const struct kern_optim_scalars *s, float p, float g, float *momentum)
{
	float m, u;

	g = fmaf(s->weight_decay, p, g);
	m = s->is_first ? g : fmaf(s->one_minus_b2, g, s->b1 * *momentum);
	u = s->is_nesterov ? fmaf(s->b1, m, g) : m;
	*momentum = kern_canonical(m);
	return fmaf(-s->step_size, u, p);
}

/* @square_sum: of all gradients so far. */
static float adagrad_element(const struct kern_optim_scalars *s, float p, float g,
                             float *square_sum)
{
	float v, d;

	g = fmaf(s->weight_decay, p, g);
	v = fmaf(g, g, *square_sum);
	d = sqrtf(v) + s->eps;
	*square_sum = kern_canonical(v);
	return fmaf(-s->step_size, g / d, p);
}

/* A zero of either sign moves nothing, a NaN makes one. */
static float lion_move(float c, float step)
{
	if (c > 0.0f)
		return step;
	return c < 0.0f ? -step : c * 0.0f;
}

static float lion_element(const struct kern_optim_scalars *s, float p, float g, float *momentum)
{
	float c = fmaf(s->one_minus_b1, g, s->b1 * *momentum);
	float m = fmaf(s->one_minus_b2, g, s->b2 * *momentum);

	*momentum = kern_canonical(m);
	return fmaf(p, s->decay, -lion_move(c, s->step_size));
}

static float param_load(const struct kern_optim_run *run, uint64_t index)
{
	const uint16_t *half = run->param;

	if (run->param_dtype == ZI_DTYPE_F32)
		return ((const float *)run->param)[index];
	if (run->param_dtype == ZI_DTYPE_F16)
		return kern_join_f16(half[index], ((const int32_t *)run->remainder)[index]);
	return kern_join(half[index], ((const int16_t *)run->remainder)[index]);
}

static void param_store(const struct kern_optim_run *run, uint64_t index, float p)
{
	uint16_t half;

	p = kern_canonical(p);
	if (run->param_dtype == ZI_DTYPE_F32) {
		((float *)run->param)[index] = p;
		if (run->param_copy)
			((float *)run->param_copy)[index] = p;
		return;
	}
	if (run->param_dtype == ZI_DTYPE_F16)
		kern_split_f16(p, &half, &((int32_t *)run->remainder)[index]);
	else
		kern_split(p, &half, &((int16_t *)run->remainder)[index]);
	((uint16_t *)run->param)[index] = half;
	if (run->param_copy)
		((uint16_t *)run->param_copy)[index] = half;
}

static float element_step(const struct kern_optim_run *run,
                          const struct kern_optim_scalars *scalars, uint64_t index, float p,
                          float g)
{
	switch (scalars->optimizer) {
	case ZI_OPTIMIZER_SGD:
		return sgd_element(scalars, p, g, &run->exp_avg[index]);
	case ZI_OPTIMIZER_ADAGRAD:
		return adagrad_element(scalars, p, g, &run->exp_avg[index]);
	case ZI_OPTIMIZER_LION:
		return lion_element(scalars, p, g, &run->exp_avg[index]);
	default:
		return adam_element(scalars, p, g, &run->exp_avg[index], &run->exp_avg_sq[index]);
	}
}

/* kern_optim_step() element by element. */
void kern_optim_step_ref(const struct kern_optim_run *run, const struct kern_optim_scalars *scalars)
{
	for (uint64_t i = 0; i < run->element_count; i++) {
		float g = reduced_gradient(run, scalars, i) * scalars->unscale * scalars->clip;

		param_store(run, i, element_step(run, scalars, i, param_load(run, i), g));
	}
}

/* kern_optim_step_hashed() of this table: one after the other. */
void kern_optim_step_hashed_ref(const struct kern_optim_run *run,
                                const struct kern_optim_scalars *scalars,
                                struct kern_optim_hashes *ret_hashes)
{
	optim_apart(run, scalars, kern_optim_step_ref, kern_hash_ref, ret_hashes);
}
