/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers: three products, and the sums of the bias. */
#include <string.h>

#include "examples/gpt/layers.h"
#include "examples/gpt/product.h"
#include "examples/gpt/vector.h"

/* Columns that one part sums, and elements that one part adds. */
#define SUM_COLUMNS  256u
#define ADD_ELEMENTS 16384u

struct sums {
	uint64_t rows, count;
	const float *x;
	float *sums;
	bool keep;
};

/* sums[j] (+)= sum over the rows of x[row][j], in the order of the rows. */
GPT_CLONES static void add_columns(const struct sums *sums, uint64_t first, uint64_t count)
{
	float *target = sums->sums + first;

	if (!sums->keep)
		memset(target, 0, count * sizeof(*target));
	for (uint64_t row = 0; row < sums->rows; row++) {
		const float *x = sums->x + row * sums->count + first;

		for (uint64_t j = 0; j < count; j++)
			target[j] += x[j];
	}
}

static void sum_part(void *arg, uint64_t part, void *scratch)
{
	const struct sums *sums = arg;
	uint64_t first = part * SUM_COLUMNS, rest = sums->count - first;

	(void)scratch;
	add_columns(sums, first, rest < SUM_COLUMNS ? rest : SUM_COLUMNS);
}

struct addition {
	uint64_t count;
	const float *x, *y;
	float *out;
};

GPT_CLONES static void add(uint64_t count, const float *x, const float *y, float *ret_out)
{
	for (uint64_t i = 0; i < count; i++)
		ret_out[i] = x[i] + y[i];
}

static void add_part(void *arg, uint64_t part, void *scratch)
{
	const struct addition *addition = arg;
	uint64_t first = part * ADD_ELEMENTS, rest = addition->count - first;

	(void)scratch;
	add(rest < ADD_ELEMENTS ? rest : ADD_ELEMENTS, addition->x + first, addition->y + first,
	    addition->out + first);
}

/* ret_out = x + y, element by element. ret_out may be x or y. */
void gpt_add(struct gpt_team *team, uint64_t count, const float *x, const float *y, float *ret_out)
{
	struct addition addition = { .count = count, .x = x, .y = y, .out = ret_out };

	gpt_team_run(team, (count + ADD_ELEMENTS - 1) / ADD_ELEMENTS, add_part, &addition);
}

/* in: (N, C) f32. weight: (O, C) of linear->weight_dtype. bias: (O,) f32, NULL for none. ret_out:
 * (N, O) f32. */
void gpt_linear_forward(struct gpt_team *team, const struct gpt_linear *linear, const float *in,
                        const void *weight, const float *bias, float *ret_out)
{
	const struct gpt_product product = {
		.row_count = linear->rows,
		.column_count = linear->outputs,
		.depth = linear->inputs,
		.left = { in, ZINF_F32, linear->inputs, 1 },
		.right = { weight, linear->weight_dtype, linear->inputs, 1 },
		.target = { .data = ret_out,
		            .dtype = ZINF_F32,
		            .row_stride = linear->outputs,
		            .bias = bias,
		            .scale = 1 },
		.is_bf16 = linear->weight_dtype == ZINF_BF16,
	};

	gpt_product(team, &product);
}

static void input_backward(struct gpt_team *team, const struct gpt_linear *linear,
                           const void *weight, const float *dout, float *ret_din)
{
	const struct gpt_product product = {
		.row_count = linear->rows,
		.column_count = linear->inputs,
		.depth = linear->outputs,
		.left = { dout, ZINF_F32, linear->outputs, 1 },
		.right = { weight, linear->weight_dtype, 1, linear->inputs },
		.target = { .data = ret_din,
		            .dtype = ZINF_F32,
		            .row_stride = linear->inputs,
		            .scale = 1 },
		.is_bf16 = linear->weight_dtype == ZINF_BF16,
	};

	gpt_product(team, &product);
}

static void weight_backward(struct gpt_team *team, const struct gpt_linear *linear, const float *in,
                            const float *dout, const struct gpt_linear_grads *grads)
{
	const struct gpt_product product = {
		.row_count = linear->outputs,
		.column_count = linear->inputs,
		.depth = linear->rows,
		.left = { dout, ZINF_F32, 1, linear->outputs },
		.right = { in, ZINF_F32, 1, linear->inputs },
		.target = { .data = grads->weight,
		            .dtype = grads->weight_dtype,
		            .row_stride = linear->inputs,
		            .is_adding = grads->keeps_weight,
		            .scale = 1 },
		.is_bf16 = linear->weight_dtype == ZINF_BF16,
	};

	gpt_product(team, &product);
}

/* in: (N, C), dout: (N, O), f32. weight: (O, C). */
void gpt_linear_backward(struct gpt_team *team, const struct gpt_linear *linear, const float *in,
                         const void *weight, const float *dout,
                         const struct gpt_linear_grads *grads)
{
	struct sums sums = { .rows = linear->rows,
		             .count = linear->outputs,
		             .x = dout,
		             .sums = grads->bias,
		             .keep = grads->keeps_bias };

	if (grads->in)
		input_backward(team, linear, weight, dout, grads->in);
	weight_backward(team, linear, in, dout, grads);
	if (grads->bias)
		gpt_team_run(team, (linear->outputs + SUM_COLUMNS - 1) / SUM_COLUMNS, sum_part,
		             &sums);
}
