/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the whole model's gradient is the derivative of its loss, accumulation is what
 * docs/ARITHMETIC.md says, and the table of parameters is GPT-2's. Method: a tiny model on the
 * reference backend; every parameter tensor is moved along its own gradient and along a random
 * direction.
 */
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/bf16.h"
#include "tests/unit/gpt/fixture.h"

static const struct gpt_config tiny = {
	.layer_count = 2, .head_count = 2, .channel_count = 8, .sequence_count = 6, .batch_count = 3
};

static double forward(struct fixture *f, unsigned batch)
{
	double loss = NAN;

	cr_assert_eq(gpt_forward(&f->units, &f->acts, f->inputs[batch], f->targets[batch], &loss),
	             0);
	return loss;
}

static void forward_backward(struct fixture *f, unsigned batch, uint32_t micro_index,
                             uint32_t micro_count)
{
	f->units.place =
		(struct gpt_units_place){ .micro_index = micro_index, .micro_count = micro_count };
	(void)forward(f, batch);
	cr_assert_eq(gpt_backward(&f->units, &f->acts, f->inputs[batch], f->targets[batch]), 0);
}

/* The loss when a parameter is moved by @step along @direction. */
static double moved(struct fixture *f, uint32_t param, const float *direction, double step)
{
	float *x = (float *)f->backend->ops->param(f->backend, param);
	uint64_t count = f->model.params[param].element_count;
	float *saved = malloc(count * sizeof(*saved));
	double loss;

	memcpy(saved, x, count * sizeof(*x));
	for (uint64_t i = 0; i < count; i++)
		x[i] = (float)((double)x[i] + step * (double)direction[i]);
	loss = forward(f, 0);
	memcpy(x, saved, count * sizeof(*x));
	free(saved);
	return loss;
}

Test(model, gradient_of_every_parameter_is_the_derivative_of_the_loss)
{
	static struct fixture f;

	set_up(&f, &tiny, NULL, NULL);
	forward_backward(&f, 0, 0, 1);
	for (uint32_t p = 0; p < f.model.param_count; p++) {
		uint64_t count = f.model.params[p].element_count;
		const float *grad = f.backend->ops->grad(f.backend, 0, p);
		double norm = sqrt(dot_f64(grad, grad, count));
		float *direction = calloc(count, sizeof(*direction));

		for (unsigned kind = 0; kind < 2; kind++) {
			double numeric, said;

			fill_normal(direction, count, 1000 + p, 1.0 / sqrt((double)count));
			for (uint64_t i = 0; kind == 0 && i < count; i++)
				direction[i] = (float)((double)grad[i] / norm);
			numeric = (moved(&f, p, direction, 1e-2) - moved(&f, p, direction, -1e-2)) /
			          2e-2;
			said = dot_f64(grad, direction, count);
			cr_expect_float_eq(said, numeric, 0.01 * norm + 1e-4,
			                   "%s, direction %u: gradient %g, difference %g",
			                   f.model.params[p].name, kind, said, numeric);
		}
		/* The bias of K moves every score of a row alike: its gradient alone may be
		 * small. */
		cr_expect_gt(norm, 1e-3, "%s has no gradient", f.model.params[p].name);
		free(direction);
	}
	tear_down(&f);
}

Test(model, local_micro_batches_add_up_in_f32)
{
	static struct fixture f;
	float *first, *second;
	uint64_t count;

	set_up(&f, &tiny, NULL, NULL);
	count = f.model.params[GPT_WTE].element_count;
	first = calloc(count, sizeof(*first));
	second = calloc(count, sizeof(*second));
	forward_backward(&f, 0, 0, 2);
	memcpy(first, f.backend->ops->grad(f.backend, 0, GPT_WTE), count * sizeof(*first));
	forward_backward(&f, 1, 0, 2);
	memcpy(second, f.backend->ops->grad(f.backend, 0, GPT_WTE), count * sizeof(*second));
	forward_backward(&f, 0, 0, 2);
	forward_backward(&f, 1, 1, 2);
	for (uint64_t i = 0; i < count; i++) {
		const float *both = f.backend->ops->grad(f.backend, 0, GPT_WTE);

		cr_assert_float_eq(both[i], first[i] + second[i], 1e-6);
	}
	/* The mean over the step: a micro-batch of two weighs half as much as one alone. */
	forward_backward(&f, 0, 0, 1);
	for (uint64_t i = 0; i < count; i++) {
		const float *alone = f.backend->ops->grad(f.backend, 0, GPT_WTE);

		cr_assert_float_eq(alone[i], 2 * first[i], 1e-6);
	}
	free(first);
	free(second);
	tear_down(&f);
}

Test(model, sharded_micro_batches_replace_each_other)
{
	static struct fixture f;
	uint64_t bytes;
	void *second;

	set_up(&f, &tiny, "--grad-reduction=per_micro_batch", NULL);
	bytes = f.model.params[GPT_WTE].element_count * sizeof(float);
	second = malloc(bytes);
	forward_backward(&f, 1, 0, 2);
	memcpy(second, f.backend->ops->grad(f.backend, 0, GPT_WTE), bytes);
	forward_backward(&f, 0, 0, 2);
	forward_backward(&f, 1, 1, 2);
	cr_expect_eq(memcmp(second, f.backend->ops->grad(f.backend, 0, GPT_WTE), bytes), 0);
	free(second);
	tear_down(&f);
}

/* Gradients of one micro-batch in f32, with bf16 parameters: what is rounded. */
static float *exact_grads(unsigned batch, uint32_t param, uint64_t *ret_count)
{
	static struct fixture f;
	float *copy;

	set_up(&f, &tiny, "--bf16", "--f32-grads");
	forward_backward(&f, batch, 0, 2);
	*ret_count = f.model.params[param].element_count;
	copy = malloc(*ret_count * sizeof(*copy));
	memcpy(copy, f.backend->ops->grad(f.backend, 0, param), *ret_count * sizeof(*copy));
	tear_down(&f);
	return copy;
}

Test(model, bf16_buffers_round_after_every_micro_batch)
{
	static struct fixture f;

	set_up(&f, &tiny, "--bf16", NULL);
	forward_backward(&f, 0, 0, 2);
	forward_backward(&f, 1, 1, 2);
	for (uint32_t p = 0; p < 4; p++) {
		uint64_t count = 0;
		float *first = exact_grads(0, p, &count);
		float *second = exact_grads(1, p, &count);
		const uint16_t *got = f.backend->ops->grad(f.backend, 0, p);

		for (uint64_t i = 0; i < count; i++) {
			float begun = gpt_bf16_widen(gpt_bf16_round(first[i]));

			cr_assert_eq(got[i], gpt_bf16_round(begun + second[i]));
		}
		free(first);
		free(second);
	}
	tear_down(&f);
}

Test(model, table_is_that_of_gpt2)
{
	struct gpt_problem problem;
	struct gpt_model model;
	/* wte, wpe; per block 12 C^2 + 13 C; the last norm */
	uint64_t c = tiny.channel_count;
	uint64_t want = 256 * c + 6 * c + 2 * (12 * c * c + 13 * c) + 2 * c;

	cr_assert_eq(gpt_model_init(&model, &tiny, &problem), 0);
	cr_expect_eq(model.unit_count, 4);
	cr_expect_eq(model.param_count, 2 + 2 * 12 + 2);
	cr_expect_eq(model.element_count, want);
	cr_expect_str_eq(model.params[2].name, "block.0.ln1.weight");
	for (uint32_t u = 0; u < model.unit_count; u++) {
		cr_expect_eq(model.units[u].padded_count % 4096, 0);
		cr_expect_eq(model.units[u].global_index % 4096, 0);
		cr_expect_leq(model.units[u].element_count, model.units[u].padded_count);
	}
	gpt_model_deinit(&model);
}

Test(model, first_values_depend_on_the_seed_alone)
{
	struct gpt_problem problem;
	struct gpt_model model;
	float a[256 * 8], b[256 * 8];
	double sum = 0;

	cr_assert_eq(gpt_model_init(&model, &tiny, &problem), 0);
	gpt_model_first_values(&model, GPT_WTE, 1, a);
	gpt_model_first_values(&model, GPT_WPE, 1, b); /* draws nothing from the other's stream */
	gpt_model_first_values(&model, GPT_WTE, 1, b);
	cr_expect_eq(memcmp(a, b, sizeof(a)), 0);
	gpt_model_first_values(&model, GPT_WTE, 2, b);
	cr_expect_neq(memcmp(a, b, sizeof(a)), 0);
	for (unsigned i = 0; i < 256 * 8; i++)
		sum += (double)a[i] * (double)a[i];
	cr_expect_float_eq(sqrt(sum / (256 * 8)), 0.02, 0.001);
	gpt_model_first_values(&model, 2, 1, b); /* a layer norm's weight */
	cr_expect_eq(b[0], 1.0f);
	gpt_model_deinit(&model);
}

Test(model, odd_heads_are_refused)
{
	struct gpt_config config = tiny;
	struct gpt_problem problem;
	struct gpt_model model;

	config.head_count = 3;
	cr_expect_lt(gpt_model_init(&model, &config, &problem), 0);
	cr_expect(strstr(problem.chars, "--d-model 8"));
	cr_expect(strstr(problem.chars, "--heads 3"));
	gpt_model_deinit(&model);
	config = tiny;
	config.layer_count = 0;
	cr_expect_lt(gpt_model_init(&model, &config, &problem), 0);
	gpt_model_deinit(&model);
}
