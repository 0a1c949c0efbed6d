/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the layers on the CPU, and the team that computes them. */
#include "examples/gpt/layers_cpu.h"

#include <stdlib.h>
#include <string.h>

#include "examples/gpt/args.h"
#include "examples/gpt/element/lanes.h"
#include "examples/gpt/model.h"
#include "examples/gpt/number.h"
#include "examples/gpt/product.h"

struct cpu_layers {
	struct gpt_layers base;
	struct gpt_team *team;
};

static struct gpt_team *team_of(const struct gpt_layers *layers)
{
	return ((const struct cpu_layers *)layers)->team;
}

static void linear_forward(struct gpt_layers *layers, const struct gpt_linear *linear,
                           const float *in, const void *weight, const float *bias, float *ret_out)
{
	gpt_linear_forward(team_of(layers), linear, in, weight, bias, ret_out);
}

static void linear_backward(struct gpt_layers *layers, const struct gpt_linear *linear,
                            const float *in, const void *weight, const float *dout,
                            const struct gpt_linear_grads *grads)
{
	gpt_linear_backward(team_of(layers), linear, in, weight, dout, grads);
}

static void layernorm_forward(struct gpt_layers *layers, const struct gpt_layernorm *norm,
                              float *ret_out)
{
	gpt_layernorm_forward(team_of(layers), norm, ret_out);
}

static void layernorm_backward(struct gpt_layers *layers, const struct gpt_layernorm *norm,
                               const float *dout, bool keep, float *din, float *dweight,
                               float *dbias)
{
	gpt_layernorm_backward(team_of(layers), norm, dout, keep, din, dweight, dbias);
}

static void gelu_forward(struct gpt_layers *layers, uint64_t count, const float *in, float *ret_out)
{
	gpt_gelu_forward(team_of(layers), count, in, ret_out);
}

static void gelu_backward(struct gpt_layers *layers, uint64_t count, const float *in,
                          const float *dout, float *ret_din)
{
	gpt_gelu_backward(team_of(layers), count, in, dout, ret_din);
}

static void attention_forward(struct gpt_layers *layers, const struct gpt_attention_shape *shape,
                              const float *qkv, float *ret_att, float *ret_out)
{
	gpt_attention_forward(team_of(layers), shape, qkv, ret_att, ret_out);
}

static void attention_backward(struct gpt_layers *layers, const struct gpt_attention_shape *shape,
                               const float *qkv, const float *att, const float *dout,
                               float *ret_dqkv)
{
	gpt_attention_backward(team_of(layers), shape, qkv, att, dout, ret_dqkv);
}

static void embedding_forward(struct gpt_layers *layers, const struct gpt_embedding *embedding,
                              float *ret_out)
{
	(void)layers;
	gpt_embedding_forward(embedding, ret_out);
}

static void embedding_backward(struct gpt_layers *layers, const struct gpt_embedding *embedding,
                               const float *dout, bool keep_wte, bool keep_wpe, float *dwte,
                               float *dwpe)
{
	(void)layers;
	gpt_embedding_backward(embedding, dout, keep_wte, keep_wpe, dwte, dwpe);
}

static int loss_forward(struct gpt_layers *layers, uint64_t rows, uint64_t classes,
                        const uint8_t *targets, float *logits, double *ret_loss)
{
	(void)layers;
	*ret_loss = gpt_loss_forward(rows, classes, targets, logits);
	return 0;
}

static void loss_backward(struct gpt_layers *layers, uint64_t rows, uint64_t classes,
                          const uint8_t *targets, float scale, float *probabilities)
{
	(void)layers;
	gpt_loss_backward(rows, classes, targets, scale, probabilities);
}

static void add(struct gpt_layers *layers, uint64_t count, const float *x, const float *y,
                float *ret_out)
{
	gpt_add(team_of(layers), count, x, y, ret_out);
}

static void copy(struct gpt_layers *layers, uint64_t count, const float *source, float *ret_target)
{
	(void)layers;
	memcpy(ret_target, source, count * sizeof(*source));
}

static void zero(struct gpt_layers *layers, uint64_t count, float *ret_out)
{
	(void)layers;
	memset(ret_out, 0, count * sizeof(*ret_out));
}

static void widen(struct gpt_layers *layers, uint64_t count, const uint16_t *source,
                  enum zinf_dtype dtype, float *target)
{
	(void)layers;
	gpt_widen(count, source, dtype, target);
}

static void narrow(struct gpt_layers *layers, uint64_t count, const float *source,
                   enum zinf_dtype dtype, bool keep, uint16_t *target)
{
	(void)layers;
	gpt_narrow(count, source, dtype, keep, target);
}

static const uint8_t *tokens(struct gpt_layers *layers, enum gpt_tokens which,
                             const uint8_t *tokens_given, uint64_t count)
{
	(void)layers;
	(void)which;
	(void)count;
	return tokens_given;
}

static int fetch(struct gpt_layers *layers, const void *source, size_t bytes, void *ret_target)
{
	(void)layers;
	memcpy(ret_target, source, bytes);
	return 0;
}

static void layers_free(struct gpt_layers *layers)
{
	(void)gpt_team_free(team_of(layers));
	free(layers);
}

static const struct gpt_layers_ops cpu_ops = {
	.linear_forward = linear_forward,
	.linear_backward = linear_backward,
	.layernorm_forward = layernorm_forward,
	.layernorm_backward = layernorm_backward,
	.gelu_forward = gelu_forward,
	.gelu_backward = gelu_backward,
	.attention_forward = attention_forward,
	.attention_backward = attention_backward,
	.embedding_forward = embedding_forward,
	.embedding_backward = embedding_backward,
	.loss_forward = loss_forward,
	.loss_backward = loss_backward,
	.add = add,
	.copy = copy,
	.zero = zero,
	.widen = widen,
	.narrow = narrow,
	.tokens = tokens,
	.fetch = fetch,
	.free = layers_free,
};

/* As many threads as the CPUs give each rank of this node. A launcher knows how many those are. */
static uint32_t thread_count(const struct gpt_args *args)
{
	static const char *const names[] = { "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
		                             "SLURM_NTASKS_PER_NODE" };
	uint64_t rank_count = args->world_count;

	if (args->thread_count)
		return args->thread_count;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *text = getenv(names[i]);
		uint64_t count = 0;

		if (args->is_launched && text && !gpt_parse_u64(text, &count) && count > 0 &&
		    count <= args->world_count) {
			rank_count = count;
			break;
		}
	}
	return gpt_team_default_threads((uint32_t)rank_count);
}

/* The most that products and attention take, forward and backward. */
static struct gpt_team *team_new(const struct gpt_args *args, const struct gpt_config *config)
{
	uint64_t rows = (uint64_t)config->batch_count * config->sequence_count;
	uint64_t tokens_count = config->sequence_count, channels = config->channel_count;
	uint64_t wide = gpt_larger(4 * channels, GPT_VOCAB);
	const struct gpt_product_bounds forward = { rows, wide, wide, tokens_count,
		                                    channels / config->head_count };
	/* The left factor of a weight's gradient is that of the outputs. */
	const struct gpt_product_bounds backward = { wide, wide, rows, 1, 1 };
	uint64_t square = (tokens_count * tokens_count + GPT_LANES) * sizeof(float);

	return gpt_team_new(
		thread_count(args),
		gpt_larger(gpt_product_shared_bytes(&forward), gpt_product_shared_bytes(&backward)),
		gpt_larger(gpt_product_scratch_bytes(&forward),
	                   gpt_product_scratch_bytes(&backward)) +
			square);
}

struct gpt_layers *gpt_layers_cpu_new(const struct gpt_args *args, const struct gpt_config *config)
{
	struct cpu_layers *layers = calloc(1, sizeof(*layers));

	if (!layers)
		return NULL;
	layers->base.ops = &cpu_ops;
	layers->team = team_new(args, config);
	if (!layers->team) {
		free(layers);
		return NULL;
	}
	return &layers->base;
}
