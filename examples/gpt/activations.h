/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What forward leaves for backward, and backward's scratch. One micro-batch; the lanes of a process
 * use it one after the other. N = batch * sequence, C, V as in layers.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "examples/gpt/checkpoint.h"
#include "examples/gpt/model.h"
#include "examples/gpt/units.h"

struct gpt_activations {
	uint64_t row_count;           /* N */
	struct gpt_checkpoint blocks; /* and the residual stream between them */
	float *lnf;                   /* (N, C) */
	float *lnf_stats;             /* (N, 2) */
	float *logits;                /* (N, V); probabilities after the loss */
	float *residual_grad;         /* (N, C) */
	float *narrow_grad;           /* (N, C) */
	float *wide_grad;             /* (N, 4C), and (N, 3C) for Q, K, V */
	float *arena;                 /* all of the above but the blocks' */
	struct gpt_device *device;    /* in whose memory it lies; NULL: the CPU's */
};

int gpt_activations_init(struct gpt_activations *acts, const struct gpt_args *args,
                         const struct gpt_model *model, struct gpt_backend *backend,
                         struct gpt_problem *problem);
void gpt_activations_deinit(struct gpt_activations *acts);

int gpt_logits(struct gpt_units *units, struct gpt_activations *acts, const uint8_t *inputs,
               bool is_kept);
int gpt_forward(struct gpt_units *units, struct gpt_activations *acts, const uint8_t *inputs,
                const uint8_t *targets, double *ret_loss);
int gpt_loss(struct gpt_units *units, struct gpt_activations *acts, uint64_t rows,
             const uint8_t *targets, double *ret_loss);
int gpt_backward(struct gpt_units *units, struct gpt_activations *acts, const uint8_t *inputs,
                 const uint8_t *targets);
