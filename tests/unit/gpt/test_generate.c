/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a byte is drawn as the flags say, the same one whenever it is drawn again; text goes on
 * from the newest bytes alone; and the loss of a text is that of its windows, whoever computes
 * which. Method: logits by hand; a tiny model on the reference backend.
 */
#include "examples/gpt/generate.h"

#include <errno.h>

#include "examples/gpt/layers_cpu.h"
#include "examples/gpt/measure.h"
#include "tests/unit/gpt/fixture.h"

static const struct gpt_config tiny = {
	.layer_count = 2, .head_count = 2, .channel_count = 8, .sequence_count = 6, .batch_count = 3
};

/* Ten bytes from 'a' on are likelier than all others, each half as likely as the one before. */
static void ten_letters(float logits[static GPT_VOCAB])
{
	for (unsigned i = 0; i < GPT_VOCAB; i++)
		logits[i] = -1000;
	for (unsigned i = 0; i < 10; i++)
		logits['a' + i] = 5.0f - (float)i * 0.69314718f;
}

Test(generate, at_temperature_0_it_is_the_first_of_the_likeliest)
{
	const struct gpt_sampling sampling = { .temperature = 0 };
	float logits[GPT_VOCAB];

	ten_letters(logits);
	for (uint64_t index = 0; index < 100; index++)
		cr_assert_eq(gpt_sample(logits, &sampling, index), 'a');
	logits['z'] = logits['a'];
	cr_expect_eq(gpt_sample(logits, &sampling, 0), 'a');
	logits['A'] = logits['a'];
	cr_expect_eq(gpt_sample(logits, &sampling, 0), 'A');
	logits[255] = 6;
	cr_expect_eq(gpt_sample(logits, &sampling, 0), 255);
}

enum { DRAWS = 40000 };

static void draw_many(const struct gpt_sampling *sampling, uint32_t counts[static GPT_VOCAB])
{
	float logits[GPT_VOCAB];

	ten_letters(logits);
	memset(counts, 0, GPT_VOCAB * sizeof(*counts));
	for (uint64_t index = 0; index < DRAWS; index++)
		counts[gpt_sample(logits, sampling, index)]++;
}

/* A share of DRAWS within 5 deviations of a binomial. */
static void expect_share(uint32_t count, double share, const char *what)
{
	double deviation = sqrt(DRAWS * share * (1 - share));

	cr_expect_float_eq(count, DRAWS * share, 5 * deviation + 1e-9, "%s: %u, not %.0f", what,
	                   count, DRAWS * share);
}

Test(generate, at_temperature_1_as_often_as_the_model_says)
{
	const struct gpt_sampling sampling = { .temperature = 1, .seed = 7 };
	uint32_t counts[GPT_VOCAB];
	double total = 2 - exp2(-9); /* 1 + 1/2 + … of ten */

	draw_many(&sampling, counts);
	for (unsigned i = 0; i < 10; i++)
		expect_share(counts['a' + i], exp2(-(double)i) / total, "a letter");
	for (unsigned i = 0; i < GPT_VOCAB; i++)
		if (i < 'a' || i >= 'a' + 10)
			cr_assert_eq(counts[i], 0);
}

Test(generate, temperature_makes_it_flatter_and_top_k_cuts_the_rest_off)
{
	struct gpt_sampling sampling = { .temperature = 2, .top_k = 3, .seed = 7 };
	uint32_t counts[GPT_VOCAB];
	double total = 1 + exp2(-0.5) + exp2(-1);

	draw_many(&sampling, counts);
	expect_share(counts['a'], 1 / total, "a");
	expect_share(counts['b'], exp2(-0.5) / total, "b");
	expect_share(counts['c'], exp2(-1) / total, "c");
	cr_expect_eq(counts['a'] + counts['b'] + counts['c'], DRAWS);
	sampling.top_k = 1;
	draw_many(&sampling, counts);
	cr_expect_eq(counts['a'], DRAWS);
	sampling = (struct gpt_sampling){ .temperature = 1e6, .top_k = 10, .seed = 7 };
	draw_many(&sampling, counts);
	for (unsigned i = 0; i < 10; i++)
		expect_share(counts['a' + i], 0.1, "all alike");
}

Test(generate, of_equal_ones_the_first_are_the_top_k)
{
	const struct gpt_sampling sampling = { .temperature = 1, .top_k = 2, .seed = 3 };
	float logits[GPT_VOCAB] = { 0 };

	for (uint64_t index = 0; index < 200; index++)
		cr_assert_lt(gpt_sample(logits, &sampling, index), 2);
}

/* ---- over a model ---- */

static int emit(uint8_t byte, void *arg)
{
	uint8_t **end = arg;

	*(*end)++ = byte;
	return 0;
}

Test(generate, the_same_text_comes_again_and_another_seed_has_another)
{
	static struct fixture f;
	const struct gpt_sampling sampling = { .temperature = 1, .seed = 4 };
	const struct gpt_sampling other = { .temperature = 1, .seed = 5 };
	uint8_t text[40] = "ab", again[40] = "ab", seen[40], *end = seen;
	struct gpt_problem problem;

	set_up(&f, &tiny, "--bf16", NULL);
	cr_assert_eq(gpt_generate(&f.units, &f.acts, &sampling, text, 2, 38, emit, &end, &problem),
	             0);
	cr_expect_eq(end - seen, 38);
	cr_expect_eq(memcmp(seen, text + 2, 38), 0);
	cr_assert_eq(gpt_generate(&f.units, &f.acts, &sampling, again, 2, 38, NULL, NULL, &problem),
	             0);
	cr_expect_eq(memcmp(text, again, 40), 0);
	cr_assert_eq(gpt_generate(&f.units, &f.acts, &other, again, 2, 38, NULL, NULL, &problem),
	             0);
	cr_expect_neq(memcmp(text, again, 40), 0);
	tear_down(&f);
}

/* Text of any length goes on as its last T bytes do; of less, as they do alone. */
Test(generate, each_byte_follows_from_the_newest_ones)
{
	static struct fixture f;
	const struct gpt_sampling sampling = { .temperature = 0 };
	uint8_t text[30] = "x";
	struct gpt_problem problem;

	set_up(&f, &tiny, NULL, NULL);
	cr_assert_eq(gpt_generate(&f.units, &f.acts, &sampling, text, 1, 29, NULL, NULL, &problem),
	             0);
	for (size_t at = 1; at < 30; at++) {
		size_t used = at < tiny.sequence_count ? at : tiny.sequence_count;
		uint8_t part[8];

		memcpy(part, text + at - used, used);
		cr_assert_eq(gpt_generate(&f.units, &f.acts, &sampling, part, used, 1, NULL, NULL,
		                          &problem),
		             0);
		cr_expect_eq(part[used], text[at], "byte %d", (int)at);
	}
	tear_down(&f);
}

Test(generate, a_model_that_diverged_is_named_as_such)
{
	static struct fixture f;
	const struct gpt_sampling sampling = { .temperature = 1 };
	struct gpt_problem problem = { "" };
	uint8_t text[4] = "ab";

	set_up(&f, &tiny, NULL, NULL);
	((float *)f.backend->ops->param(f.backend, GPT_WPE))[0] = NAN;
	cr_expect_eq(gpt_generate(&f.units, &f.acts, &sampling, text, 2, 2, NULL, NULL, &problem),
	             -ERANGE);
	cr_expect(strstr(problem.chars, "behind byte 2 is not finite: its training diverged"), "%s",
	          problem.chars);
	tear_down(&f);
}

static int refuse(struct gpt_backend *backend, uint32_t unit)
{
	(void)backend;
	(void)unit;
	return -EIO;
}

Test(generate, what_the_backend_refuses_is_told)
{
	static struct fixture f;
	const struct gpt_sampling sampling = { .temperature = 1 };
	struct gpt_corpus corpus = { .bytes = (uint8_t *)"0123456789", .byte_count = 10 };
	struct gpt_problem problem = { "" };
	struct gpt_backend_ops ops;
	uint8_t text[4] = "ab";
	double sum;

	set_up(&f, &tiny, NULL, NULL);
	ops = *f.backend->ops;
	ops.unshard = refuse;
	f.backend->ops = &ops;
	cr_expect_eq(gpt_generate(&f.units, &f.acts, &sampling, text, 2, 2, NULL, NULL, &problem),
	             -EIO);
	cr_expect_eq(gpt_measure(&f.units, &f.acts, &corpus, 0, 1, &sum, &problem), -EIO);
	tear_down(&f);
}

/* ---- the loss of a text ---- */

/* The sum of one window, as the first of a batch of its own. */
static double window_sum(struct fixture *f, const uint8_t *text)
{
	uint8_t inputs[TOKENS] = { 0 }, targets[TOKENS] = { 0 };

	memcpy(inputs, text, tiny.sequence_count);
	memcpy(targets, text + 1, tiny.sequence_count);
	cr_assert_eq(gpt_logits(&f->units, &f->acts, inputs, false), 0);
	return tiny.sequence_count *
	       gpt_loss_forward(tiny.sequence_count, GPT_VOCAB, targets, f->acts.logits);
}

Test(measure, it_is_the_sum_over_all_windows_whoever_has_them)
{
	static struct fixture f;
	uint8_t text[60];
	struct gpt_corpus corpus = { .bytes = text };
	struct gpt_problem problem;

	set_up(&f, &tiny, NULL, NULL);
	for (unsigned i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(i * 37 % 251);
	for (uint64_t bytes = 0; bytes <= sizeof(text); bytes++) {
		uint64_t window_count;
		double wanted = 0;

		corpus.byte_count = bytes;
		window_count = gpt_measure_windows(&corpus, tiny.sequence_count);
		cr_assert_eq(window_count, bytes < 7 ? 0 : (bytes - 1) / 6);
		for (uint64_t w = 0; w < window_count; w++)
			wanted += window_sum(&f, text + w * tiny.sequence_count);
		for (uint32_t world = 1; world <= 4; world++) {
			double sum = 0;

			for (uint32_t rank = 0; rank < world; rank++) {
				double part = NAN;

				cr_assert_eq(gpt_measure(&f.units, &f.acts, &corpus, rank, world,
				                         &part, &problem),
				             0);
				sum += part;
			}
			cr_expect_float_eq(sum, wanted, 1e-5 * wanted + 1e-12,
			                   "%d bytes, %u ranks: %g, not %g", (int)bytes, world, sum,
			                   wanted);
		}
	}
	tear_down(&f);
}
