/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real text as tokens, one byte each. A batch is named by (seed, step, micro-batch, rank) and by
 * nothing else, so a resumed run and the reference draw the same ones.
 */
#pragma once

#include <stdint.h>

#include "examples/gpt/problem.h"

/* On every Debian system, about 250 KB of English. */
#define GPT_DATA_DEFAULT "/usr/share/common-licenses"

struct gpt_corpus {
	uint8_t *bytes;
	uint64_t byte_count;
	uint64_t train_count; /* the first 9/10 are trained on, the rest is for evaluation */
	uint64_t fingerprint; /* FNV-1a of all bytes: whether a resumed run reads the same text */
	uint32_t file_count;
};

/* Which batch. @is_eval: from the part that is not trained on; then step is not used. */
struct gpt_batch_name {
	uint64_t seed;
	uint64_t step;
	uint32_t micro_index;
	uint32_t rank;
	_Bool is_eval;
};

int gpt_corpus_read(struct gpt_corpus *corpus, const char *flag, const char *path,
                    struct gpt_problem *problem);
int gpt_corpus_load(struct gpt_corpus *corpus, const char *path, uint32_t sequence_count,
                    struct gpt_problem *problem);
void gpt_corpus_unload(struct gpt_corpus *corpus);
int gpt_corpus_check_text(const uint8_t *bytes, uint64_t byte_count, const char *flag,
                          const char *name, struct gpt_problem *problem);
uint64_t gpt_corpus_batch(const struct gpt_corpus *corpus, const struct gpt_batch_name *name,
                          uint32_t batch_count, uint32_t sequence_count, uint8_t *ret_inputs,
                          uint8_t *ret_targets);
