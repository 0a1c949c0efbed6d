/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for one micro-batch: one allocation, cut into arrays. */
#include "examples/gpt/activations.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* Arrays begin on a cache line. */
#define ARENA_ALIGN_FLOATS 16u

/* Cuts arrays from an arena; without one it only counts. */
struct cutter {
	float *arena;
	uint64_t used_count;
};

static float *cut(struct cutter *cutter, uint64_t count)
{
	float *array = cutter->arena ? cutter->arena + cutter->used_count : NULL;

	cutter->used_count +=
		(count + ARENA_ALIGN_FLOATS - 1) / ARENA_ALIGN_FLOATS * ARENA_ALIGN_FLOATS;
	return array;
}

static void cut_all(struct gpt_activations *acts, const struct gpt_config *config,
                    struct cutter *cutter)
{
	uint64_t n = acts->row_count, c = config->channel_count, t = config->sequence_count;

	acts->embedded = cut(cutter, n * c);
	for (uint32_t layer = 0; layer < config->layer_count; layer++) {
		struct gpt_block_activations *block = &acts->blocks[layer];

		block->ln1 = cut(cutter, n * c);
		block->ln1_stats = cut(cutter, n * 2);
		block->qkv = cut(cutter, n * 3 * c);
		block->att = cut(cutter, config->batch_count * config->head_count * t * t);
		block->heads = cut(cutter, n * c);
		block->middle = cut(cutter, n * c);
		block->ln2 = cut(cutter, n * c);
		block->ln2_stats = cut(cutter, n * 2);
		block->fc = cut(cutter, n * 4 * c);
		block->gelu = cut(cutter, n * 4 * c);
		block->output = cut(cutter, n * c);
	}
	acts->lnf = cut(cutter, n * c);
	acts->lnf_stats = cut(cutter, n * 2);
	acts->logits = cut(cutter, n * GPT_VOCAB);
	acts->residual_grad = cut(cutter, n * c);
	acts->narrow_grad = cut(cutter, n * c);
	acts->wide_grad = cut(cutter, n * 4 * c);
	acts->att_grad = cut(cutter, t * t);
}

/* @acts: deinit it, also after a failure. Return: 0, -ENOMEM. */
int gpt_activations_init(struct gpt_activations *acts, const struct gpt_model *model)
{
	struct cutter cutter = { 0 };

	*acts = (struct gpt_activations){
		.row_count = (uint64_t)model->config.batch_count * model->config.sequence_count,
	};
	acts->blocks = calloc(model->config.layer_count, sizeof(*acts->blocks));
	if (!acts->blocks)
		return -ENOMEM;
	cut_all(acts, &model->config, &cutter);
	if (cutter.used_count > SIZE_MAX / sizeof(float) / 2)
		return -ENOMEM;
	acts->arena = aligned_alloc(ARENA_ALIGN_FLOATS * sizeof(float),
	                            cutter.used_count * sizeof(float));
	if (!acts->arena)
		return -ENOMEM;
	cutter = (struct cutter){ .arena = acts->arena };
	cut_all(acts, &model->config, &cutter);
	return 0;
}

/* Twice is fine. */
void gpt_activations_deinit(struct gpt_activations *acts)
{
	free(acts->blocks);
	free(acts->arena);
	*acts = (struct gpt_activations){ 0 };
}
