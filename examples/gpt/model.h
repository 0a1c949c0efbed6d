/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The architecture: GPT-2 over bytes, as a table of units and parameters. The table is what zinf is
 * told (names, shapes, units) and what forward and backward index into; no other place knows sizes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "examples/gpt/problem.h"

#define GPT_VOCAB      256u  /* a token is a byte */
#define GPT_UNIT_ALIGN 4096u /* elements: units are padded to this (docs/ARITHMETIC.md, Layout) */
#define GPT_NAME_BYTES 32u
/* The most parameters of one unit: a block's, below. */
#define GPT_UNIT_PARAMS_MAX 12u

struct gpt_config {
	uint32_t layer_count;
	uint32_t head_count;
	uint32_t channel_count;  /* d_model, a multiple of head_count */
	uint32_t sequence_count; /* tokens of a sequence */
	uint32_t batch_count;    /* sequences of a micro-batch of one rank */
};

/* Units in order: the embeddings (the head is tied to wte), the blocks, the last layer norm. */
enum { GPT_UNIT_EMBED = 0, GPT_UNIT_BLOCK_0 = 1 };

/* Parameters of a unit, in order. C: channels, V: vocabulary, T: sequence. Row-major. */
enum { GPT_WTE /* (V, C) */, GPT_WPE /* (T, C) */ };
enum {
	GPT_LN1_WEIGHT, /* (C,) */
	GPT_LN1_BIAS,
	GPT_QKV_WEIGHT, /* (3C, C) */
	GPT_QKV_BIAS,   /* (3C,) */
	GPT_ATT_WEIGHT, /* (C, C) */
	GPT_ATT_BIAS,
	GPT_LN2_WEIGHT,
	GPT_LN2_BIAS,
	GPT_FC_WEIGHT,  /* (4C, C) */
	GPT_FC_BIAS,    /* (4C,) */
	GPT_MLP_WEIGHT, /* (C, 4C) */
	GPT_MLP_BIAS,
};
enum { GPT_LNF_WEIGHT, GPT_LNF_BIAS };

/* How a parameter begins (GPT-2): normal with this deviation, or a constant when it is 0. */
struct gpt_param {
	char name[GPT_NAME_BYTES];
	uint32_t unit;
	uint32_t dim_count;
	uint64_t shape[2];
	uint64_t element_count;
	uint64_t element_index; /* of its first element, in the unit */
	double deviation;
	float constant;
};

struct gpt_unit {
	char name[GPT_NAME_BYTES];
	uint32_t param_index; /* its first parameter */
	uint32_t param_count;
	uint64_t element_count;
	uint64_t padded_count;
	uint64_t global_index; /* of its first element; counts padding */
};

struct gpt_model {
	struct gpt_config config;
	uint32_t unit_count;
	uint32_t param_count;
	uint64_t element_count; /* without padding */
	uint64_t padded_count;
	struct gpt_unit *units;   /* (unit_count,) */
	struct gpt_param *params; /* (param_count,) */
};

int gpt_model_init(struct gpt_model *model, const struct gpt_config *config,
                   struct gpt_problem *problem);
void gpt_model_deinit(struct gpt_model *model);
void gpt_model_first_values(const struct gpt_model *model, uint32_t param, uint64_t seed,
                            float *ret_values);

static inline uint32_t gpt_model_final_unit(const struct gpt_model *model)
{
	return model->unit_count - 1;
}
