/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward: the same way in reverse, after gpt_forward() on the same micro-batch. The gradient of
 * the residual stream travels in acts->residual_grad, in place. A unit's gradient is handed to the
 * reduction as soon as it is complete; the embeddings' last of all, as the head begins it and the
 * embedding ends it.
 */
#include <assert.h>

#include "examples/gpt/activations.h"
#include "examples/gpt/layers.h"

/* The MLP half: residual_grad (N, C) is the gradient of block->output on entry, of block->middle on
 * return. */
static void mlp_backward(uint64_t n, uint64_t c, const float *const *params, float *const *grads,
                         bool keep, const struct gpt_block_activations *block,
                         struct gpt_activations *acts)
{
	/* (N, C) → (N, 4C) */
	gpt_linear_backward(n, 4 * c, c, block->gelu, params[GPT_MLP_WEIGHT], acts->residual_grad,
	                    keep, acts->wide_grad, grads[GPT_MLP_WEIGHT], grads[GPT_MLP_BIAS]);
	gpt_gelu_backward(n * 4 * c, block->fc, acts->wide_grad, acts->wide_grad);
	/* (N, 4C) → (N, C) */
	gpt_linear_backward(n, c, 4 * c, block->ln2, params[GPT_FC_WEIGHT], acts->wide_grad, keep,
	                    acts->narrow_grad, grads[GPT_FC_WEIGHT], grads[GPT_FC_BIAS]);
	gpt_layernorm_backward(n, c, block->middle, params[GPT_LN2_WEIGHT], block->ln2_stats,
	                       acts->narrow_grad, keep, acts->residual_grad, grads[GPT_LN2_WEIGHT],
	                       grads[GPT_LN2_BIAS]);
}

/* The attention half: from the gradient of block->middle to that of the block's input (N, C). */
static void attention_backward(const struct gpt_config *config, uint64_t n,
                               const float *const *params, float *const *grads, bool keep,
                               const float *input, const struct gpt_block_activations *block,
                               struct gpt_activations *acts)
{
	const struct gpt_attention_shape shape = {
		.batch_count = config->batch_count,
		.sequence_count = config->sequence_count,
		.channel_count = config->channel_count,
		.head_count = config->head_count,
	};
	uint64_t c = config->channel_count;

	gpt_linear_backward(n, c, c, block->heads, params[GPT_ATT_WEIGHT], acts->residual_grad,
	                    keep, acts->narrow_grad, grads[GPT_ATT_WEIGHT], grads[GPT_ATT_BIAS]);
	gpt_attention_backward(&shape, block->qkv, block->att, acts->narrow_grad, acts->att_grad,
	                       acts->wide_grad);
	/* (N, 3C) → (N, C) */
	gpt_linear_backward(n, c, 3 * c, block->ln1, params[GPT_QKV_WEIGHT], acts->wide_grad, keep,
	                    acts->narrow_grad, grads[GPT_QKV_WEIGHT], grads[GPT_QKV_BIAS]);
	gpt_layernorm_backward(n, c, input, params[GPT_LN1_WEIGHT], block->ln1_stats,
	                       acts->narrow_grad, keep, acts->residual_grad, grads[GPT_LN1_WEIGHT],
	                       grads[GPT_LN1_BIAS]);
}

static int block_backward(struct gpt_units *units, struct gpt_activations *acts, uint32_t layer)
{
	const struct gpt_config *config = &units->model->config;
	const struct gpt_block_activations *block = &acts->blocks[layer];
	const float *input = layer ? acts->blocks[layer - 1].output : acts->embedded;
	const float *params[GPT_UNIT_PARAMS_MAX];
	float *grads[GPT_UNIT_PARAMS_MAX];
	uint32_t unit = GPT_UNIT_BLOCK_0 + layer;
	bool keep;
	int r;

	r = gpt_units_open(units, unit, params);
	if (r)
		return r;
	if (layer) {
		r = units->backend->ops->prefetch(units->backend, unit - 1);
		if (r)
			return r;
	}
	r = gpt_units_grads_begin(units, unit, grads, &keep);
	if (r)
		return r;
	mlp_backward(acts->row_count, config->channel_count, params, grads, keep, block, acts);
	attention_backward(config, acts->row_count, params, grads, keep, input, block, acts);
	r = gpt_units_grads_end(units, unit);
	if (r)
		return r;
	return gpt_units_shut(units, unit);
}

static int final_backward(struct gpt_units *units, struct gpt_activations *acts)
{
	const struct gpt_config *config = &units->model->config;
	const float *stream = acts->blocks[config->layer_count - 1].output;
	uint32_t unit = gpt_model_final_unit(units->model);
	const float *params[GPT_UNIT_PARAMS_MAX];
	float *grads[GPT_UNIT_PARAMS_MAX];
	bool keep;
	int r;

	r = gpt_units_open(units, unit, params);
	if (r)
		return r;
	r = units->backend->ops->prefetch(units->backend, unit - 1);
	if (r)
		return r;
	r = gpt_units_grads_begin(units, unit, grads, &keep);
	if (r)
		return r;
	/* The layer norm adds to the gradient of its input: it begins at zero here. */
	for (uint64_t i = 0; i < acts->row_count * config->channel_count; i++)
		acts->residual_grad[i] = 0;
	gpt_layernorm_backward(acts->row_count, config->channel_count, stream,
	                       params[GPT_LNF_WEIGHT], acts->lnf_stats, acts->narrow_grad, keep,
	                       acts->residual_grad, grads[GPT_LNF_WEIGHT], grads[GPT_LNF_BIAS]);
	r = gpt_units_grads_end(units, unit);
	if (r)
		return r;
	return gpt_units_shut(units, unit);
}

/*
 * Gradients of the mean loss over the step's micro-batches: each one is scaled by 1 / (N * count).
 * inputs, targets: (B, T), as in the forward before. Destroys what forward kept.
 */
int gpt_backward(struct gpt_units *units, struct gpt_activations *acts, const uint8_t *inputs,
                 const uint8_t *targets)
{
	const struct gpt_config *config = &units->model->config;
	uint64_t n = acts->row_count, c = config->channel_count;
	float scale = (float)(1.0 / ((double)n * (double)units->place.micro_count));
	const float *params[GPT_UNIT_PARAMS_MAX];
	float *embed_grads[GPT_UNIT_PARAMS_MAX];
	bool keep;
	int r;

	gpt_loss_backward(n, GPT_VOCAB, targets, scale, acts->logits);
	r = gpt_units_open(units, GPT_UNIT_EMBED, params);
	if (r)
		return r;
	r = units->backend->ops->prefetch(units->backend, gpt_model_final_unit(units->model));
	if (r)
		return r;
	r = gpt_units_grads_begin(units, GPT_UNIT_EMBED, embed_grads, &keep);
	if (r)
		return r;
	/* (N, V) → (N, C) */
	gpt_linear_backward(n, c, GPT_VOCAB, acts->lnf, params[GPT_WTE], acts->logits, keep,
	                    acts->narrow_grad, embed_grads[GPT_WTE], NULL);
	r = gpt_units_shut(units, GPT_UNIT_EMBED);
	if (r)
		return r;

	r = final_backward(units, acts);
	if (r)
		return r;
	for (uint32_t layer = config->layer_count; layer-- > 0;) {
		r = block_backward(units, acts, layer);
		if (r)
			return r;
	}

	/* wte holds the head's share already. */
	gpt_embedding_backward(config->batch_count, config->sequence_count, config->channel_count,
	                       inputs, acts->residual_grad, true, keep, embed_grads[GPT_WTE],
	                       embed_grads[GPT_WPE]);
	return gpt_units_grads_end(units, GPT_UNIT_EMBED);
}
