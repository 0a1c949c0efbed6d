/* SPDX-License-Identifier: Apache-2.0 */
/* A block of GPT-2: layer norm, attention, layer norm, MLP, each half added to the residual
 * stream. */
#include "examples/gpt/block.h"

#include "examples/gpt/activations.h"

static uint64_t row_count(const struct gpt_config *config)
{
	return (uint64_t)config->batch_count * config->sequence_count;
}

static struct gpt_attention_shape shape_of(const struct gpt_config *config, enum zinf_dtype dtype)
{
	return (struct gpt_attention_shape){
		.batch_count = config->batch_count,
		.sequence_count = config->sequence_count,
		.channel_count = config->channel_count,
		.head_count = config->head_count,
		.is_bf16 = dtype == ZINF_BF16,
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

/* out = in · weightᵀ + bias. @weight: its index; its bias is the next one. */
static void forward(const struct gpt_units *units, const struct gpt_unit_params *params,
                    unsigned weight, uint64_t inputs, uint64_t outputs, const float *in,
                    float *ret_out)
{
	struct gpt_layers *layers = units->layers;
	const struct gpt_linear linear = { row_count(&units->model->config), inputs, outputs,
		                           params->dtype };

	layers->ops->linear_forward(layers, &linear, in, params->at[weight], params->at[weight + 1],
	                            ret_out);
}

static void backward(const struct gpt_units *units, const struct gpt_unit_params *params,
                     const struct gpt_unit_grads *grads, unsigned weight, uint64_t inputs,
                     uint64_t outputs, const float *in, const float *dout, float *ret_din)
{
	struct gpt_layers *layers = units->layers;
	const struct gpt_linear linear = { row_count(&units->model->config), inputs, outputs,
		                           params->dtype };
	const struct gpt_linear_grads targets = {
		.in = ret_din,
		.weight = grads->at[weight],
		.bias = grads->at[weight + 1],
		.weight_dtype = grads->matrix_dtype,
		.keeps_weight = grads->keeps_matrices,
		.keeps_bias = grads->keeps_vectors,
	};

	layers->ops->linear_backward(layers, &linear, in, params->at[weight], dout, &targets);
}

/* @weight: of the layer norm; its bias is the next one. */
static struct gpt_layernorm norm_of(const struct gpt_units *units,
                                    const struct gpt_unit_params *params, unsigned weight,
                                    const float *in, float *stats)
{
	const struct gpt_config *config = &units->model->config;

	return (struct gpt_layernorm){ .rows = row_count(config),
		                       .channels = config->channel_count,
		                       .in = in,
		                       .weight = params->at[weight],
		                       .bias = params->at[weight + 1],
		                       .stats = stats };
}

/* The same bits whenever it is made again of the same input and parameters. */
void gpt_block_forward(const struct gpt_units *units, const struct gpt_unit_params *params,
                       const struct gpt_block_place *place)
{
	const struct gpt_config *config = &units->model->config;
	const struct gpt_attention_shape shape = shape_of(config, params->dtype);
	struct gpt_layers *layers = units->layers;
	const struct gpt_block_arrays *arrays = &place->arrays;
	uint64_t n = row_count(config), c = config->channel_count;
	const struct gpt_layernorm ln1 =
		norm_of(units, params, GPT_LN1_WEIGHT, place->input, arrays->ln1_stats);
	const struct gpt_layernorm ln2 =
		norm_of(units, params, GPT_LN2_WEIGHT, arrays->middle, arrays->ln2_stats);

	layers->ops->layernorm_forward(layers, &ln1, arrays->ln1);
	/* (N, C) → (N, 3C) */
	forward(units, params, GPT_QKV_WEIGHT, c, 3 * c, arrays->ln1, arrays->qkv);
	layers->ops->attention_forward(layers, &shape, arrays->qkv, arrays->att, arrays->heads);
	forward(units, params, GPT_ATT_WEIGHT, c, c, arrays->heads, arrays->middle);
	layers->ops->add(layers, n * c, place->input, arrays->middle, arrays->middle);

	layers->ops->layernorm_forward(layers, &ln2, arrays->ln2);
	/* (N, C) → (N, 4C) → (N, C) */
	forward(units, params, GPT_FC_WEIGHT, c, 4 * c, arrays->ln2, arrays->fc);
	layers->ops->gelu_forward(layers, n * 4 * c, arrays->fc, arrays->gelu);
	if (!place->output)
		return;
	forward(units, params, GPT_MLP_WEIGHT, 4 * c, c, arrays->gelu, place->output);
	layers->ops->add(layers, n * c, arrays->middle, place->output, place->output);
}

/* The MLP half: residual_grad (N, C) is the gradient of the block's output on entry, of
 * arrays->middle on return. */
static void mlp_backward(const struct gpt_units *units, const struct gpt_unit_params *params,
                         const struct gpt_unit_grads *grads, const struct gpt_block_arrays *arrays,
                         struct gpt_activations *acts)
{
	struct gpt_layers *layers = units->layers;
	uint64_t n = acts->row_count, c = units->model->config.channel_count;
	const struct gpt_layernorm ln2 =
		norm_of(units, params, GPT_LN2_WEIGHT, arrays->middle, arrays->ln2_stats);

	/* (N, C) → (N, 4C) */
	backward(units, params, grads, GPT_MLP_WEIGHT, 4 * c, c, arrays->gelu, acts->residual_grad,
	         acts->wide_grad);
	layers->ops->gelu_backward(layers, n * 4 * c, arrays->fc, acts->wide_grad, acts->wide_grad);
	/* (N, 4C) → (N, C) */
	backward(units, params, grads, GPT_FC_WEIGHT, c, 4 * c, arrays->ln2, acts->wide_grad,
	         acts->narrow_grad);
	layers->ops->layernorm_backward(layers, &ln2, acts->narrow_grad, grads->keeps_vectors,
	                                acts->residual_grad, grads->at[GPT_LN2_WEIGHT],
	                                grads->at[GPT_LN2_BIAS]);
}

/* The attention half: from the gradient of arrays->middle to that of the block's input (N, C). */
static void attention_backward(const struct gpt_units *units, const struct gpt_unit_params *params,
                               const struct gpt_unit_grads *grads, const float *input,
                               const struct gpt_block_arrays *arrays, struct gpt_activations *acts)
{
	const struct gpt_config *config = &units->model->config;
	const struct gpt_attention_shape shape = shape_of(config, params->dtype);
	struct gpt_layers *layers = units->layers;
	uint64_t c = config->channel_count;
	const struct gpt_layernorm ln1 =
		norm_of(units, params, GPT_LN1_WEIGHT, input, arrays->ln1_stats);

	backward(units, params, grads, GPT_ATT_WEIGHT, c, c, arrays->heads, acts->residual_grad,
	         acts->narrow_grad);
	layers->ops->attention_backward(layers, &shape, arrays->qkv, arrays->att, acts->narrow_grad,
	                                acts->wide_grad);
	/* (N, 3C) → (N, C) */
	backward(units, params, grads, GPT_QKV_WEIGHT, c, 3 * c, arrays->ln1, acts->wide_grad,
	         acts->narrow_grad);
	layers->ops->layernorm_backward(layers, &ln1, acts->narrow_grad, grads->keeps_vectors,
	                                acts->residual_grad, grads->at[GPT_LN1_WEIGHT],
	                                grads->at[GPT_LN1_BIAS]);
}

/* acts->residual_grad: from the gradient of the output to that of the input, in place. */
void gpt_block_backward(const struct gpt_units *units, const struct gpt_unit_params *params,
                        const struct gpt_unit_grads *grads, const struct gpt_block_place *place,
                        struct gpt_activations *acts)
{
	mlp_backward(units, params, grads, &place->arrays, acts);
	attention_backward(units, params, grads, place->input, &place->arrays, acts);
}
