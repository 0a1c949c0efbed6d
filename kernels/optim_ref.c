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

/* See optim.c. f64, each value rounded once to f32. */
void kern_optim_prepare_ref(struct kern_optim_scalars *ret_scalars, const struct kern_hyper *hyper)
{
	bool is_sgd = hyper->optimizer == ZI_OPTIMIZER_SGD;

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
		.step_size = (float)(is_sgd ? hyper->lr : hyper->lr / (1.0 - hyper->beta1_power)),
		.root_bc2 = (float)(is_sgd ? 1.0 : sqrt(1.0 - hyper->beta2_power)),
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

static float param_load(const struct kern_optim_run *run, uint64_t index)
{
	if (run->param_dtype == ZI_DTYPE_F32)
		return ((const float *)run->param)[index];
	return kern_join(((const uint16_t *)run->param)[index], run->remainder[index]);
}

static void param_store(const struct kern_optim_run *run, uint64_t index, float p)
{
	uint16_t high;

	p = kern_canonical(p);
	if (run->param_dtype == ZI_DTYPE_F32) {
		((float *)run->param)[index] = p;
		if (run->param_copy)
			((float *)run->param_copy)[index] = p;
		return;
	}
	kern_split(p, &high, &run->remainder[index]);
	((uint16_t *)run->param)[index] = high;
	if (run->param_copy)
		((uint16_t *)run->param_copy)[index] = high;
}

/* kern_optim_step() element by element. */
void kern_optim_step_ref(const struct kern_optim_run *run, const struct kern_optim_scalars *scalars)
{
	for (uint64_t i = 0; i < run->element_count; i++) {
		float g = reduced_gradient(run, scalars, i) * scalars->unscale * scalars->clip;
		float p = param_load(run, i);

		if (scalars->optimizer == ZI_OPTIMIZER_SGD)
			p = sgd_element(scalars, p, g, &run->exp_avg[i]);
		else
			p = adam_element(scalars, p, g, &run->exp_avg[i], &run->exp_avg_sq[i]);
		param_store(run, i, p);
	}
}

/* kern_optim_step_hashed() of this table: one after the other. */
void kern_optim_step_hashed_ref(const struct kern_optim_run *run,
                                const struct kern_optim_scalars *scalars,
                                struct kern_optim_hashes *ret_hashes)
{
	optim_apart(run, scalars, kern_optim_step_ref, kern_hash_ref, ret_hashes);
}
