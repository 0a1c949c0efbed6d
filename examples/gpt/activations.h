/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What forward keeps for backward, and backward's scratch. One micro-batch; the lanes of a process
 * use it one after the other. N = batch * sequence, B, T, C, H, V as in layers.h.
 */
#pragma once

#include <stdint.h>

#include "examples/gpt/model.h"
#include "examples/gpt/units.h"

struct gpt_block_activations {
	float *ln1;       /* (N, C) */
	float *ln1_stats; /* (N, 2) */
	float *qkv;       /* (N, 3C) */
	float *att;       /* (B, H, T, T) */
	float *heads;     /* (N, C) */
	float *middle;    /* (N, C), the residual stream between attention and MLP */
	float *ln2;       /* (N, C) */
	float *ln2_stats; /* (N, 2) */
	float *fc;        /* (N, 4C), before GELU */
	float *gelu;      /* (N, 4C) */
	float *output;    /* (N, C), the residual stream after the block */
};

struct gpt_activations {
	uint64_t row_count;                   /* N */
	float *embedded;                      /* (N, C) */
	struct gpt_block_activations *blocks; /* (layer_count,) */
	float *lnf;                           /* (N, C) */
	float *lnf_stats;                     /* (N, 2) */
	float *logits;                        /* (N, V); probabilities after the loss */
	float *residual_grad;                 /* (N, C) */
	float *narrow_grad;                   /* (N, C) */
	float *wide_grad;                     /* (N, 4C), and (N, 3C) for Q, K, V */
	float *att_grad;                      /* (T, T) */
	float *arena;                         /* all of the above */
};

int gpt_activations_init(struct gpt_activations *acts, const struct gpt_model *model);
void gpt_activations_deinit(struct gpt_activations *acts);

int gpt_forward(struct gpt_units *units, struct gpt_activations *acts, const uint8_t *inputs,
                const uint8_t *targets, double *ret_loss);
int gpt_backward(struct gpt_units *units, struct gpt_activations *acts, const uint8_t *inputs,
                 const uint8_t *targets);
