/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward: tokens to loss, unit by unit. A unit is open only while it computes; while it does, the
 * next one is on its way.
 */
#include <assert.h>

#include "examples/gpt/activations.h"
#include "examples/gpt/layers.h"

/* Opens a unit and asks for the one that comes after it. */
static int open_and_prefetch(struct gpt_units *units, uint32_t unit, uint32_t next,
                             const float *ret_params[static GPT_UNIT_PARAMS_MAX])
{
	int r;

	r = gpt_units_open(units, unit, ret_params);
	if (r)
		return r;
	return units->backend->ops->prefetch(units->backend, next);
}

/* input: (N, C), the residual stream. */
static void block_forward(const struct gpt_config *config, uint64_t n, const float *const *params,
                          const float *input, struct gpt_block_activations *acts)
{
	const struct gpt_attention_shape shape = {
		.batch_count = config->batch_count,
		.sequence_count = config->sequence_count,
		.channel_count = config->channel_count,
		.head_count = config->head_count,
	};
	uint64_t c = config->channel_count;

	gpt_layernorm_forward(n, c, input, params[GPT_LN1_WEIGHT], params[GPT_LN1_BIAS], acts->ln1,
	                      acts->ln1_stats);
	/* (N, C) → (N, 3C) */
	gpt_linear_forward(n, c, 3 * c, acts->ln1, params[GPT_QKV_WEIGHT], params[GPT_QKV_BIAS],
	                   acts->qkv);
	gpt_attention_forward(&shape, acts->qkv, acts->att, acts->heads);
	gpt_linear_forward(n, c, c, acts->heads, params[GPT_ATT_WEIGHT], params[GPT_ATT_BIAS],
	                   acts->middle);
	gpt_add(n * c, input, acts->middle, acts->middle);

	gpt_layernorm_forward(n, c, acts->middle, params[GPT_LN2_WEIGHT], params[GPT_LN2_BIAS],
	                      acts->ln2, acts->ln2_stats);
	/* (N, C) → (N, 4C) → (N, C) */
	gpt_linear_forward(n, c, 4 * c, acts->ln2, params[GPT_FC_WEIGHT], params[GPT_FC_BIAS],
	                   acts->fc);
	gpt_gelu_forward(n * 4 * c, acts->fc, acts->gelu);
	gpt_linear_forward(n, 4 * c, c, acts->gelu, params[GPT_MLP_WEIGHT], params[GPT_MLP_BIAS],
	                   acts->output);
	gpt_add(n * c, acts->middle, acts->output, acts->output);
}

static int blocks_forward(struct gpt_units *units, struct gpt_activations *acts)
{
	const struct gpt_config *config = &units->model->config;
	const float *params[GPT_UNIT_PARAMS_MAX];
	const float *stream = acts->embedded;
	int r;

	for (uint32_t layer = 0; layer < config->layer_count; layer++) {
		uint32_t unit = GPT_UNIT_BLOCK_0 + layer;

		r = open_and_prefetch(units, unit, unit + 1, params);
		if (r)
			return r;
		block_forward(config, acts->row_count, params, stream, &acts->blocks[layer]);
		stream = acts->blocks[layer].output;
		r = gpt_units_shut(units, unit);
		if (r)
			return r;
	}
	return 0;
}

/*
 * inputs, targets: (B, T). ret_loss: mean cross entropy of the micro-batch in nats.
 * Return: 0 or what the backend answered.
 */
int gpt_forward(struct gpt_units *units, struct gpt_activations *acts, const uint8_t *inputs,
                const uint8_t *targets, double *ret_loss)
{
	const struct gpt_config *config = &units->model->config;
	const float *params[GPT_UNIT_PARAMS_MAX];
	uint64_t n = acts->row_count, c = config->channel_count;
	uint32_t final = gpt_model_final_unit(units->model);
	const float *stream = acts->blocks[config->layer_count - 1].output;
	double loss;
	int r;

	r = open_and_prefetch(units, GPT_UNIT_EMBED, GPT_UNIT_BLOCK_0, params);
	if (r)
		return r;
	gpt_embedding_forward(config->batch_count, config->sequence_count, config->channel_count,
	                      inputs, params[GPT_WTE], params[GPT_WPE], acts->embedded);
	r = gpt_units_shut(units, GPT_UNIT_EMBED);
	if (r)
		return r;

	r = blocks_forward(units, acts);
	if (r)
		return r;

	r = open_and_prefetch(units, final, GPT_UNIT_EMBED, params);
	if (r)
		return r;
	gpt_layernorm_forward(n, c, stream, params[GPT_LNF_WEIGHT], params[GPT_LNF_BIAS], acts->lnf,
	                      acts->lnf_stats);
	r = gpt_units_shut(units, final);
	if (r)
		return r;

	/* The head is wte again: (N, C) · (V, C)ᵀ. */
	r = gpt_units_open(units, GPT_UNIT_EMBED, params);
	if (r)
		return r;
	gpt_linear_forward(n, c, GPT_VOCAB, acts->lnf, params[GPT_WTE], NULL, acts->logits);
	r = gpt_units_shut(units, GPT_UNIT_EMBED);
	if (r)
		return r;
	loss = gpt_loss_forward(n, GPT_VOCAB, targets, acts->logits);
	*ret_loss = loss;
	return 0;
}
