/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: each layer on a GPU gives the bits of the layer on the CPU. Method: both tables get the
 * same arrays, on a fake GPU whose kernels are loops over the element functions and whose products
 * are the CPU's; for several shapes, in each order of streams. Outputs begin with the same numbers,
 * so what is added to, replaced or left alone shows.
 */
#include <errno.h>

#include "examples/gpt/args.h"
#include "examples/gpt/layers_cpu.h"
#include "examples/gpt/layers_gpu.h"
#include "tests/unit/gpt/gpu.h"

/* Odd sizes; more than a strip of attention's rows; more columns than a piece of a product. */
static const struct gpt_config shapes[] = {
	{ .layer_count = 1,
	  .head_count = 1,
	  .channel_count = 1,
	  .sequence_count = 1,
	  .batch_count = 1 },
	{ .layer_count = 1,
	  .head_count = 3,
	  .channel_count = 33,
	  .sequence_count = 7,
	  .batch_count = 2 },
	{ .layer_count = 1,
	  .head_count = 2,
	  .channel_count = 16,
	  .sequence_count = 131,
	  .batch_count = 2 },
	{ .layer_count = 1,
	  .head_count = 4,
	  .channel_count = 64,
	  .sequence_count = 64,
	  .batch_count = 3 },
};

/* One shape on both. */
struct both {
	struct gpt_device *device;
	struct gpt_layers *cpu, *gpu;
	uint64_t n, c, t, b, h;
};

static struct both both_new(struct gpt_device *device, const struct gpt_config *config)
{
	const char *const argv[] = { "zinf-gpt" };
	struct gpt_problem problem;
	struct gpt_args args;
	struct both both = {
		.device = device,
		.n = (uint64_t)config->batch_count * config->sequence_count,
		.c = config->channel_count,
		.t = config->sequence_count,
		.b = config->batch_count,
		.h = config->head_count,
	};

	cr_assert_eq(gpt_args_parse(&args, 1, argv, &problem), 0);
	args.world_count = 1;
	both.cpu = gpt_layers_cpu_new(&args, config);
	both.gpu = gpt_layers_gpu_new(device, config, true);
	cr_assert(both.cpu);
	cr_assert(both.gpu, "%s", gpt_device_error_text(device));
	return both;
}

static void both_free(struct both *both)
{
	cr_assert_eq(both->gpu->error, 0, "%s", gpt_device_error_text(both->device));
	both->cpu->ops->free(both->cpu);
	both->gpu->ops->free(both->gpu);
}

typedef void (*check_fn)(struct both *both);

static void in_order(const char *order, check_fn check)
{
	struct gpt_device *device = open_gpu(order);

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		struct both both = both_new(device, &shapes[i]);

		check(&both);
		both_free(&both);
	}
	gpt_device_close(device);
}

#define IN_EACH_ORDER(name)                                 \
	Test(gpu_layers, name##_eager)                      \
	{                                                   \
		in_order("order=eager", check_##name);      \
	}                                                   \
	Test(gpu_layers, name##_late)                       \
	{                                                   \
		in_order("order=late", check_##name);       \
	}                                                   \
	Test(gpu_layers, name##_shuffled)                   \
	{                                                   \
		in_order("order=shuffled:7", check_##name); \
	}

static void expect_and_free(struct both *both, struct array *array, const char *what)
{
	expect_equal(both->device, array, what);
	array_free(both->device, array);
}

static void check_linear_of(struct both *both, uint64_t outputs, bool has_bias, bool keep)
{
	const struct gpt_linear linear = { both->n, both->c, outputs, ZINF_F32 };
	struct array in = array_new(both->device, both->n * both->c, 1);
	struct array weight = array_new(both->device, outputs * both->c, 2);
	struct array bias = array_new(both->device, outputs, 3);
	struct array out = array_new(both->device, both->n * outputs, 4);
	struct array din = array_new(both->device, both->n * both->c, 5);
	struct array dweight = array_new(both->device, outputs * both->c, 6);
	struct array dbias = array_new(both->device, outputs, 7);
	struct gpt_linear_grads on_cpu = { has_bias ? din.cpu : NULL,
		                           dweight.cpu,
		                           has_bias ? dbias.cpu : NULL,
		                           ZINF_F32,
		                           keep,
		                           keep };
	struct gpt_linear_grads on_gpu = { has_bias ? din.gpu : NULL,
		                           dweight.gpu,
		                           has_bias ? dbias.gpu : NULL,
		                           ZINF_F32,
		                           keep,
		                           keep };

	both->cpu->ops->linear_forward(both->cpu, &linear, in.cpu, weight.cpu,
	                               has_bias ? bias.cpu : NULL, out.cpu);
	both->gpu->ops->linear_forward(both->gpu, &linear, in.gpu, weight.gpu,
	                               has_bias ? bias.gpu : NULL, out.gpu);
	both->cpu->ops->linear_backward(both->cpu, &linear, in.cpu, weight.cpu, out.cpu, &on_cpu);
	both->gpu->ops->linear_backward(both->gpu, &linear, in.gpu, weight.gpu, out.gpu, &on_gpu);
	expect_and_free(both, &out, "out");
	expect_and_free(both, &din, "din");
	expect_and_free(both, &dweight, "dweight");
	expect_and_free(both, &dbias, "dbias");
	expect_and_free(both, &in, "in");
	expect_and_free(both, &weight, "weight");
	array_free(both->device, &bias);
}

static void check_linear(struct both *both)
{
	check_linear_of(both, 4 * both->c, true, false);
	check_linear_of(both, 3 * both->c, true, true);
	check_linear_of(both, GPT_VOCAB, false, true);
}
IN_EACH_ORDER(linear)

static void check_norm_of(struct both *both, bool keep)
{
	struct array in = array_new(both->device, both->n * both->c, 1);
	struct array weight = array_new(both->device, both->c, 2);
	struct array bias = array_new(both->device, both->c, 3);
	struct array stats = array_new(both->device, both->n * 2, 4);
	struct array out = array_new(both->device, both->n * both->c, 5);
	struct array dout = array_new(both->device, both->n * both->c, 6);
	struct array din = array_new(both->device, both->n * both->c, 7);
	struct array dweight = array_new(both->device, both->c, 8);
	struct array dbias = array_new(both->device, both->c, 9);
	const struct gpt_layernorm on_cpu = { both->n,    both->c,  in.cpu,
		                              weight.cpu, bias.cpu, stats.cpu };
	const struct gpt_layernorm on_gpu = { both->n,    both->c,  in.gpu,
		                              weight.gpu, bias.gpu, stats.gpu };

	both->cpu->ops->layernorm_forward(both->cpu, &on_cpu, out.cpu);
	both->gpu->ops->layernorm_forward(both->gpu, &on_gpu, out.gpu);
	both->cpu->ops->layernorm_backward(both->cpu, &on_cpu, dout.cpu, keep, din.cpu, dweight.cpu,
	                                   dbias.cpu);
	both->gpu->ops->layernorm_backward(both->gpu, &on_gpu, dout.gpu, keep, din.gpu, dweight.gpu,
	                                   dbias.gpu);
	expect_and_free(both, &stats, "stats");
	expect_and_free(both, &out, "out");
	expect_and_free(both, &din, "din");
	expect_and_free(both, &dweight, "dweight");
	expect_and_free(both, &dbias, "dbias");
	array_free(both->device, &in);
	array_free(both->device, &weight);
	array_free(both->device, &bias);
	array_free(both->device, &dout);
}

static void check_norm(struct both *both)
{
	check_norm_of(both, false);
	check_norm_of(both, true);
}
IN_EACH_ORDER(norm)

/* Also sums, zeros and changes of type: all go element by element. */
static void check_elements(struct both *both)
{
	uint64_t count = both->n * both->c;
	struct array x = array_new(both->device, count, 1), y = array_new(both->device, count, 2);
	struct array out = array_new(both->device, count, 3);
	struct array sum = array_new(both->device, count, 4);
	struct array halves = array_new(both->device, count, 5); /* twice as many */
	struct array wide = array_new(both->device, 2 * count, 6);

	both->cpu->ops->gelu_forward(both->cpu, count, x.cpu, out.cpu);
	both->gpu->ops->gelu_forward(both->gpu, count, x.gpu, out.gpu);
	both->cpu->ops->gelu_backward(both->cpu, count, x.cpu, y.cpu, y.cpu);
	both->gpu->ops->gelu_backward(both->gpu, count, x.gpu, y.gpu, y.gpu);
	both->cpu->ops->add(both->cpu, count, x.cpu, sum.cpu, sum.cpu);
	both->gpu->ops->add(both->gpu, count, x.gpu, sum.gpu, sum.gpu);
	both->cpu->ops->narrow(both->cpu, count, x.cpu, ZINF_BF16, false, (uint16_t *)halves.cpu);
	both->gpu->ops->narrow(both->gpu, count, x.gpu, ZINF_BF16, false, (uint16_t *)halves.gpu);
	both->cpu->ops->narrow(both->cpu, count, y.cpu, ZINF_BF16, true, (uint16_t *)halves.cpu);
	both->gpu->ops->narrow(both->gpu, count, y.gpu, ZINF_BF16, true, (uint16_t *)halves.gpu);
	both->cpu->ops->widen(both->cpu, 2 * count, (uint16_t *)halves.cpu, ZINF_BF16, wide.cpu);
	both->gpu->ops->widen(both->gpu, 2 * count, (uint16_t *)halves.gpu, ZINF_BF16, wide.gpu);
	both->cpu->ops->copy(both->cpu, count / 2, x.cpu, out.cpu);
	both->gpu->ops->copy(both->gpu, count / 2, x.gpu, out.gpu);
	both->cpu->ops->zero(both->cpu, count, x.cpu);
	both->gpu->ops->zero(both->gpu, count, x.gpu);
	expect_and_free(both, &x, "zero");
	expect_and_free(both, &y, "gelu backward");
	expect_and_free(both, &out, "gelu");
	expect_and_free(both, &sum, "sum");
	expect_and_free(both, &halves, "narrowed");
	expect_and_free(both, &wide, "widened");
}
IN_EACH_ORDER(elements)

static void check_attention(struct both *both)
{
	const struct gpt_attention_shape shape = { .batch_count = (uint32_t)both->b,
		                                   .sequence_count = (uint32_t)both->t,
		                                   .channel_count = (uint32_t)both->c,
		                                   .head_count = (uint32_t)both->h };
	struct array qkv = array_new(both->device, both->n * 3 * both->c, 1);
	struct array att = array_new(both->device, both->b * both->h * both->t * both->t, 2);
	struct array out = array_new(both->device, both->n * both->c, 3);
	struct array dout = array_new(both->device, both->n * both->c, 4);
	struct array dqkv = array_new(both->device, both->n * 3 * both->c, 5);

	both->cpu->ops->attention_forward(both->cpu, &shape, qkv.cpu, att.cpu, out.cpu);
	both->gpu->ops->attention_forward(both->gpu, &shape, qkv.gpu, att.gpu, out.gpu);
	both->cpu->ops->attention_backward(both->cpu, &shape, qkv.cpu, att.cpu, dout.cpu, dqkv.cpu);
	both->gpu->ops->attention_backward(both->gpu, &shape, qkv.gpu, att.gpu, dout.gpu, dqkv.gpu);
	expect_and_free(both, &att, "att");
	expect_and_free(both, &out, "out");
	expect_and_free(both, &dqkv, "dqkv");
	array_free(both->device, &qkv);
	array_free(both->device, &dout);
}
IN_EACH_ORDER(attention)

/* The tokens are the host's, and change behind the call. */
static uint8_t *draw_tokens(const struct both *both, uint64_t stream)
{
	struct gpt_rng rng = gpt_rng_init(stream, GPT_RNG_TRAIN, 3, 0, 0);
	uint8_t *tokens = malloc(both->n);

	for (uint64_t i = 0; i < both->n; i++)
		tokens[i] = (uint8_t)(gpt_rng_below(&rng, 9) * 31);
	return tokens;
}

static void check_embedding_of(struct both *both, bool keep, enum zinf_dtype dtype)
{
	uint8_t *tokens = draw_tokens(both, keep), *kept = draw_tokens(both, keep);
	struct array wte = array_new(both->device, GPT_VOCAB * both->c, 1);
	struct array wpe = array_new(both->device, both->t * both->c, 2);
	struct array out = array_new(both->device, both->n * both->c, 3);
	struct array dwte = array_new(both->device, GPT_VOCAB * both->c, 4);
	struct array dwpe = array_new(both->device, both->t * both->c, 5);
	struct gpt_embedding on_cpu = { (uint32_t)both->b,
		                        (uint32_t)both->t,
		                        (uint32_t)both->c,
		                        kept,
		                        wte.cpu,
		                        wpe.cpu,
		                        dtype };
	struct gpt_embedding on_gpu = on_cpu;

	on_gpu.tokens = both->gpu->ops->tokens(both->gpu, GPT_TOKENS_INPUTS, tokens, both->n);
	memset(tokens, 255, both->n);
	on_gpu.wte = wte.gpu;
	on_gpu.wpe = wpe.gpu;
	both->cpu->ops->embedding_forward(both->cpu, &on_cpu, out.cpu);
	both->gpu->ops->embedding_forward(both->gpu, &on_gpu, out.gpu);
	both->cpu->ops->embedding_backward(both->cpu, &on_cpu, out.cpu, keep, !keep, dwte.cpu,
	                                   dwpe.cpu);
	both->gpu->ops->embedding_backward(both->gpu, &on_gpu, out.gpu, keep, !keep, dwte.gpu,
	                                   dwpe.gpu);
	expect_and_free(both, &out, "out");
	expect_and_free(both, &dwte, "dwte");
	expect_and_free(both, &dwpe, "dwpe");
	array_free(both->device, &wte);
	array_free(both->device, &wpe);
	free(tokens);
	free(kept);
}

static void check_embedding(struct both *both)
{
	check_embedding_of(both, false, ZINF_F32);
	check_embedding_of(both, true, ZINF_F32);
	check_embedding_of(both, false, ZINF_BF16);
}
IN_EACH_ORDER(embedding)

static void check_loss(struct both *both)
{
	uint8_t *targets = draw_tokens(both, 5);
	struct array logits = array_new(both->device, both->n * GPT_VOCAB, 1);
	const uint8_t *lies;
	double on_cpu = 0, on_gpu = 1;

	lies = both->gpu->ops->tokens(both->gpu, GPT_TOKENS_TARGETS, targets, both->n);
	cr_assert_eq(both->cpu->ops->loss_forward(both->cpu, both->n, GPT_VOCAB, targets,
	                                          logits.cpu, &on_cpu),
	             0);
	cr_assert_eq(both->gpu->ops->loss_forward(both->gpu, both->n, GPT_VOCAB, lies, logits.gpu,
	                                          &on_gpu),
	             0);
	cr_assert_eq(on_cpu, on_gpu);
	expect_equal(both->device, &logits, "probabilities");
	both->cpu->ops->loss_backward(both->cpu, both->n, GPT_VOCAB, targets, 0.37f, logits.cpu);
	both->gpu->ops->loss_backward(both->gpu, both->n, GPT_VOCAB, lies, 0.37f, logits.gpu);
	expect_and_free(both, &logits, "gradient");
	free(targets);
}
IN_EACH_ORDER(loss)

/* Backward finds what forward has brought; other tokens come behind what still reads the first. */
static void check_tokens(struct both *both)
{
	uint8_t *first = draw_tokens(both, 1), *second = draw_tokens(both, 2),
		*got = draw_tokens(both, 3);
	uint64_t copies = gpu_calls("cuMemcpyHtoDAsync");
	const uint8_t *lies = both->gpu->ops->tokens(both->gpu, GPT_TOKENS_INPUTS, first, both->n);

	second[0] = (uint8_t)(first[0] + 1);
	cr_assert_eq(both->gpu->ops->tokens(both->gpu, GPT_TOKENS_INPUTS, first, both->n), lies);
	cr_assert_eq(gpu_calls("cuMemcpyHtoDAsync"), copies + 1);
	cr_assert_eq(both->gpu->ops->tokens(both->gpu, GPT_TOKENS_INPUTS, second, both->n), lies);
	cr_assert_neq(both->gpu->ops->tokens(both->gpu, GPT_TOKENS_TARGETS, first, both->n), lies);
	cr_assert_eq(both->gpu->ops->fetch(both->gpu, lies, both->n, got), 0);
	cr_assert_arr_eq(got, second, both->n);
	free(first);
	free(second);
	free(got);
}
IN_EACH_ORDER(tokens)

/* What was brought first is needed no more: the error stays, and nothing is copied. */
Test(gpu_layers, tokens_behind_a_copy_that_failed_are_not_copied)
{
	struct gpt_device *device = open_gpu("order=late,fail=copy:1:700");
	struct both both = both_new(device, &shapes[1]);
	uint8_t *first = draw_tokens(&both, 1), *second = draw_tokens(&both, 2);

	second[0] = (uint8_t)(first[0] + 1);
	(void)both.gpu->ops->tokens(both.gpu, GPT_TOKENS_INPUTS, first, both.n);
	cr_expect_eq(both.gpu->error, 0);
	(void)both.gpu->ops->tokens(both.gpu, GPT_TOKENS_INPUTS, second, both.n);
	cr_expect_eq(both.gpu->error, -EIO);
	cr_expect_eq(gpu_calls("cuMemcpyHtoDAsync"), 1);
	both.cpu->ops->free(both.cpu);
	both.gpu->ops->free(both.gpu);
	gpt_device_close(device);
	free(first);
	free(second);
}
