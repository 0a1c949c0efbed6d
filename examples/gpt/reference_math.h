/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docs/ARITHMETIC.md once more, in plain loops and without a line of zinf's kernels: what the bits
 * of a run must be. Slow is fine here; clear is not negotiable.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "zinf/zinf.h"

/* f32 scalars of a step, from the caller's f64 ones. */
struct gpt_reference_scalars {
	float unscale, clip;
	/* Adam; of these Lion: decay and betas, Adagrad: eps and wd */
	float decay, step_size, root_bc2, b1, b2, one_m_b1, one_m_b2, eps, wd;
	/* SGD; of these Adagrad (decayed), Lion: lr */
	float mu, one_m_damp, lr;
	bool is_first, is_nesterov;
};

/* One element: f32 parameter, two words of optimizer state. Of one moment: the first. */
struct gpt_reference_state {
	float p, m, v;
};

float gpt_reference_tree(float *values, uint32_t count);
double gpt_reference_block_sum(const float *reduced, float unscale);
double gpt_reference_norm(double *block_sums, uint64_t count);
float gpt_reference_clip(double norm, double max_norm);
void gpt_reference_scalars_init(struct gpt_reference_scalars *scalars,
                                enum zinf_optimizer optimizer,
                                const struct zinf_step_options *options, double beta1_power,
                                double beta2_power, float clip, uint64_t update_count);
void gpt_reference_update(const struct gpt_reference_scalars *scalars,
                          enum zinf_optimizer optimizer, float reduced,
                          struct gpt_reference_state *state);
float gpt_reference_join(uint16_t param, int16_t remainder);
void gpt_reference_split(float master, uint16_t *ret_param, int16_t *ret_remainder);
float gpt_reference_join_f16(uint16_t param, int32_t remainder);
void gpt_reference_split_f16(float master, uint16_t *ret_param, int32_t *ret_remainder);
