/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the batches that zinf-gpt draws, for a trainer that is not it: for each step, micro-batch
 * and rank, in this order, the inputs (B, T) and then the targets (B, T), a byte for each token.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/data.h"
#include "examples/gpt/number.h"

enum { SEED, STEPS, MICROS, RANKS, BATCH, LENGTH, NUMBER_COUNT };

static int write_all(const struct gpt_corpus *corpus, const uint64_t *numbers, FILE *file)
{
	size_t count = numbers[BATCH] * numbers[LENGTH];
	uint8_t *inputs = calloc(count, 1), *targets = calloc(count, 1);
	struct gpt_batch_name name = { .seed = numbers[SEED] };
	int r = inputs && targets ? 0 : -ENOMEM;

	for (name.step = 1; name.step <= numbers[STEPS] && !r; name.step++)
		for (name.micro_index = 0; name.micro_index < numbers[MICROS]; name.micro_index++)
			for (name.rank = 0; name.rank < numbers[RANKS] && !r; name.rank++) {
				(void)gpt_corpus_batch(corpus, &name, (uint32_t)numbers[BATCH],
				                       (uint32_t)numbers[LENGTH], inputs, targets);
				if (fwrite(inputs, 1, count, file) != count ||
				    fwrite(targets, 1, count, file) != count)
					r = -errno;
			}
	free(inputs);
	free(targets);
	return r;
}

int main(int argc, char **argv)
{
	struct gpt_problem problem = { "" };
	struct gpt_corpus corpus = { 0 };
	uint64_t numbers[NUMBER_COUNT];
	int r;

	if (argc != 2 + NUMBER_COUNT) {
		(void)fprintf(stderr,
		              "usage: batches DATA SEED STEPS MICROS RANKS BATCH LENGTH >FILE\n");
		return 2;
	}
	for (int i = 0; i < NUMBER_COUNT; i++)
		if (gpt_parse_u64(argv[2 + i], &numbers[i])) {
			(void)fprintf(stderr, "batches: \"%s\" is no number\n", argv[2 + i]);
			return 2;
		}
	r = gpt_corpus_load(&corpus, argv[1], (uint32_t)numbers[LENGTH], &problem);
	if (!r) {
		r = write_all(&corpus, numbers, stdout);
		if (!r && fflush(stdout))
			r = -errno;
		if (r)
			(void)snprintf(problem.chars, sizeof(problem.chars), "writing: %s",
			               strerror(-r));
	}
	gpt_corpus_unload(&corpus);
	if (r)
		(void)fprintf(stderr, "batches: %s\n", problem.chars);
	return r ? 1 : 0;
}
