/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the layers on a GPU: which kernels and products each one is. */
#include "examples/gpt/layers_gpu.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/cublas.h"
#include "examples/gpt/linear_product.h"

static struct gpt_gpu_layers *own(struct gpt_layers *layers)
{
	return (struct gpt_gpu_layers *)layers;
}

/* What the calls so far have come to. */
static void note(struct gpt_layers *layers)
{
	layers->error = gpt_device_error(own(layers)->device);
}

static void launch(struct gpt_layers *layers, enum gpt_kernel kernel, const void *args)
{
	gpt_device_launch(own(layers)->device, kernel, args);
	note(layers);
}

const void *gpt_gpu_narrow(struct gpt_gpu_layers *layers, enum gpt_narrowed place, uint64_t count,
                           const float *source)
{
	const struct gpt_narrow_args args = { .count = count,
		                              .source = source,
		                              .target = layers->narrowed[place] };

	assert(args.target);
	launch(&layers->base, GPT_KERNEL_narrow, &args);
	return args.target;
}

/* ---- linear ---- */

/* A product of whole matrices. In bf16 the left factor lies narrowed in one place, the right one,
 * unless it is a parameter, in another. */
static void multiply(struct gpt_gpu_layers *layers, const struct gpt_product *product)
{
	const struct gpt_target *target = &product->target;
	const void *left = product->left.data, *right = product->right.data;
	struct gpt_gemm gemm = {
		.rows = product->row_count,
		.columns = product->column_count,
		.depth = product->depth,
		.target_stride = target->row_stride,
		.factor_dtype = product->is_bf16 ? ZINF_BF16 : ZINF_F32,
		.target_dtype = target->dtype,
		.scale = target->scale,
		.is_adding = target->is_adding || target->bias,
	};

	if (product->is_bf16)
		left = gpt_gpu_narrow(layers, GPT_NARROWED_WIDE, gemm.rows * gemm.depth, left);
	if (product->is_bf16 && product->right.dtype == ZINF_F32)
		right = gpt_gpu_narrow(layers, GPT_NARROWED_SQUARE, gemm.columns * gemm.depth,
		                       right);
	if (target->bias) {
		const struct gpt_fill_rows_args args = { .count = gemm.rows * gemm.columns,
			                                 .columns = gemm.columns,
			                                 .bias = target->bias,
			                                 .out = target->data };

		launch(&layers->base, GPT_KERNEL_fill_rows, &args);
	}
	gpt_gemm_factors(&gemm, &product->left, &product->right);
	gpt_device_gemm(layers->device, &gemm, left, right, target->data);
	note(&layers->base);
}

static void linear_forward(struct gpt_layers *layers, const struct gpt_linear *linear,
                           const float *in, const void *weight, const float *bias, float *ret_out)
{
	const struct gpt_product product = gpt_linear_output(linear, in, weight, bias, ret_out);

	multiply(own(layers), &product);
}

static void linear_backward(struct gpt_layers *layers, const struct gpt_linear *linear,
                            const float *in, const void *weight, const float *dout,
                            const struct gpt_linear_grads *grads)
{
	const struct gpt_column_sums_args sums = { .count = linear->outputs,
		                                   .rows = linear->rows,
		                                   .x = dout,
		                                   .sums = grads->bias,
		                                   .is_adding = grads->keeps_bias };
	struct gpt_product product;

	if (grads->in) {
		product = gpt_linear_input_grad(linear, weight, dout, grads->in);
		multiply(own(layers), &product);
	}
	product = gpt_linear_weight_grad(linear, in, dout, grads);
	multiply(own(layers), &product);
	if (grads->bias)
		launch(layers, GPT_KERNEL_column_sums, &sums);
}

/* ---- kernels of one layer each ---- */

static void layernorm_forward(struct gpt_layers *layers, const struct gpt_layernorm *norm,
                              float *ret_out)
{
	const struct gpt_norm_forward_args args = { .count = norm->rows,
		                                    .channels = norm->channels,
		                                    .in = norm->in,
		                                    .weight = norm->weight,
		                                    .bias = norm->bias,
		                                    .stats = norm->stats,
		                                    .out = ret_out };

	launch(layers, GPT_KERNEL_norm_forward, &args);
}

static void layernorm_backward(struct gpt_layers *layers, const struct gpt_layernorm *norm,
                               const float *dout, bool keep, float *din, float *dweight,
                               float *dbias)
{
	const struct gpt_norm_columns_args columns = { .count = norm->channels,
		                                       .rows = norm->rows,
		                                       .in = norm->in,
		                                       .stats = norm->stats,
		                                       .dout = dout,
		                                       .dweight = dweight,
		                                       .dbias = dbias,
		                                       .is_adding = keep };
	const struct gpt_norm_backward_args rows = { .count = norm->rows,
		                                     .channels = norm->channels,
		                                     .in = norm->in,
		                                     .weight = norm->weight,
		                                     .stats = norm->stats,
		                                     .dout = dout,
		                                     .din = din };

	launch(layers, GPT_KERNEL_norm_columns, &columns);
	launch(layers, GPT_KERNEL_norm_backward, &rows);
}

static void gelu_forward(struct gpt_layers *layers, uint64_t count, const float *in, float *ret_out)
{
	const struct gpt_gelu_forward_args args = { .count = count, .in = in, .out = ret_out };

	launch(layers, GPT_KERNEL_gelu_forward, &args);
}

static void gelu_backward(struct gpt_layers *layers, uint64_t count, const float *in,
                          const float *dout, float *ret_din)
{
	const struct gpt_gelu_backward_args args = {
		.count = count, .in = in, .dout = dout, .din = ret_din
	};

	launch(layers, GPT_KERNEL_gelu_backward, &args);
}

static void embedding_forward(struct gpt_layers *layers, const struct gpt_embedding *embedding,
                              float *ret_out)
{
	const struct gpt_embedding_forward_args args = {
		.count = (uint64_t)embedding->batch_count * embedding->sequence_count *
		         embedding->channel_count,
		.channels = embedding->channel_count,
		.sequence = embedding->sequence_count,
		.tokens = embedding->tokens,
		.wte = embedding->wte,
		.wpe = embedding->wpe,
		.out = ret_out,
		.is_bf16 = embedding->param_dtype == ZINF_BF16,
	};

	assert(embedding->param_dtype != ZINF_F16);
	launch(layers, GPT_KERNEL_embedding_forward, &args);
}

static void embedding_backward(struct gpt_layers *layers, const struct gpt_embedding *embedding,
                               const float *dout, bool keep_wte, bool keep_wpe, float *dwte,
                               float *dwpe)
{
	uint64_t c = embedding->channel_count, t = embedding->sequence_count;
	const struct gpt_token_grads_args of_tokens = { .count = GPT_VOCAB * c,
		                                        .channels = c,
		                                        .rows = embedding->batch_count * t,
		                                        .tokens = embedding->tokens,
		                                        .dout = dout,
		                                        .dwte = dwte,
		                                        .is_adding = keep_wte };
	const struct gpt_position_grads_args of_positions = { .count = t * c,
		                                              .batch_count = embedding->batch_count,
		                                              .dout = dout,
		                                              .dwpe = dwpe,
		                                              .is_adding = keep_wpe };

	launch(layers, GPT_KERNEL_token_grads, &of_tokens);
	launch(layers, GPT_KERNEL_position_grads, &of_positions);
}

static void add(struct gpt_layers *layers, uint64_t count, const float *x, const float *y,
                float *ret_out)
{
	const struct gpt_add_args args = { .count = count, .x = x, .y = y, .out = ret_out };

	launch(layers, GPT_KERNEL_add, &args);
}

static void copy(struct gpt_layers *layers, uint64_t count, const float *source, float *ret_target)
{
	gpt_device_copy(own(layers)->device, ret_target, source, count * sizeof(*source));
	note(layers);
}

static void zero(struct gpt_layers *layers, uint64_t count, float *ret_out)
{
	gpt_device_zero(own(layers)->device, ret_out, count * sizeof(*ret_out));
	note(layers);
}

static void widen(struct gpt_layers *layers, uint64_t count, const uint16_t *source,
                  enum zinf_dtype dtype, float *target)
{
	const struct gpt_widen_args args = { .count = count, .source = source, .target = target };

	assert(dtype == ZINF_BF16);
	(void)dtype;
	launch(layers, GPT_KERNEL_widen, &args);
}

static void narrow(struct gpt_layers *layers, uint64_t count, const float *source,
                   enum zinf_dtype dtype, bool keep, uint16_t *target)
{
	const struct gpt_narrow_args args = {
		.count = count, .source = source, .target = target, .is_adding = keep
	};

	assert(dtype == ZINF_BF16);
	(void)dtype;
	launch(layers, GPT_KERNEL_narrow, &args);
}

/* ---- what comes from the host, and goes there ---- */

static int wait(struct gpt_gpu_layers *layers)
{
	layers->base.error = gpt_device_wait(layers->device);
	layers->is_staging = false;
	return layers->base.error;
}

/* Backward asks for the tokens that forward had: these lie there. */
static const uint8_t *tokens(struct gpt_layers *layers, enum gpt_tokens which, const uint8_t *given,
                             uint64_t count)
{
	struct gpt_gpu_layers *gpu = own(layers);
	uint8_t *staged = gpu->staged + (uint64_t)which * gpu->row_count;
	uint8_t *target = gpu->tokens + (uint64_t)which * gpu->row_count;

	assert(count <= gpu->row_count);
	if (count == gpu->staged_counts[which] && !memcmp(staged, given, count))
		return target;
	if (gpu->is_staging && wait(gpu))
		return target;
	memcpy(staged, given, count);
	gpu->staged_counts[which] = count;
	gpu->is_staging = true;
	gpt_device_store(gpu->device, target, staged, count);
	note(layers);
	return target;
}

static int fetch(struct gpt_layers *layers, const void *source, size_t bytes, void *ret_target)
{
	struct gpt_gpu_layers *gpu = own(layers);

	layers->error = gpt_device_fetch(gpu->device, source, bytes, ret_target);
	gpu->is_staging = false;
	return layers->error;
}

static int loss_forward(struct gpt_layers *layers, uint64_t rows, uint64_t classes,
                        const uint8_t *targets, float *logits, double *ret_loss)
{
	struct gpt_gpu_layers *gpu = own(layers);
	const struct gpt_loss_args args = { .count = rows,
		                            .classes = classes,
		                            .targets = targets,
		                            .logits = logits,
		                            .marks = gpu->marks };
	double sum = 0;
	int r;

	assert(rows > 0);
	assert(rows <= gpu->row_count);
	launch(layers, GPT_KERNEL_loss, &args);
	r = fetch(layers, gpu->marks, rows * sizeof(*gpu->marks), gpu->marked);
	if (r)
		return r;
	for (uint64_t row = 0; row < rows; row++) {
		const struct gpt_loss_mark *mark = &gpu->marked[row];

		sum += (double)(mark->max + logf(mark->sum) - mark->target);
	}
	*ret_loss = sum / (double)rows;
	return 0;
}

static void loss_backward(struct gpt_layers *layers, uint64_t rows, uint64_t classes,
                          const uint8_t *targets, float scale, float *probabilities)
{
	const struct gpt_loss_grad_args args = { .count = rows * classes,
		                                 .classes = classes,
		                                 .targets = targets,
		                                 .probabilities = probabilities,
		                                 .scale = scale };

	launch(layers, GPT_KERNEL_loss_grad, &args);
}

/* ---- life ---- */

static void layers_free(struct gpt_layers *layers)
{
	struct gpt_gpu_layers *gpu = own(layers);

	(void)gpt_device_wait(gpu->device); /* Nothing uses the memory then, also after an error. */
	gpt_device_free(gpu->device, gpu->tokens);
	gpt_device_host_free(gpu->device, gpu->staged);
	gpt_device_free(gpu->device, gpu->marks);
	gpt_device_free(gpu->device, gpu->square_grads);
	gpt_device_free(gpu->device, gpu->pointers);
	for (uint32_t i = 0; i < _GPT_NARROWED_COUNT; i++)
		gpt_device_free(gpu->device, gpu->narrowed[i]);
	free(gpu->marked);
	free(gpu);
}

static const struct gpt_layers_ops gpu_ops = {
	.linear_forward = linear_forward,
	.linear_backward = linear_backward,
	.layernorm_forward = layernorm_forward,
	.layernorm_backward = layernorm_backward,
	.gelu_forward = gelu_forward,
	.gelu_backward = gelu_backward,
	.attention_forward = gpt_gpu_attention_forward,
	.attention_backward = gpt_gpu_attention_backward,
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

/* Return: whether all of it is there. */
static bool allocate(struct gpt_gpu_layers *gpu, const struct gpt_config *config, bool is_bf16)
{
	struct gpt_device *device = gpu->device;
	uint64_t n = gpu->row_count, c = config->channel_count, t = config->sequence_count;
	uint64_t heads = (uint64_t)config->batch_count * config->head_count;
	uint64_t strips = (t + GPT_SQUARE_ROWS - 1) / GPT_SQUARE_ROWS;
	const uint64_t counts[_GPT_NARROWED_COUNT] = {
		[GPT_NARROWED_WIDE] = n * gpt_larger(4 * c, GPT_VOCAB),
		[GPT_NARROWED_SQUARE] = gpt_larger(n * 4 * c, heads * t * t),
		[GPT_NARROWED_HEADS] = n * c,
	};

	gpu->tokens = gpt_device_alloc(device, _GPT_TOKENS_COUNT * n);
	gpu->staged = gpt_device_host_alloc(device, _GPT_TOKENS_COUNT * n);
	gpu->marks = gpt_device_alloc(device, n * sizeof(*gpu->marks));
	gpu->marked = calloc(n, sizeof(*gpu->marked));
	gpu->square_grads = gpt_device_alloc(device, heads * t * t * sizeof(float));
	gpu->pointers = gpt_device_alloc(device, strips * GPT_HEAD_MATRICES * heads *
	                                                 sizeof(*gpu->pointers));
	for (uint32_t i = 0; is_bf16 && i < _GPT_NARROWED_COUNT; i++)
		gpu->narrowed[i] = gpt_device_alloc(device, counts[i] * sizeof(uint16_t));
	return gpu->marked && !gpt_device_error(device);
}

struct gpt_layers *gpt_layers_gpu_new(struct gpt_device *device, const struct gpt_config *config,
                                      bool is_bf16)
{
	struct gpt_gpu_layers *gpu = calloc(1, sizeof(*gpu));

	if (!gpu)
		return NULL;
	gpu->base.ops = &gpu_ops;
	gpu->device = device;
	gpu->row_count = (uint64_t)config->batch_count * config->sequence_count;
	if (!allocate(gpu, config, is_bf16)) {
		layers_free(&gpu->base);
		return NULL;
	}
	return &gpu->base;
}
