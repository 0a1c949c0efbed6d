/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fused step: N ranks' gradients → tree sum → average, rounded → unscale, clip → AdamW, Adam,
 * SGD, Adagrad or Lion → new parameter, in one pass over memory (docs/ARITHMETIC.md, "Optimizers").
 * Floor 1.
 */
#pragma once

#include "common/base/types.h"

/* Hyperparameters as the trainer gives them, f64. */
struct kern_hyper {
	enum zi_optimizer optimizer;
	double lr;
	double beta1; /* SGD: momentum */
	double beta2; /* SGD: dampening */
	double eps;
	double weight_decay;
	bool is_nesterov;
	double beta1_power; /* beta1^t and beta2^t of *this* step (already advanced) */
	double beta2_power;
	bool is_first; /* SGD: no update was made before */
	float average;
	float unscale;
	float clip;
	double lr_decay;             /* Adagrad */
	uint64_t update_count;       /* Adagrad: updates before this one */
	bool has_no_bias_correction; /* Adam, AdamW: lr as it is, and v */
};

/* The fp32 scalars of one step, rounded once; made by kern_optim_prepare(). */
struct kern_optim_scalars {
	enum zi_optimizer optimizer;
	bool is_nesterov;
	bool is_first;
	float average, unscale, clip;
	float decay, weight_decay, eps;
	float b1, one_minus_b1, b2, one_minus_b2;
	float step_size; /* what p moves by: of Adam, Adagrad corrected; SGD, Lion: lr */
	float root_bc2;
};

void kern_optim_prepare(struct kern_optim_scalars *ret_scalars, const struct kern_hyper *hyper);

/* One run of elements (at most a tile in the daemon; any multiple of 16 elements here). */
struct kern_optim_run {
	void *param;              /* (n,) param_dtype, updated in place */
	void *param_copy;         /* (n,) param_dtype: a second place the new parameter is written
				     * to, or NULL */
	void *remainder;          /* (n,) what param lacks of the fp32 master, updated in place: of
				     bf16 int16_t, of f16 int32_t, of f32 NULL */
	float *exp_avg;           /* (n,), updated in place. SGD, Lion: momentum; Adagrad: sum of
				     * squares */
	float *exp_avg_sq;        /* (n,), updated in place. Adam, AdamW; else NULL */
	const void *const *grads; /* rank_count pointers to (n,) grad_dtype */
	uint32_t rank_count;      /* 1 with is_reduced */
	bool is_reduced;          /* grads[0] is already the reduced gradient: no average */
	uint64_t element_count;
	enum zi_dtype param_dtype;
	enum zi_dtype grad_dtype; /* param_dtype; or one of them F32, the other BF16, or param F16
				     and this F32 */
};

void kern_optim_step(const struct kern_optim_run *run, const struct kern_optim_scalars *scalars);
