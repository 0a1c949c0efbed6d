/* SPDX-License-Identifier: Apache-2.0 */
/* GELU, the tanh approximation (arXiv:1606.08415, section 2). */
#include "examples/gpt/layers.h"
#include "examples/gpt/vector.h"

#define ROOT_2_PI 0.7978845608f /* sqrt(2 / pi) */
#define CUBIC     0.044715f

#define PART_ELEMENTS 16384u

struct gelu {
	uint64_t count;
	const float *in, *dout; /* dout: NULL in forward */
	float *out;
};

/* tanh of the inner term. By exp(), as tanh(u) = 1 - 2 / (exp(2u) + 1). */
static inline float inner_tanh(float x)
{
	float u = ROOT_2_PI * (x + CUBIC * x * x * x);

	return 1.0f - 2.0f / (gpt_exp(2.0f * u) + 1.0f);
}

GPT_CLONES static void forward(uint64_t count, const float *in, float *ret_out)
{
	for (uint64_t i = 0; i < count; i++)
		ret_out[i] = 0.5f * in[i] * (1.0f + inner_tanh(in[i]));
}

GPT_CLONES static void backward(uint64_t count, const float *in, const float *dout, float *ret_din)
{
	for (uint64_t i = 0; i < count; i++) {
		float x = in[i];
		float t = inner_tanh(x);
		float du = ROOT_2_PI * (1.0f + 3.0f * CUBIC * x * x);

		ret_din[i] = dout[i] * (0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * du);
	}
}

static void gelu_part(void *arg, uint64_t part, void *scratch)
{
	const struct gelu *gelu = arg;
	uint64_t first = part * PART_ELEMENTS, rest = gelu->count - first;
	uint64_t count = rest < PART_ELEMENTS ? rest : PART_ELEMENTS;

	(void)scratch;
	if (gelu->dout)
		backward(count, gelu->in + first, gelu->dout + first, gelu->out + first);
	else
		forward(count, gelu->in + first, gelu->out + first);
}

static void run(struct gpt_team *team, struct gelu *gelu)
{
	gpt_team_run(team, (gelu->count + PART_ELEMENTS - 1) / PART_ELEMENTS, gelu_part, gelu);
}

/* in, ret_out: (count,). */
void gpt_gelu_forward(struct gpt_team *team, uint64_t count, const float *in, float *ret_out)
{
	run(team, &(struct gelu){ .count = count, .in = in, .out = ret_out });
}

/* in, dout, ret_din: (count,). ret_din may be dout. */
void gpt_gelu_backward(struct gpt_team *team, uint64_t count, const float *in, const float *dout,
                       float *ret_din)
{
	run(team, &(struct gelu){ .count = count, .in = in, .dout = dout, .out = ret_din });
}
