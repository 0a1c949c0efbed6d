/* SPDX-License-Identifier: Apache-2.0 */
/* Drawing bytes from logits. */
#include "examples/gpt/generate.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/rng.h"

/* How many are likelier than @token; of equal ones the first counts as the likelier. */
static uint32_t place_of(const float *logits, uint32_t token)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < GPT_VOCAB; i++)
		count += logits[i] > logits[token] || (logits[i] == logits[token] && i < token);
	return count;
}

/* @logits: (V,), finite. @index: of the byte in the text that is drawn, so that it can be drawn
 * again. */
uint8_t gpt_sample(const float *logits, const struct gpt_sampling *sampling, uint64_t index)
{
	struct gpt_rng rng = gpt_rng_init(sampling->seed, GPT_RNG_TEXT, index, 0, 0);
	uint32_t kept_count = sampling->top_k ? sampling->top_k : GPT_VOCAB;
	double weights[GPT_VOCAB], total = 0, drawn;
	uint32_t best = 0, token = 0;

	for (uint32_t i = 1; i < GPT_VOCAB; i++)
		best = logits[i] > logits[best] ? i : best;
	if (sampling->temperature == 0)
		return (uint8_t)best;
	for (uint32_t i = 0; i < GPT_VOCAB; i++) {
		double below = (double)logits[i] - (double)logits[best];

		weights[i] =
			place_of(logits, i) < kept_count ? exp(below / sampling->temperature) : 0;
		total += weights[i];
	}
	drawn = (double)(gpt_rng_next(&rng) >> 11) * 0x1p-53 * total; /* below total */
	for (; token + 1 < GPT_VOCAB && drawn >= weights[token]; token++)
		drawn -= weights[token];
	return weights[token] > 0 ? (uint8_t)token
	                          : (uint8_t)best; /* Rounding went past the end. */
}

/* The logits behind @text: (text_bytes,). @inputs: (B, T), the first row is used. ret_logits:
 * (GPT_VOCAB,). */
static int logits_behind(struct gpt_units *units, struct gpt_activations *acts, const uint8_t *text,
                         size_t text_bytes, uint8_t *inputs, float *ret_logits)
{
	uint32_t sequence = units->model->config.sequence_count;
	size_t used = text_bytes < sequence ? text_bytes : sequence;
	int r;

	assert(used > 0);
	memcpy(inputs, text + text_bytes - used, used);
	r = gpt_logits(units, acts, inputs, false);
	if (r)
		return r;
	return units->layers->ops->fetch(units->layers, acts->logits + (used - 1) * GPT_VOCAB,
	                                 GPT_VOCAB * sizeof(float), ret_logits);
}

static bool is_finite(const float *logits)
{
	for (uint32_t i = 0; i < GPT_VOCAB; i++)
		if (!isfinite(logits[i]))
			return false;
	return true;
}

/*
 * @text: (@prompt_bytes + @count,), begins with the prompt, of a byte at least; the rest is
 * written. @emit: may be NULL. Return: 0; -ERANGE the model's output is not finite; -ENOMEM; what
 * the backend or @emit answered.
 */
int gpt_generate(struct gpt_units *units, struct gpt_activations *acts,
                 const struct gpt_sampling *sampling, uint8_t *text, size_t prompt_bytes,
                 uint64_t count, gpt_emit_fn emit, void *arg, struct gpt_problem *problem)
{
	uint8_t *inputs =
		calloc(acts->row_count, 1); /* What is behind the text is not looked at. */
	int r = 0;

	if (!inputs)
		return gpt_problem_set(problem, -ENOMEM, "No memory for %" PRIu64 " tokens",
		                       acts->row_count);
	for (uint64_t i = 0; !r && i < count; i++) {
		float logits[GPT_VOCAB] = { 0 };
		uint64_t index = prompt_bytes + i;

		r = logits_behind(units, acts, text, index, inputs, logits);
		if (r) {
			r = gpt_backend_problem(units->backend, r, problem);
		} else if (!is_finite(logits)) {
			r = gpt_problem_set(problem, -ERANGE,
			                    "the model's output behind byte %" PRIu64
			                    " is not finite: its training diverged; take an "
			                    "earlier snapshot",
			                    index);
		} else {
			text[index] = gpt_sample(logits, sampling, index);
			if (emit)
				r = emit(text[index], arg);
		}
	}
	free(inputs);
	return r;
}
