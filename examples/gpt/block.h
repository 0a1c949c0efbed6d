/* SPDX-License-Identifier: Apache-2.0 */
/* One block: its arrays of a micro-batch, forward and backward, over parameters that somebody else
 * has opened. N = batch * sequence, B, T, C, H as in layers.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "examples/gpt/cutter.h"
#include "examples/gpt/model.h"
#include "examples/gpt/units.h"

struct gpt_activations;

/* What a block's forward leaves for its backward, beside its input. */
struct gpt_block_arrays {
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
};

/* Where a block reads and writes. */
struct gpt_block_place {
	float *input;  /* (N, C), the residual stream before the block */
	float *output; /* (N, C), behind it; may be @input; NULL: not wanted */
	struct gpt_block_arrays arrays;
};

void gpt_block_cut(const struct gpt_config *config, struct gpt_cutter *cutter,
                   struct gpt_block_arrays *ret_arrays);
void gpt_block_forward(const struct gpt_units *units, const struct gpt_unit_params *params,
                       const struct gpt_block_place *place);
void gpt_block_backward(const struct gpt_units *units, const struct gpt_unit_params *params,
                        const struct gpt_unit_grads *grads, const struct gpt_block_place *place,
                        struct gpt_activations *acts);
