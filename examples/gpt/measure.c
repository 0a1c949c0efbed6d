/* SPDX-License-Identifier: Apache-2.0 */
/* Batch by batch over a text. */
#include "examples/gpt/measure.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/layers.h"

uint64_t gpt_measure_windows(const struct gpt_corpus *corpus, uint32_t sequence_count)
{
	return corpus->byte_count ? (corpus->byte_count - 1) / sequence_count : 0;
}

/* A batch: windows from @first on, as many as there are. Return: how many. */
static uint32_t fill(const struct gpt_corpus *corpus, const struct gpt_config *config,
                     uint64_t first, uint8_t *inputs, uint8_t *targets)
{
	uint64_t window_count = gpt_measure_windows(corpus, config->sequence_count);
	uint64_t sequence = config->sequence_count;
	uint32_t count = 0;

	for (; count < config->batch_count && first + count < window_count; count++) {
		const uint8_t *text = corpus->bytes + (first + count) * sequence;

		memcpy(inputs + count * sequence, text, sequence);
		memcpy(targets + count * sequence, text + 1, sequence);
	}
	return count;
}

int gpt_measure(struct gpt_units *units, struct gpt_activations *acts,
                const struct gpt_corpus *corpus, uint32_t rank, uint32_t world_count,
                double *ret_sum, struct gpt_problem *problem)
{
	const struct gpt_config *config = &units->model->config;
	uint64_t window_count = gpt_measure_windows(corpus, config->sequence_count);
	uint64_t stride = (uint64_t)config->batch_count * world_count;
	uint8_t *inputs = calloc(acts->row_count, 1);
	uint8_t *targets = calloc(acts->row_count, 1);
	double sum = 0;
	int r = 0;

	if (!inputs || !targets)
		r = gpt_problem_set(problem, -ENOMEM, "No memory for a batch of text");
	for (uint64_t first = (uint64_t)rank * config->batch_count; !r && first < window_count;
	     first += stride) {
		uint64_t rows = (uint64_t)fill(corpus, config, first, inputs, targets) *
		                config->sequence_count;

		double loss = 0;

		r = gpt_logits(units, acts, inputs, false);
		if (!r)
			r = gpt_loss(units, acts, rows, targets, &loss);
		if (r)
			r = gpt_backend_problem(units->backend, r, problem);
		sum += (double)rows * loss;
	}
	free(inputs);
	free(targets);
	if (!r)
		*ret_sum = sum;
	return r;
}
