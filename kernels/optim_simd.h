/* SPDX-License-Identifier: Apache-2.0 */
/* Private to kernels/: the fused step in vectors; see simd.h, optim.c, optim_ref.c. Floor 1. */
#pragma once

#include "kernels/simd.h"

/* The scalars of a step in every lane. */
struct optim_lanes {
	vec average, unscale, clip, decay, weight_decay, eps;
	vec b1, one_minus_b1, b2, one_minus_b2, minus_step, root_bc2;
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
	}
	return vec_mul(vec_mul(g, s->unscale), s->clip);
}

VEC_INLINE vec optim_adam_vec(const struct optim_lanes *s, struct optim_shape shape, vec p, vec g,
                              float *exp_avg, float *exp_avg_sq)
{
	vec m = vec_fetch(exp_avg, 0, ZI_DTYPE_F32);
	vec v = vec_fetch(exp_avg_sq, 0, ZI_DTYPE_F32);
	vec d;

	if (shape.optimizer == ZI_OPTIMIZER_ADAMW)
		p = vec_mul(p, s->decay);
	else
		g = vec_fma(s->weight_decay, p, g);
	m = vec_fma(s->one_minus_b1, g, vec_mul(s->b1, m));
	v = vec_fma(vec_mul(s->one_minus_b2, g), g, vec_mul(s->b2, v));
	d = vec_add(vec_div(vec_sqrt(v), s->root_bc2), s->eps);
	vec_store_f32(exp_avg, vec_canonical(m));
	vec_store_f32(exp_avg_sq, vec_canonical(v));
	return vec_fma(s->minus_step, vec_div(m, d), p);
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

VEC_INLINE vec optim_param_load(const struct kern_optim_run *run, struct optim_shape shape,
                                uint64_t index)
{
	vec_prefetch(run->param, index, shape.param_dtype);
	if (shape.param_dtype == ZI_DTYPE_F32)
		return vec_load_f32((const float *)run->param + index);
	vec_prefetch(run->remainder, index, ZI_DTYPE_BF16);
	return vec_join((const uint16_t *)run->param + index, run->remainder + index);
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
	vec_split_param((uint16_t *)run->param + index, p);
	vec_split_remainder(run->remainder + index, p);
	if (run->param_copy)
		vec_split_param((uint16_t *)run->param_copy + index, p);
}

/* One specialisation. */
VEC_INLINE void optim_loop(const struct kern_optim_run *whole_run,
                           const struct kern_optim_scalars *scalars, struct optim_shape shape)
{
	struct kern_optim_run run = *whole_run; /* no store of the loop can touch it */
	const void *held[VEC_RANKS_HELD];
	const struct optim_lanes lanes = optim_lanes(scalars);

	run.grads = vec_sources_hold(held, run.grads, shape.ranks);
	for (uint64_t i = 0; i < run.element_count; i += VEC_LANES) {
		vec g = optim_gradient(&run, &lanes, shape, i);
		vec p = optim_param_load(&run, shape, i);

		if (shape.optimizer == ZI_OPTIMIZER_SGD)
			p = optim_sgd_vec(&lanes, shape, p, g, run.exp_avg + i);
		else
			p = optim_adam_vec(&lanes, shape, p, g, run.exp_avg + i,
			                   run.exp_avg_sq + i);
		optim_param_store(&run, shape, i, p);
	}
}

VEC_INLINE void optim_ranks(const struct kern_optim_run *run,
                            const struct kern_optim_scalars *scalars, struct optim_shape shape)
{
	struct optim_shape one = shape, two = shape, four = shape, any = shape, reduced = shape;

	one.ranks = 1;
	two.ranks = 2;
	four.ranks = 4;
	any.ranks = VEC_RANKS_ANY;
	reduced.ranks = 1;
	reduced.is_reduced = true;
	if (run->is_reduced)
		optim_loop(run, scalars, reduced);
	else if (run->rank_count == 1)
		optim_loop(run, scalars, one);
	else if (run->rank_count == 2)
		optim_loop(run, scalars, two);
	else if (run->rank_count == 4)
		optim_loop(run, scalars, four);
	else
		optim_loop(run, scalars, any);
}

VEC_INLINE void optim_dtypes(const struct kern_optim_run *run,
                             const struct kern_optim_scalars *scalars, struct optim_shape shape)
{
	struct optim_shape bf16 = shape, f32 = shape, bf16_f32 = shape, f32_bf16 = shape;

	bf16.param_dtype = bf16.grad_dtype = ZI_DTYPE_BF16;
	f32.param_dtype = f32.grad_dtype = ZI_DTYPE_F32;
	bf16_f32.param_dtype = f32_bf16.grad_dtype = ZI_DTYPE_BF16;
	bf16_f32.grad_dtype = f32_bf16.param_dtype = ZI_DTYPE_F32;
	if (run->param_dtype == run->grad_dtype && run->param_dtype == ZI_DTYPE_BF16)
		optim_ranks(run, scalars, bf16);
	else if (run->param_dtype == run->grad_dtype)
		optim_ranks(run, scalars, f32);
	else if (run->param_dtype == ZI_DTYPE_BF16)
		optim_ranks(run, scalars, bf16_f32);
	else
		optim_ranks(run, scalars, f32_bf16);
}

/* One function per optimizer keeps the compiler's work in bounds. */
#define OPTIM_DEFINE(name, ...)                                                             \
	static __attribute__((noinline)) void optim_##name(                                 \
		const struct kern_optim_run *run, const struct kern_optim_scalars *scalars) \
	{                                                                                   \
		optim_dtypes(run, scalars, (struct optim_shape){ __VA_ARGS__ });            \
	}

OPTIM_DEFINE(adamw, .optimizer = ZI_OPTIMIZER_ADAMW)
OPTIM_DEFINE(adam, .optimizer = ZI_OPTIMIZER_ADAM)
OPTIM_DEFINE(sgd, .optimizer = ZI_OPTIMIZER_SGD)
OPTIM_DEFINE(sgd_nesterov, .optimizer = ZI_OPTIMIZER_SGD, .is_nesterov = true)
OPTIM_DEFINE(sgd_first, .optimizer = ZI_OPTIMIZER_SGD, .is_first = true)
OPTIM_DEFINE(sgd_first_nesterov, .optimizer = ZI_OPTIMIZER_SGD, .is_first = true,
             .is_nesterov = true)

void VEC_NAME(kern_optim_step)(const struct kern_optim_run *run,
                               const struct kern_optim_scalars *scalars)
{
	if (scalars->optimizer == ZI_OPTIMIZER_ADAMW)
		optim_adamw(run, scalars);
	else if (scalars->optimizer == ZI_OPTIMIZER_ADAM)
		optim_adam(run, scalars);
	else if (scalars->is_first && scalars->is_nesterov)
		optim_sgd_first_nesterov(run, scalars);
	else if (scalars->is_first)
		optim_sgd_first(run, scalars);
	else if (scalars->is_nesterov)
		optim_sgd_nesterov(run, scalars);
	else
		optim_sgd(run, scalars);
}
