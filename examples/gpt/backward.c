/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward: the same way in reverse, after gpt_forward() on the same micro-batch. The gradient of
 * the residual stream travels in acts->residual_grad, in place. A unit's gradient is handed to the
 * reduction as soon as it is complete; the embeddings' last of all, as the head begins it and the
 * embedding ends it.
 */
#include "examples/gpt/activations.h"

/* The blocks of a segment below @layer, its last one, are computed once more: their arrays hold
 * another segment's. */
static int recompute_below(struct gpt_units *units, struct gpt_checkpoint *blocks, uint32_t layer)
{
	struct gpt_unit_params params;
	int r;

	for (uint32_t l = gpt_checkpoint_head(blocks, layer); l < layer; l++) {
		struct gpt_block_place place = gpt_checkpoint_place(blocks, l);

		r = gpt_units_open(units, GPT_UNIT_BLOCK_0 + l, &params);
		if (r)
			return r;
		r = units->backend->ops->prefetch(units->backend, GPT_UNIT_BLOCK_0 + l + 1);
		if (r)
			return r;
		gpt_block_forward(units, &params, &place);
		r = gpt_units_shut(units, GPT_UNIT_BLOCK_0 + l);
		if (r)
			return r;
	}
	return 0;
}

/* The block that is computed behind the backward of @layer: the one below, or that one's segment
 * from its head on. There is one below. */
static uint32_t next_unit(const struct gpt_checkpoint *blocks, uint32_t layer)
{
	uint32_t below = layer - 1;

	return GPT_UNIT_BLOCK_0 + (gpt_checkpoint_is_missing(blocks, below)
	                                   ? gpt_checkpoint_head(blocks, below)
	                                   : below);
}

/* Makes it again first, where it has to be, with the unit open once for both. */
static int compute_block(struct gpt_units *units, struct gpt_activations *acts, uint32_t layer,
                         const struct gpt_unit_params *params, bool is_missing)
{
	struct gpt_block_place place = gpt_checkpoint_place(&acts->blocks, layer);
	struct gpt_unit_grads grads;
	int r;

	if (is_missing) {
		place.output = NULL; /* Backward of the block above has been. */
		gpt_block_forward(units, params, &place);
		gpt_checkpoint_made(&acts->blocks, layer);
	}
	if (layer) {
		r = units->backend->ops->prefetch(units->backend, next_unit(&acts->blocks, layer));
		if (r)
			return r;
	}
	r = gpt_units_grads_begin(units, GPT_UNIT_BLOCK_0 + layer, &grads);
	if (r)
		return r;
	gpt_block_backward(units, params, &grads, &place, acts);
	return gpt_units_grads_end(units, GPT_UNIT_BLOCK_0 + layer);
}

static int block_backward(struct gpt_units *units, struct gpt_activations *acts, uint32_t layer)
{
	bool is_missing = gpt_checkpoint_is_missing(&acts->blocks, layer);
	struct gpt_unit_params params;
	uint32_t unit = GPT_UNIT_BLOCK_0 + layer;
	int r;

	r = gpt_checkpoint_recall(&acts->blocks, layer);
	if (!r && is_missing)
		r = recompute_below(units, &acts->blocks, layer);
	if (!r)
		r = gpt_units_open(units, unit, &params);
	if (!r)
		r = compute_block(units, acts, layer, &params, is_missing);
	if (!r)
		r = gpt_units_shut(units, unit);
	return r ? r : gpt_checkpoint_drop(&acts->blocks, layer);
}

static int final_backward(struct gpt_units *units, struct gpt_activations *acts)
{
	const struct gpt_config *config = &units->model->config;
	uint32_t unit = gpt_model_final_unit(units->model);
	struct gpt_unit_params params;
	struct gpt_unit_grads grads;
	struct gpt_layernorm norm;
	int r;

	r = gpt_units_open(units, unit, &params);
	if (r)
		return r;
	r = units->backend->ops->prefetch(units->backend, unit - 1);
	if (r)
		return r;
	r = gpt_units_grads_begin(units, unit, &grads);
	if (r)
		return r;
	/* The layer norm adds to the gradient of its input: it begins at zero here. */
	units->layers->ops->zero(units->layers, acts->row_count * config->channel_count,
	                         acts->residual_grad);
	norm = (struct gpt_layernorm){ .rows = acts->row_count,
		                       .channels = config->channel_count,
		                       .in = acts->blocks.stream,
		                       .weight = params.at[GPT_LNF_WEIGHT],
		                       .stats = acts->lnf_stats };
	units->layers->ops->layernorm_backward(units->layers, &norm, acts->narrow_grad,
	                                       grads.keeps_vectors, acts->residual_grad,
	                                       grads.at[GPT_LNF_WEIGHT], grads.at[GPT_LNF_BIAS]);
	r = gpt_units_grads_end(units, unit);
	if (r)
		return r;
	return gpt_units_shut(units, unit);
}

/*
 * Gradients of the mean loss over the step's micro-batches: each one is scaled by 1 / (N * count),
 * and by the loss scale.
 * inputs, targets: (B, T), as in the forward before. Destroys what forward kept.
 */
int gpt_backward(struct gpt_units *units, struct gpt_activations *acts, const uint8_t *inputs,
                 const uint8_t *targets)
{
	const struct gpt_config *config = &units->model->config;
	uint64_t n = acts->row_count, c = config->channel_count;
	float scale = (float)(units->loss_scale / ((double)n * (double)units->place.micro_count));
	struct gpt_layers *layers = units->layers;
	struct gpt_unit_params params;
	struct gpt_linear_grads head;
	struct gpt_unit_grads grads;
	struct gpt_embedding embedding;
	int r;

	layers->ops->loss_backward(layers, n, GPT_VOCAB,
	                           layers->ops->tokens(layers, GPT_TOKENS_TARGETS, targets, n),
	                           scale, acts->logits);
	r = gpt_units_open(units, GPT_UNIT_EMBED, &params);
	if (r)
		return r;
	r = units->backend->ops->prefetch(units->backend, gpt_model_final_unit(units->model));
	if (r)
		return r;
	r = gpt_units_grads_begin(units, GPT_UNIT_EMBED, &grads);
	if (r)
		return r;
	/* (N, V) → (N, C) */
	head = (struct gpt_linear_grads){ .in = acts->narrow_grad,
		                          .weight = grads.at[GPT_WTE],
		                          .weight_dtype = grads.matrix_dtype,
		                          .keeps_weight = grads.keeps_matrices };
	layers->ops->linear_backward(layers, &(struct gpt_linear){ n, c, GPT_VOCAB, params.dtype },
	                             acts->lnf, params.at[GPT_WTE], acts->logits, &head);
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
	embedding = (struct gpt_embedding){ .batch_count = config->batch_count,
		                            .sequence_count = config->sequence_count,
		                            .channel_count = config->channel_count,
		                            .tokens = layers->ops->tokens(layers, GPT_TOKENS_INPUTS,
		                                                          inputs, n) };
	layers->ops->embedding_backward(layers, &embedding, acts->residual_grad, true,
	                                grads.keeps_matrices, grads.at[GPT_WTE], grads.at[GPT_WPE]);
	return gpt_units_grads_end(units, GPT_UNIT_EMBED);
}
