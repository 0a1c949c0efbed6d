/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: backward of each layer is the derivative of its forward. Method: a random weighting makes
 * one number of a layer's outputs; every input and parameter is moved up and down, and the
 * difference is held against what backward says. Sizes are odd, so that no two dimensions can be
 * mixed up unseen.
 */
#include <string.h>

#include "examples/gpt/layers_cpu.h"
#include "examples/gpt/vector.h"
#include "tests/unit/gpt/difference.h"

enum { ROWS = 5, INPUTS = 19, OUTPUTS = 7 };

struct linear {
	float in[ROWS * INPUTS], weight[OUTPUTS * INPUTS], bias[OUTPUTS], dout[ROWS * OUTPUTS];
};

static const struct gpt_linear linear = { ROWS, INPUTS, OUTPUTS, ZINF_F32 };

/* Two threads, for all tests of this file. */
static struct gpt_team *team(void)
{
	static struct gpt_team *team;

	if (!team)
		team = gpt_team_new(2, 1 << 20, 1 << 20);
	cr_assert(team);
	return team;
}

static void linear_backward(const struct linear *l, bool keep, float *din, float *dweight,
                            float *dbias)
{
	const struct gpt_linear_grads grads = { din, dweight, dbias, ZINF_F32, keep, keep };

	gpt_linear_backward(team(), &linear, l->in, l->weight, l->dout, &grads);
}

static double linear_value(void *arg)
{
	struct linear *l = arg;
	float out[ROWS * OUTPUTS];

	gpt_linear_forward(team(), &linear, l->in, l->weight, l->bias, out);
	return dot_f64(out, l->dout, ROWS * OUTPUTS);
}

Test(layers, linear_backward_is_the_derivative)
{
	static struct linear l;
	float din[ROWS * INPUTS], dweight[OUTPUTS * INPUTS], dbias[OUTPUTS];

	fill_normal((float *)&l, sizeof(l) / sizeof(float), 1, 1.0);
	memset(dweight, 0x7f, sizeof(dweight)); /* Replaced, not added to. */
	memset(dbias, 0x7f, sizeof(dbias));
	linear_backward(&l, false, din, dweight, dbias);
	expect_gradient(linear_value, &l, l.in, din, ROWS * INPUTS, "in");
	expect_gradient(linear_value, &l, l.weight, dweight, OUTPUTS * INPUTS, "weight");
	expect_gradient(linear_value, &l, l.bias, dbias, OUTPUTS, "bias");
}

Test(layers, a_kept_gradient_is_added_to)
{
	static struct linear l;
	float dweight[OUTPUTS * INPUTS], dbias[OUTPUTS], twice[OUTPUTS * INPUTS];

	fill_normal((float *)&l, sizeof(l) / sizeof(float), 2, 1.0);
	linear_backward(&l, false, NULL, dweight, dbias);
	memcpy(twice, dweight, sizeof(twice));
	linear_backward(&l, true, NULL, twice, dbias);
	for (unsigned i = 0; i < OUTPUTS * INPUTS; i++)
		cr_expect_float_eq(twice[i], 2 * dweight[i], 1e-4);
}

struct layernorm {
	float in[ROWS * INPUTS], weight[INPUTS], bias[INPUTS], dout[ROWS * INPUTS];
};

static struct gpt_layernorm norm_of(const struct layernorm *l, float *stats)
{
	return (struct gpt_layernorm){ ROWS, INPUTS, l->in, l->weight, l->bias, stats };
}

static void layernorm_forward(const struct layernorm *l, float *out, float *stats)
{
	const struct gpt_layernorm norm = norm_of(l, stats);

	gpt_layernorm_forward(team(), &norm, out);
}

static void layernorm_backward(const struct layernorm *l, float *stats, float *din, float *dweight,
                               float *dbias)
{
	const struct gpt_layernorm norm = norm_of(l, stats);

	gpt_layernorm_backward(team(), &norm, l->dout, false, din, dweight, dbias);
}

static double layernorm_value(void *arg)
{
	struct layernorm *l = arg;
	float out[ROWS * INPUTS], stats[ROWS * 2];

	layernorm_forward(l, out, stats);
	return dot_f64(out, l->dout, ROWS * INPUTS);
}

Test(layers, layernorm_backward_is_the_derivative)
{
	static struct layernorm l;
	float out[ROWS * INPUTS], stats[ROWS * 2];
	float din[ROWS * INPUTS] = { 0 }, dweight[INPUTS], dbias[INPUTS];

	fill_normal((float *)&l, sizeof(l) / sizeof(float), 3, 1.0);
	layernorm_forward(&l, out, stats);
	layernorm_backward(&l, stats, din, dweight, dbias);
	expect_gradient(layernorm_value, &l, l.in, din, ROWS * INPUTS, "in");
	expect_gradient(layernorm_value, &l, l.weight, dweight, INPUTS, "weight");
	expect_gradient(layernorm_value, &l, l.bias, dbias, INPUTS, "bias");
}

Test(layers, layernorm_adds_to_the_gradient_of_its_input)
{
	static struct layernorm l;
	float out[ROWS * INPUTS], stats[ROWS * 2], dweight[INPUTS], dbias[INPUTS];
	float alone[ROWS * INPUTS] = { 0 }, joined[ROWS * INPUTS];

	fill_normal((float *)&l, sizeof(l) / sizeof(float), 4, 1.0);
	for (unsigned i = 0; i < ROWS * INPUTS; i++)
		joined[i] = 1.0f;
	layernorm_forward(&l, out, stats);
	layernorm_backward(&l, stats, alone, dweight, dbias);
	layernorm_backward(&l, stats, joined, dweight, dbias);
	for (unsigned i = 0; i < ROWS * INPUTS; i++)
		cr_expect_float_eq(joined[i], alone[i] + 1.0f, 1e-5);
}

struct gelu {
	float in[ROWS * INPUTS], dout[ROWS * INPUTS];
};

static double gelu_value(void *arg)
{
	struct gelu *g = arg;
	float out[ROWS * INPUTS];

	gpt_gelu_forward(team(), ROWS * INPUTS, g->in, out);
	return dot_f64(out, g->dout, ROWS * INPUTS);
}

Test(layers, gelu_backward_is_the_derivative)
{
	static struct gelu g;
	float din[ROWS * INPUTS];

	fill_normal((float *)&g, sizeof(g) / sizeof(float), 5, 1.5);
	gpt_gelu_backward(team(), ROWS * INPUTS, g.in, g.dout, din);
	expect_gradient(gelu_value, &g, g.in, din, ROWS * INPUTS, "in");
}

Test(layers, gelu_is_that_of_gpt2)
{
	const float in[] = { -20.0f, -3.0f, -1.0f, 0.0f, 0.5f, 2.0f, 20.0f };
	float out[7];

	gpt_gelu_forward(team(), 7, in, out);
	for (unsigned i = 0; i < 7; i++) {
		double x = (double)in[i];
		double want = 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));

		cr_expect_float_eq((double)out[i], want, 1e-6 + 1e-6 * fabs(want));
	}
}

static const struct gpt_attention_shape shape = {
	.batch_count = 2, .sequence_count = 5, .channel_count = 6, .head_count = 2
};
enum { TOKENS = 5, ATT_N = 10, ATT_C = 6, ATT = 2 * 2 * 5 * 5 };

struct attention {
	float qkv[ATT_N * 3 * ATT_C], dout[ATT_N * ATT_C];
};

static double attention_value(void *arg)
{
	struct attention *a = arg;
	float att[ATT], out[ATT_N * ATT_C];

	gpt_attention_forward(team(), &shape, a->qkv, att, out);
	return dot_f64(out, a->dout, ATT_N * ATT_C);
}

Test(layers, attention_backward_is_the_derivative)
{
	static struct attention a;
	float att[ATT], out[ATT_N * ATT_C], dqkv[ATT_N * 3 * ATT_C];

	fill_normal((float *)&a, sizeof(a) / sizeof(float), 6, 1.0);
	gpt_attention_forward(team(), &shape, a.qkv, att, out);
	gpt_attention_backward(team(), &shape, a.qkv, att, a.dout, dqkv);
	expect_gradient(attention_value, &a, a.qkv, dqkv, ATT_N * 3 * ATT_C, "qkv");
}

Test(layers, attention_never_looks_ahead)
{
	static struct attention a;
	float att[ATT], before[ATT_N * ATT_C], after[ATT_N * ATT_C];

	fill_normal((float *)&a, sizeof(a) / sizeof(float), 7, 1.0);
	gpt_attention_forward(team(), &shape, a.qkv, att, before);
	for (unsigned i = 0; i < 3 * ATT_C; i++) /* the last token of the first sequence */
		a.qkv[(TOKENS - 1) * 3 * ATT_C + i] += 1.0f;
	gpt_attention_forward(team(), &shape, a.qkv, att, after);
	cr_expect_eq(memcmp(before, after, (TOKENS - 1) * ATT_C * sizeof(float)), 0);
	cr_expect_neq(memcmp(before, after, TOKENS * ATT_C * sizeof(float)), 0);
}

struct embedding {
	float wte[256 * 3], wpe[TOKENS * 3], dout[ATT_N * 3];
};
static const uint8_t tokens[ATT_N] = { 7, 7, 255, 0, 7, 1, 2, 255, 255, 9 };

static double embedding_value(void *arg)
{
	struct embedding *e = arg;
	const struct gpt_embedding embedding = { 2, TOKENS, 3, tokens, e->wte, e->wpe, ZINF_F32 };
	float out[ATT_N * 3];

	gpt_embedding_forward(&embedding, out);
	return dot_f64(out, e->dout, ATT_N * 3);
}

Test(layers, embedding_backward_is_the_derivative)
{
	static struct embedding e;
	const struct gpt_embedding embedding = { 2, TOKENS, 3, tokens, e.wte, e.wpe, ZINF_F32 };
	float dwte[256 * 3], dwpe[TOKENS * 3];

	fill_normal((float *)&e, sizeof(e) / sizeof(float), 8, 1.0);
	memset(dwte, 0x7f, sizeof(dwte));
	memset(dwpe, 0x7f, sizeof(dwpe));
	gpt_embedding_backward(&embedding, e.dout, false, false, dwte, dwpe);
	expect_gradient(embedding_value, &e, e.wte, dwte, 256 * 3, "wte");
	expect_gradient(embedding_value, &e, e.wpe, dwpe, TOKENS * 3, "wpe");
}

struct loss {
	float logits[ROWS * OUTPUTS];
};
static const uint8_t targets[ROWS] = { 0, 6, 3, 3, 1 };

static double loss_value(void *arg)
{
	struct loss *l = arg;
	float copy[ROWS * OUTPUTS];

	memcpy(copy, l->logits, sizeof(copy));
	return gpt_loss_forward(ROWS, OUTPUTS, targets, copy);
}

Test(layers, loss_backward_is_the_derivative)
{
	static struct loss l;
	float grad[ROWS * OUTPUTS];

	fill_normal(l.logits, ROWS * OUTPUTS, 9, 2.0);
	memcpy(grad, l.logits, sizeof(grad));
	(void)gpt_loss_forward(ROWS, OUTPUTS, targets, grad);
	gpt_loss_backward(ROWS, OUTPUTS, targets, 1.0f / ROWS, grad);
	expect_gradient(loss_value, &l, l.logits, grad, ROWS * OUTPUTS, "logits");
}

Test(layers, loss_of_equal_logits_is_the_log_of_the_classes)
{
	struct loss l = { 0 };

	cr_expect_float_eq(loss_value(&l), log(OUTPUTS), 1e-6);
}

Test(layers, exp_is_right_to_a_few_ulps_and_keeps_nan)
{
	for (double x = -87; x <= 88; x += 0.0137) {
		double want = exp((double)(float)x);

		cr_assert_float_eq((double)gpt_exp((float)x), want, 3e-7 * want, "at %g", x);
	}
	cr_expect(isnan(gpt_exp(NAN)));
	cr_expect_eq(gpt_exp(0.0f), 1.0f);
	cr_expect_gt(gpt_exp(-INFINITY), 0.0f); /* taken as -87 */
	cr_expect(isfinite(gpt_exp(INFINITY)));
}

Test(layers, sums_take_every_element_once)
{
	float x[67], y[67];

	for (uint64_t count = 1; count <= 67; count++) {
		for (unsigned i = 0; i < 67; i++) {
			x[i] = (float)(i + 1);
			y[i] = i < count ? 2.0f : 1e9f;
		}
		cr_expect_eq(gpt_sum(x, count), (float)(count * (count + 1) / 2));
		cr_expect_eq(gpt_dot(x, y, count), (float)(count * (count + 1)));
		cr_expect_eq(gpt_max(x, count), (float)count);
	}
}
