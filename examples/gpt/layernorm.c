/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation over the channels (arXiv:1607.06450), with GPT-2's epsilon. */
#include <math.h>
#include <string.h>

#include "examples/gpt/layers.h"
#include "examples/gpt/vector.h"

#define EPSILON      1e-5f
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

GPT_CLONES static void forward_row(const struct gpt_layernorm *norm, uint64_t row, float *y)
{
	const float *x = norm->in + row * norm->channels;
	const float *weight = norm->weight, *bias = norm->bias;
	uint64_t channels = norm->channels;
	float mean = gpt_sum(x, channels) / (float)channels;
	float scale;

	for (uint64_t i = 0; i < channels; i++)
		y[i] = x[i] - mean;
	scale = 1.0f / sqrtf(gpt_dot(y, y, channels) / (float)channels + EPSILON);
	for (uint64_t i = 0; i < channels; i++)
		y[i] = y[i] * scale * weight[i] + bias[i];
	norm->stats[2 * row] = mean;
	norm->stats[2 * row + 1] = scale;
}

static void forward_part(void *arg, uint64_t part, void *scratch)
{
	const struct job *job = arg;
	uint64_t end = (part + 1) * PART_ROWS;

	(void)scratch;
	for (uint64_t row = part * PART_ROWS; row < end && row < job->norm->rows; row++)
		forward_row(job->norm, row, job->out + row * job->norm->channels);
}

/* ret_out: (N, C). norm->stats: mean and 1 / deviation of each row. */
void gpt_layernorm_forward(struct gpt_team *team, const struct gpt_layernorm *norm, float *ret_out)
{
	struct job job = { .norm = norm, .out = ret_out };

	gpt_team_run(team, pieces(norm->rows, PART_ROWS), forward_part, &job);
}

/* With h = (in - mean) * scale and e = dout * weight:
 * din += scale * (e - mean(e) - h mean(e h)). */
GPT_CLONES static void backward_row(const struct gpt_layernorm *norm, uint64_t row, const float *dy,
                                    float *dx)
{
	const float *x = norm->in + row * norm->channels, *weight = norm->weight;
	float mean = norm->stats[2 * row], scale = norm->stats[2 * row + 1];
	float lanes_e[GPT_LANES] = { 0 }, lanes_eh[GPT_LANES] = { 0 };
	uint64_t channels = norm->channels, i = 0;
	float mean_e, mean_eh;

	for (; i + GPT_LANES <= channels; i += GPT_LANES)
		for (unsigned j = 0; j < GPT_LANES; j++) {
			float e = dy[i + j] * weight[i + j];

			lanes_e[j] += e;
			lanes_eh[j] += e * ((x[i + j] - mean) * scale);
		}
	for (unsigned j = 0; i < channels; i++, j++) {
		float e = dy[i] * weight[i];

		lanes_e[j] += e;
		lanes_eh[j] += e * ((x[i] - mean) * scale);
	}
	mean_e = gpt_join_lanes(lanes_e) / (float)channels;
	mean_eh = gpt_join_lanes(lanes_eh) / (float)channels;
	for (i = 0; i < channels; i++) {
		float h = (x[i] - mean) * scale;

		dx[i] += scale * (dy[i] * weight[i] - mean_e - h * mean_eh);
	}
}

static void backward_part(void *arg, uint64_t part, void *scratch)
{
	const struct job *job = arg;
	uint64_t channels = job->norm->channels, end = (part + 1) * PART_ROWS;

	(void)scratch;
	for (uint64_t row = part * PART_ROWS; row < end && row < job->norm->rows; row++)
		backward_row(job->norm, row, job->dout + row * channels, job->out + row * channels);
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
			dweight[i] += dy[i] * ((x[i] - mean) * scale);
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
