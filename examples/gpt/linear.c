/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers on the CPU: three products, and the sums of the bias. */
#include <string.h>

#include "examples/gpt/layers_cpu.h"
#include "examples/gpt/linear_product.h"
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
	const struct gpt_product product = gpt_linear_output(linear, in, weight, bias, ret_out);

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
	struct gpt_product product;

	if (grads->in) {
		product = gpt_linear_input_grad(linear, weight, dout, grads->in);
		gpt_product(team, &product);
	}
	product = gpt_linear_weight_grad(linear, in, dout, grads);
	gpt_product(team, &product);
	if (grads->bias)
		gpt_team_run(team, (linear->outputs + SUM_COLUMNS - 1) / SUM_COLUMNS, sum_part,
		             &sums);
}
