/* SPDX-License-Identifier: Apache-2.0 */
/* GELU on the CPU. */
#include "examples/gpt/element/gelu.h"
#include "examples/gpt/layers_cpu.h"
#include "examples/gpt/vector.h"

#define PART_ELEMENTS 16384u

struct gelu {
	uint64_t count;
	const float *in, *dout; /* dout: NULL in forward */
	float *out;
};

GPT_CLONES static void forward(uint64_t count, const float *in, float *ret_out)
{
	for (uint64_t i = 0; i < count; i++)
		ret_out[i] = gpt_gelu(in[i]);
}

GPT_CLONES static void backward(uint64_t count, const float *in, const float *dout, float *ret_din)
{
	for (uint64_t i = 0; i < count; i++)
		ret_din[i] = gpt_gelu_grad(in[i], dout[i]);
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
