/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for one micro-batch: one allocation, cut into arrays, beside that of the blocks. */
#include "examples/gpt/activations.h"

#include <errno.h>

#include "examples/gpt/arena.h"
#include "examples/gpt/cutter.h"

static void cut_all(struct gpt_activations *acts, const struct gpt_config *config,
                    struct gpt_cutter *cutter)
{
	uint64_t n = acts->row_count, c = config->channel_count;

	acts->lnf = gpt_cut(cutter, n * c);
	acts->lnf_stats = gpt_cut(cutter, n * 2);
	acts->logits = gpt_cut(cutter, n * GPT_VOCAB);
	acts->residual_grad = gpt_cut(cutter, n * c);
	acts->narrow_grad = gpt_cut(cutter, n * c);
	acts->wide_grad = gpt_cut(cutter, n * 4 * c);
}

/* @acts: deinit it, also after a failure. @model, @backend: must outlive it. Return: 0; -ENOMEM;
 * what the backend answered, with the reason. */
int gpt_activations_init(struct gpt_activations *acts, const struct gpt_args *args,
                         const struct gpt_model *model, struct gpt_backend *backend,
                         struct gpt_problem *problem)
{
	struct gpt_cutter cutter = { 0 };

	*acts = (struct gpt_activations){
		.row_count = (uint64_t)model->config.batch_count * model->config.sequence_count,
		.device = backend->device,
	};
	cut_all(acts, &model->config, &cutter);
	if (cutter.used_count <= SIZE_MAX / sizeof(float) / 2)
		acts->arena = gpt_arena_new(acts->device, cutter.used_count * sizeof(float));
	if (!acts->arena)
		return gpt_problem_set(problem, -ENOMEM,
		                       "No memory%s for the gradients of %u x %u tokens; a smaller "
		                       "--batch-size needs less",
		                       gpt_arena_place(acts->device), model->config.batch_count,
		                       model->config.sequence_count);
	cutter = (struct gpt_cutter){ .arena = acts->arena };
	cut_all(acts, &model->config, &cutter);
	return gpt_checkpoint_init(&acts->blocks, args, model, backend, problem);
}

/* Twice is fine. */
void gpt_activations_deinit(struct gpt_activations *acts)
{
	gpt_checkpoint_deinit(&acts->blocks);
	gpt_arena_free(acts->device, acts->arena);
	*acts = (struct gpt_activations){ 0 };
}
