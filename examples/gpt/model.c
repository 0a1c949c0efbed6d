/* SPDX-License-Identifier: Apache-2.0 */
/* The table of units and parameters, and the first values. */
#include "examples/gpt/model.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/rng.h"

#define EMBED_PARAMS 2u
#define FINAL_PARAMS 2u
#define DEVIATION    0.02 /* GPT-2, section 2.3 and its published code */

static void unit_begin(struct gpt_model *model, const char *name)
{
	struct gpt_unit *unit = &model->units[model->unit_count++];

	(void)snprintf(unit->name, sizeof(unit->name), "%s", name); /* All names are short. */
	unit->param_index = model->param_count;
	unit->global_index = model->padded_count;
}

/* @columns: 0 for a vector. */
static void param_add(struct gpt_model *model, const char *name, uint64_t rows, uint64_t columns,
                      double deviation, float constant)
{
	struct gpt_unit *unit = &model->units[model->unit_count - 1];
	struct gpt_param *param = &model->params[model->param_count++];

	(void)snprintf(param->name, sizeof(param->name), "%.15s.%.15s", unit->name, name);
	param->unit = model->unit_count - 1;
	param->dim_count = columns ? 2 : 1;
	param->shape[0] = rows;
	param->shape[1] = columns;
	param->element_count = rows * (columns ? columns : 1);
	param->element_index = unit->element_count;
	param->deviation = deviation;
	param->constant = constant;
	unit->element_count += param->element_count;
	unit->param_count++;
	assert(unit->param_count <= GPT_UNIT_PARAMS_MAX);
}

static void unit_end(struct gpt_model *model)
{
	struct gpt_unit *unit = &model->units[model->unit_count - 1];

	unit->padded_count =
		(unit->element_count + GPT_UNIT_ALIGN - 1) / GPT_UNIT_ALIGN * GPT_UNIT_ALIGN;
	model->element_count += unit->element_count;
	model->padded_count += unit->padded_count;
}

static void add_block(struct gpt_model *model, uint32_t layer)
{
	uint64_t c = model->config.channel_count;
	/* GPT-2: what writes to the residual stream begins smaller, by the number of such
	 * writers. */
	double residual = DEVIATION / sqrt(2.0 * model->config.layer_count);
	char name[GPT_NAME_BYTES];

	(void)snprintf(name, sizeof(name), "block.%u", layer);
	unit_begin(model, name);
	param_add(model, "ln1.weight", c, 0, 0, 1);
	param_add(model, "ln1.bias", c, 0, 0, 0);
	param_add(model, "qkv.weight", 3 * c, c, DEVIATION, 0);
	param_add(model, "qkv.bias", 3 * c, 0, 0, 0);
	param_add(model, "att.weight", c, c, residual, 0);
	param_add(model, "att.bias", c, 0, 0, 0);
	param_add(model, "ln2.weight", c, 0, 0, 1);
	param_add(model, "ln2.bias", c, 0, 0, 0);
	param_add(model, "fc.weight", 4 * c, c, DEVIATION, 0);
	param_add(model, "fc.bias", 4 * c, 0, 0, 0);
	param_add(model, "mlp.weight", c, 4 * c, residual, 0);
	param_add(model, "mlp.bias", c, 0, 0, 0);
	unit_end(model);
}

static int check_config(const struct gpt_config *config, struct gpt_problem *problem)
{
	if (!config->layer_count || !config->head_count || !config->channel_count ||
	    !config->sequence_count || !config->batch_count)
		return gpt_problem_set(problem, -EINVAL,
		                       "--layers, --heads, --d-model, --seq-len and --batch-size "
		                       "must be at least 1");
	if (config->channel_count % config->head_count)
		return gpt_problem_set(problem, -EINVAL,
		                       "--d-model %u is not a multiple of --heads %u",
		                       config->channel_count, config->head_count);
	return 0;
}

/* @model: deinit it, also after a failure. Return: 0, -EINVAL with the reason, -ENOMEM. */
int gpt_model_init(struct gpt_model *model, const struct gpt_config *config,
                   struct gpt_problem *problem)
{
	int r;

	*model = (struct gpt_model){ .config = *config };
	r = check_config(config, problem);
	if (r)
		return r;
	model->units = calloc(config->layer_count + 2, sizeof(*model->units));
	model->params = calloc(EMBED_PARAMS + FINAL_PARAMS +
	                               (size_t)config->layer_count * GPT_UNIT_PARAMS_MAX,
	                       sizeof(*model->params));
	if (!model->units || !model->params)
		return gpt_problem_set(problem, -ENOMEM, "No memory for a model of %u layers",
		                       config->layer_count);
	unit_begin(model, "embed");
	param_add(model, "wte", GPT_VOCAB, config->channel_count, DEVIATION, 0);
	param_add(model, "wpe", config->sequence_count, config->channel_count, DEVIATION, 0);
	unit_end(model);
	for (uint32_t layer = 0; layer < config->layer_count; layer++)
		add_block(model, layer);
	unit_begin(model, "final");
	param_add(model, "ln.weight", config->channel_count, 0, 0, 1);
	param_add(model, "ln.bias", config->channel_count, 0, 0, 0);
	unit_end(model);
	assert(model->unit_count == config->layer_count + 2);
	return 0;
}

/* Twice is fine. */
void gpt_model_deinit(struct gpt_model *model)
{
	free(model->units);
	free(model->params);
	*model = (struct gpt_model){ 0 };
}

/* @ret_values: (element_count,) f32. The same for the same seed, whatever else was drawn before. */
void gpt_model_first_values(const struct gpt_model *model, uint32_t param, uint64_t seed,
                            float *ret_values)
{
	const struct gpt_param *p = &model->params[param];
	struct gpt_rng rng = gpt_rng_init(seed, GPT_RNG_VALUES, param, 0, 0);

	for (uint64_t i = 0; i < p->element_count; i++)
		ret_values[i] = p->deviation > 0 ? (float)(p->deviation * gpt_rng_normal(&rng))
		                                 : p->constant;
}
