/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation on the CPU. */
#include <string.h>

#include "examples/gpt/element/norm.h"
#include "examples/gpt/layers_cpu.h"
#include "examples/gpt/vector.h"

#define PART_ROWS    16u
#define PART_COLUMNS 128u

struct job {
	const struct gpt_layernorm *norm;
	const float *dout;
	float *out; /* forward: (N, C); backward: din */
	float *dweight, *dbias;
	bool keep;
};

static uint64_t pieces(uint64_t count, uint64_t piece)
{
	return (count + piece - 1) / piece;
}

/* Up to the row @end. */
GPT_CLONES static void forward_rows(const struct gpt_norm_forward_args *args, uint64_t row,
                                    uint64_t end)
{
	for (; row < end; row++)
		gpt_norm_forward_row(args, row);
}

static uint64_t end_of(const struct job *job, uint64_t part)
{
	uint64_t end = (part + 1) * PART_ROWS;

	return end < job->norm->rows ? end : job->norm->rows;
}

static void forward_part(void *arg, uint64_t part, void *scratch)
{
	const struct job *job = arg;
	const struct gpt_norm_forward_args args = { .count = job->norm->rows,
		                                    .channels = job->norm->channels,
		                                    .in = job->norm->in,
		                                    .weight = job->norm->weight,
		                                    .bias = job->norm->bias,
		                                    .stats = job->norm->stats,
		                                    .out = job->out };

	(void)scratch;
	forward_rows(&args, part * PART_ROWS, end_of(job, part));
}

/* ret_out: (N, C). norm->stats: mean and 1 / deviation of each row. */
void gpt_layernorm_forward(struct gpt_team *team, const struct gpt_layernorm *norm, float *ret_out)
{
	struct job job = { .norm = norm, .out = ret_out };

	gpt_team_run(team, pieces(norm->rows, PART_ROWS), forward_part, &job);
}

GPT_CLONES static void backward_rows(const struct gpt_norm_backward_args *args, uint64_t row,
                                     uint64_t end)
{
	for (; row < end; row++)
		gpt_norm_backward_row(args, row);
}

static void backward_part(void *arg, uint64_t part, void *scratch)
{
	const struct job *job = arg;
	const struct gpt_norm_backward_args args = { .count = job->norm->rows,
		                                     .channels = job->norm->channels,
		                                     .in = job->norm->in,
		                                     .weight = job->norm->weight,
		                                     .stats = job->norm->stats,
		                                     .dout = job->dout,
		                                     .din = job->out };

	(void)scratch;
	backward_rows(&args, part * PART_ROWS, end_of(job, part));
}

/* Gradients of weight and bias, of some channels, in the order of the rows. */
GPT_CLONES static void sum_columns(const struct job *job, uint64_t first, uint64_t count)
{
	const struct gpt_layernorm *norm = job->norm;
	float *dweight = job->dweight + first, *dbias = job->dbias + first;

	if (!job->keep) {
		memset(dweight, 0, count * sizeof(*dweight));
		memset(dbias, 0, count * sizeof(*dbias));
	}
	for (uint64_t row = 0; row < norm->rows; row++) {
		const float *x = norm->in + row * norm->channels + first;
		const float *dy = job->dout + row * norm->channels + first;
		float mean = norm->stats[2 * row], scale = norm->stats[2 * row + 1];

		for (uint64_t i = 0; i < count; i++) {
			dweight[i] += gpt_norm_weight_term(x[i], dy[i], mean, scale);
			dbias[i] += dy[i];
		}
	}
}

static void sum_part(void *arg, uint64_t part, void *scratch)
{
	const struct job *job = arg;
	uint64_t first = part * PART_COLUMNS, rest = job->norm->channels - first;

	(void)scratch;
	sum_columns(job, first, rest < PART_COLUMNS ? rest : PART_COLUMNS);
}

/* dout: (N, C). din: (N, C), the gradient is *added* (it joins the residual stream's). dweight,
 * dbias: (C,). */
void gpt_layernorm_backward(struct gpt_team *team, const struct gpt_layernorm *norm,
                            const float *dout, bool keep, float *din, float *dweight, float *dbias)
{
	struct job job = { .norm = norm,
		           .dout = dout,
		           .out = din,
		           .dweight = dweight,
		           .dbias = dbias,
		           .keep = keep };

	gpt_team_run(team, pieces(norm->channels, PART_COLUMNS), sum_part, &job);
	gpt_team_run(team, pieces(norm->rows, PART_ROWS), backward_part, &job);
}
