/* SPDX-License-Identifier: Apache-2.0 */
/* A block of GPT-2: layer norm, attention, layer norm, MLP, each half added to the residual
 * stream. */
#include "examples/gpt/block.h"

#include "examples/gpt/activations.h"
#include "examples/gpt/layers.h"

static uint64_t row_count(const struct gpt_config *config)
{
	return (uint64_t)config->batch_count * config->sequence_count;
}

static struct gpt_attention_shape shape_of(const struct gpt_config *config)
{
	return (struct gpt_attention_shape){
		.batch_count = config->batch_count,
		.sequence_count = config->sequence_count,
		.channel_count = config->channel_count,
		.head_count = config->head_count,
	};
}

/* The arrays of one block, in one run of the cutter's. */
void gpt_block_cut(const struct gpt_config *config, struct gpt_cutter *cutter,
                   struct gpt_block_arrays *ret_arrays)
{
	uint64_t n = row_count(config), c = config->channel_count, t = config->sequence_count;

	ret_arrays->ln1 = gpt_cut(cutter, n * c);
	ret_arrays->ln1_stats = gpt_cut(cutter, n * 2);
	ret_arrays->qkv = gpt_cut(cutter, n * 3 * c);
	ret_arrays->att = gpt_cut(cutter, config->batch_count * config->head_count * t * t);
	ret_arrays->heads = gpt_cut(cutter, n * c);
	ret_arrays->middle = gpt_cut(cutter, n * c);
	ret_arrays->ln2 = gpt_cut(cutter, n * c);
	ret_arrays->ln2_stats = gpt_cut(cutter, n * 2);
	ret_arrays->fc = gpt_cut(cutter, n * 4 * c);
	ret_arrays->gelu = gpt_cut(cutter, n * 4 * c);
}

/* The same bits whenever it is made again of the same input and parameters. */
void gpt_block_forward(const struct gpt_config *config, const float *const *params,
                       const struct gpt_block_place *place)
{
	const struct gpt_attention_shape shape = shape_of(config);
	const struct gpt_block_arrays *arrays = &place->arrays;
	uint64_t n = row_count(config), c = config->channel_count;

	gpt_layernorm_forward(n, c, place->input, params[GPT_LN1_WEIGHT], params[GPT_LN1_BIAS],
	                      arrays->ln1, arrays->ln1_stats);
	/* (N, C) → (N, 3C) */
	gpt_linear_forward(n, c, 3 * c, arrays->ln1, params[GPT_QKV_WEIGHT], params[GPT_QKV_BIAS],
	                   arrays->qkv);
	gpt_attention_forward(&shape, arrays->qkv, arrays->att, arrays->heads);
	gpt_linear_forward(n, c, c, arrays->heads, params[GPT_ATT_WEIGHT], params[GPT_ATT_BIAS],
	                   arrays->middle);
	gpt_add(n * c, place->input, arrays->middle, arrays->middle);

	gpt_layernorm_forward(n, c, arrays->middle, params[GPT_LN2_WEIGHT], params[GPT_LN2_BIAS],
	                      arrays->ln2, arrays->ln2_stats);
	/* (N, C) → (N, 4C) → (N, C) */
	gpt_linear_forward(n, c, 4 * c, arrays->ln2, params[GPT_FC_WEIGHT], params[GPT_FC_BIAS],
	                   arrays->fc);
	gpt_gelu_forward(n * 4 * c, arrays->fc, arrays->gelu);
	if (!place->output)
		return;
	gpt_linear_forward(n, 4 * c, c, arrays->gelu, params[GPT_MLP_WEIGHT], params[GPT_MLP_BIAS],
	                   place->output);
	gpt_add(n * c, arrays->middle, place->output, place->output);
}

/* The MLP half: residual_grad (N, C) is the gradient of the block's output on entry, of
 * arrays->middle on return. */
static void mlp_backward(uint64_t n, uint64_t c, const float *const *params, float *const *grads,
                         bool keep, const struct gpt_block_arrays *arrays,
                         struct gpt_activations *acts)
{
	/* (N, C) → (N, 4C) */
	gpt_linear_backward(n, 4 * c, c, arrays->gelu, params[GPT_MLP_WEIGHT], acts->residual_grad,
	                    keep, acts->wide_grad, grads[GPT_MLP_WEIGHT], grads[GPT_MLP_BIAS]);
	gpt_gelu_backward(n * 4 * c, arrays->fc, acts->wide_grad, acts->wide_grad);
	/* (N, 4C) → (N, C) */
	gpt_linear_backward(n, c, 4 * c, arrays->ln2, params[GPT_FC_WEIGHT], acts->wide_grad, keep,
	                    acts->narrow_grad, grads[GPT_FC_WEIGHT], grads[GPT_FC_BIAS]);
	gpt_layernorm_backward(n, c, arrays->middle, params[GPT_LN2_WEIGHT], arrays->ln2_stats,
	                       acts->narrow_grad, keep, acts->residual_grad, grads[GPT_LN2_WEIGHT],
	                       grads[GPT_LN2_BIAS]);
}

/* The attention half: from the gradient of arrays->middle to that of the block's input (N, C). */
static void attention_backward(const struct gpt_config *config, uint64_t n,
                               const float *const *params, float *const *grads, bool keep,
                               const float *input, const struct gpt_block_arrays *arrays,
                               struct gpt_activations *acts)
{
	const struct gpt_attention_shape shape = shape_of(config);
	uint64_t c = config->channel_count;

	gpt_linear_backward(n, c, c, arrays->heads, params[GPT_ATT_WEIGHT], acts->residual_grad,
	                    keep, acts->narrow_grad, grads[GPT_ATT_WEIGHT], grads[GPT_ATT_BIAS]);
	gpt_attention_backward(&shape, arrays->qkv, arrays->att, acts->narrow_grad, acts->att_grad,
	                       acts->wide_grad);
	/* (N, 3C) → (N, C) */
	gpt_linear_backward(n, c, 3 * c, arrays->ln1, params[GPT_QKV_WEIGHT], acts->wide_grad, keep,
	                    acts->narrow_grad, grads[GPT_QKV_WEIGHT], grads[GPT_QKV_BIAS]);
	gpt_layernorm_backward(n, c, input, params[GPT_LN1_WEIGHT], arrays->ln1_stats,
	                       acts->narrow_grad, keep, acts->residual_grad, grads[GPT_LN1_WEIGHT],
	                       grads[GPT_LN1_BIAS]);
}

/* acts->residual_grad: from the gradient of the output to that of the input, in place. */
void gpt_block_backward(const struct gpt_config *config, const float *const *params,
                        float *const *grads, bool keep, const struct gpt_block_place *place,
                        struct gpt_activations *acts)
{
	mlp_backward(acts->row_count, config->channel_count, params, grads, keep, &place->arrays,
	             acts);
	attention_backward(config, acts->row_count, params, grads, keep, place->input,
	                   &place->arrays, acts);
}
