/* SPDX-License-Identifier: Apache-2.0 */
/* Private to kernels/: one vector of the fused step; see simd.h, optim.c, optim_ref.c. Floor 1. */
#pragma once

#include "kernels/simd.h"

/* The scalars of a step in every lane. */
struct optim_lanes {
	vec average, unscale, clip, decay, weight_decay, eps;
	vec b1, one_minus_b1, b2, one_minus_b2, step, minus_step, root_bc2;
};

/* What a loop is specialised on: constants wherever it is inlined. */
struct optim_shape {
	enum zi_optimizer optimizer;
	enum zi_dtype param_dtype, grad_dtype;
	uint32_t ranks; /* 1, 2, 4, VEC_RANKS_ANY */
	bool is_reduced;
	bool is_first, is_nesterov; /* SGD */
};

VEC_INLINE struct optim_lanes optim_lanes(const struct kern_optim_scalars *s)
{
	return (struct optim_lanes){
		.average = vec_set(s->average),
		.unscale = vec_set(s->unscale),
		.clip = vec_set(s->clip),
		.decay = vec_set(s->decay),
		.weight_decay = vec_set(s->weight_decay),
		.eps = vec_set(s->eps),
		.b1 = vec_set(s->b1),
		.one_minus_b1 = vec_set(s->one_minus_b1),
		.b2 = vec_set(s->b2),
		.one_minus_b2 = vec_set(s->one_minus_b2),
		.step = vec_set(s->step_size),
		.minus_step = vec_set(-s->step_size),
		.root_bc2 = vec_set(s->root_bc2),
	};
}

VEC_INLINE vec optim_gradient(const struct kern_optim_run *run, const struct optim_lanes *s,
                              struct optim_shape shape, uint64_t index)
{
	vec g = vec_tree(run->grads, shape.ranks, run->rank_count, index, shape.grad_dtype);

	if (!shape.is_reduced) {
		g = vec_mul(g, s->average);
		if (shape.grad_dtype == ZI_DTYPE_BF16)
			g = vec_round_bf16(g);
		else if (shape.grad_dtype == ZI_DTYPE_F16)
			g = vec_round_f16(g);
	}
	return vec_mul(vec_mul(g, s->unscale), s->clip);
}

/* Return: the new parameter; the moments are updated. */
VEC_INLINE vec optim_adam_vec(const struct optim_lanes *s, struct optim_shape shape, vec p, vec g,
                              vec *exp_avg, vec *exp_avg_sq)
{
	vec m, v, d;

	if (shape.optimizer == ZI_OPTIMIZER_ADAMW)
		p = vec_mul(p, s->decay);
	else
		g = vec_fma(s->weight_decay, p, g);
	m = vec_fma(s->one_minus_b1, g, vec_mul(s->b1, *exp_avg));
	v = vec_fma(vec_mul(s->one_minus_b2, g), g, vec_mul(s->b2, *exp_avg_sq));
	d = vec_add(vec_div(vec_sqrt(v), s->root_bc2), s->eps);
	*exp_avg = vec_canonical(m);
	*exp_avg_sq = vec_canonical(v);
	return vec_fma(s->minus_step, vec_div(m, d), p);
}

/* Where the moments lie: loaded, updated, stored. */
VEC_INLINE vec optim_adam_at(const struct kern_optim_run *run, const struct optim_lanes *s,
                             struct optim_shape shape, uint64_t index, vec p, vec g)
{
	vec m = vec_fetch(run->exp_avg, index, ZI_DTYPE_F32);
	vec v = vec_fetch(run->exp_avg_sq, index, ZI_DTYPE_F32);

	p = optim_adam_vec(s, shape, p, g, &m, &v);
	vec_store_f32(run->exp_avg + index, m);
	vec_store_f32(run->exp_avg_sq + index, v);
	return p;
}

VEC_INLINE vec optim_sgd_vec(const struct optim_lanes *s, struct optim_shape shape, vec p, vec g,
                             float *momentum)
{
	vec m, u;

	g = vec_fma(s->weight_decay, p, g);
	m = g;
	if (!shape.is_first)
		m = vec_fma(s->one_minus_b2, g,
		            vec_mul(s->b1, vec_fetch(momentum, 0, ZI_DTYPE_F32)));
	u = shape.is_nesterov ? vec_fma(s->b1, m, g) : m;
	vec_store_f32(momentum, vec_canonical(m));
	return vec_fma(s->minus_step, u, p);
}

VEC_INLINE vec optim_adagrad_vec(const struct optim_lanes *s, vec p, vec g, float *square_sum)
{
	vec v, d;

	g = vec_fma(s->weight_decay, p, g);
	v = vec_fma(g, g, vec_fetch(square_sum, 0, ZI_DTYPE_F32));
	d = vec_add(vec_sqrt(v), s->eps);
	vec_store_f32(square_sum, vec_canonical(v));
	return vec_fma(s->minus_step, vec_div(g, d), p);
}

VEC_INLINE vec optim_lion_vec(const struct optim_lanes *s, vec p, vec g, float *momentum)
{
	vec old = vec_fetch(momentum, 0, ZI_DTYPE_F32);
	vec c = vec_fma(s->one_minus_b1, g, vec_mul(s->b1, old));
	vec m = vec_fma(s->one_minus_b2, g, vec_mul(s->b2, old));

	vec_store_f32(momentum, vec_canonical(m));
	return vec_fma(p, s->decay, vec_lion_move(c, s->minus_step, s->step));
}

VEC_INLINE vec optim_param_load(const struct kern_optim_run *run, struct optim_shape shape,
                                uint64_t index)
{
	vec_prefetch(run->param, index, shape.param_dtype);
	if (shape.param_dtype == ZI_DTYPE_F32)
		return vec_load_f32((const float *)run->param + index);
	if (shape.param_dtype == ZI_DTYPE_F16) {
		vec_prefetch(run->remainder, index, ZI_DTYPE_F32);
		return vec_join_f16((const uint16_t *)run->param + index,
		                    (const int32_t *)run->remainder + index);
	}
	vec_prefetch(run->remainder, index, ZI_DTYPE_BF16);
	return vec_join((const uint16_t *)run->param + index,
	                (const int16_t *)run->remainder + index);
}

VEC_INLINE void optim_param_store(const struct kern_optim_run *run, struct optim_shape shape,
                                  uint64_t index, vec p)
{
	p = vec_canonical(p);
	if (shape.param_dtype == ZI_DTYPE_F32) {
		vec_store_f32((float *)run->param + index, p);
		if (run->param_copy)
			vec_store_f32((float *)run->param_copy + index, p);
		return;
	}
	if (shape.param_dtype == ZI_DTYPE_F16) {
		vec_store_f16((uint16_t *)run->param + index, p);
		vec_store_f32((float *)run->remainder + index, vec_remainder_f16(p));
		if (run->param_copy)
			vec_store_f16((uint16_t *)run->param_copy + index, p);
		return;
	}
	vec_split_param((uint16_t *)run->param + index, p);
	vec_split_remainder((int16_t *)run->remainder + index, p);
	if (run->param_copy)
		vec_split_param((uint16_t *)run->param_copy + index, p);
}

/* The step of one vector of elements. */
VEC_INLINE void optim_vec(const struct kern_optim_run *run, const struct optim_lanes *lanes,
                          struct optim_shape shape, uint64_t index)
{
	vec g = optim_gradient(run, lanes, shape, index);
	vec p = optim_param_load(run, shape, index);

	if (shape.optimizer == ZI_OPTIMIZER_SGD)
		p = optim_sgd_vec(lanes, shape, p, g, run->exp_avg + index);
	else if (shape.optimizer == ZI_OPTIMIZER_ADAGRAD)
		p = optim_adagrad_vec(lanes, p, g, run->exp_avg + index);
	else if (shape.optimizer == ZI_OPTIMIZER_LION)
		p = optim_lion_vec(lanes, p, g, run->exp_avg + index);
	else
		p = optim_adam_at(run, lanes, shape, index, p, g);
	optim_param_store(run, shape, index, p);
}
