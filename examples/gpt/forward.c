/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward: tokens to loss, unit by unit. A unit is open only while it computes; while it does, the
 * next one is on its way.
 */
#include "examples/gpt/activations.h"

/* @tokens: (B, T) of the host. */
static const uint8_t *tokens_of(struct gpt_units *units, enum gpt_tokens which,
                                const uint8_t *tokens)
{
	const struct gpt_config *config = &units->model->config;

	return units->layers->ops->tokens(units->layers, which, tokens,
	                                  (uint64_t)config->batch_count * config->sequence_count);
}

/* Opens a unit and asks for the one that comes after it. */
static int open_and_prefetch(struct gpt_units *units, uint32_t unit, uint32_t next,
                             struct gpt_unit_params *ret_params)
{
	int r;

	r = gpt_units_open(units, unit, ret_params);
	if (r)
		return r;
	return units->backend->ops->prefetch(units->backend, next);
}

static int blocks_forward(struct gpt_units *units, struct gpt_checkpoint *blocks)
{
	const struct gpt_config *config = &units->model->config;
	struct gpt_unit_params params;
	int r;

	for (uint32_t layer = 0; layer < config->layer_count; layer++) {
		uint32_t unit = GPT_UNIT_BLOCK_0 + layer;
		struct gpt_block_place place;

		r = gpt_checkpoint_enter(blocks, layer);
		if (r)
			return r;
		r = open_and_prefetch(units, unit, unit + 1, &params);
		if (r)
			return r;
		place = gpt_checkpoint_place(blocks, layer);
		gpt_block_forward(units, &params, &place);
		r = gpt_units_shut(units, unit);
		if (r)
			return r;
		r = gpt_checkpoint_leave(blocks, layer);
		if (r)
			return r;
	}
	return 0;
}

static int embed(struct gpt_units *units, struct gpt_checkpoint *blocks, const uint8_t *inputs,
                 bool is_kept)
{
	const struct gpt_config *config = &units->model->config;
	struct gpt_unit_params params;
	struct gpt_embedding embedding;
	float *stream;
	int r;

	r = gpt_checkpoint_begin(blocks, is_kept, &stream);
	if (r)
		return r;
	r = open_and_prefetch(units, GPT_UNIT_EMBED, GPT_UNIT_BLOCK_0, &params);
	if (r)
		return r;
	embedding = (struct gpt_embedding){
		.batch_count = config->batch_count,
		.sequence_count = config->sequence_count,
		.channel_count = config->channel_count,
		.tokens = tokens_of(units, GPT_TOKENS_INPUTS, inputs),
		.wte = params.at[GPT_WTE],
		.wpe = params.at[GPT_WPE],
		.param_dtype = params.dtype,
	};
	units->layers->ops->embedding_forward(units->layers, &embedding, stream);
	return gpt_units_shut(units, GPT_UNIT_EMBED);
}

/*
 * From tokens to acts->logits. inputs: (B, T). @is_kept: gpt_backward() follows. Return: 0 or what
 * the backend answered.
 */
int gpt_logits(struct gpt_units *units, struct gpt_activations *acts, const uint8_t *inputs,
               bool is_kept)
{
	const struct gpt_config *config = &units->model->config;
	struct gpt_unit_params params;
	uint64_t n = acts->row_count, c = config->channel_count;
	uint32_t final = gpt_model_final_unit(units->model);
	struct gpt_layernorm norm;
	struct gpt_linear linear;
	int r;

	r = embed(units, &acts->blocks, inputs, is_kept);
	if (!r)
		r = blocks_forward(units, &acts->blocks);
	if (!r)
		r = gpt_checkpoint_end(&acts->blocks);
	if (r)
		return r;

	r = open_and_prefetch(units, final, GPT_UNIT_EMBED, &params);
	if (r)
		return r;
	norm = (struct gpt_layernorm){ n,
		                       c,
		                       acts->blocks.stream,
		                       params.at[GPT_LNF_WEIGHT],
		                       params.at[GPT_LNF_BIAS],
		                       acts->lnf_stats };
	units->layers->ops->layernorm_forward(units->layers, &norm, acts->lnf);
	r = gpt_units_shut(units, final);
	if (r)
		return r;

	/* The head is wte again: (N, C) · (V, C)ᵀ. */
	r = gpt_units_open(units, GPT_UNIT_EMBED, &params);
	if (r)
		return r;
	linear = (struct gpt_linear){ n, c, GPT_VOCAB, params.dtype };
	units->layers->ops->linear_forward(units->layers, &linear, acts->lnf, params.at[GPT_WTE],
	                                   NULL, acts->logits);
	return gpt_units_shut(units, GPT_UNIT_EMBED);
}

/*
 * A micro-batch that is trained on: gpt_backward() follows. inputs, targets: (B, T). ret_loss: mean
 * cross entropy in nats. Return: 0 or what the backend answered.
 */
int gpt_forward(struct gpt_units *units, struct gpt_activations *acts, const uint8_t *inputs,
                const uint8_t *targets, double *ret_loss)
{
	int r = gpt_logits(units, acts, inputs, true);

	return r ? r : gpt_loss(units, acts, acts->row_count, targets, ret_loss);
}

/* The loss of the first @rows rows of gpt_logits(). targets: (rows,). Return: 0 or what the GPU
 * answered. */
int gpt_loss(struct gpt_units *units, struct gpt_activations *acts, uint64_t rows,
             const uint8_t *targets, double *ret_loss)
{
	return units->layers->ops->loss_forward(
		units->layers, rows, GPT_VOCAB,
		units->layers->ops->tokens(units->layers, GPT_TOKENS_TARGETS, targets, rows),
		acts->logits, ret_loss);
}
