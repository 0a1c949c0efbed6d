/* SPDX-License-Identifier: Apache-2.0 */
/* Where a run begins, and what is committed so that it can go on. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "examples/gpt/report.h"
#include "examples/gpt/train.h"

#define GPT_BLOB_MAGIC 0x31544750464e495aull /* "ZINFPGT1" */

/* What lets a rank go on: committed with every step. Batches are named by (seed, step, micro-batch,
 * rank), so the step alone would do; the rest is compared and shown. */
struct gpt_blob {
	uint64_t magic;
	uint64_t step;
	uint64_t token_count;    /* of all ranks, since the beginning */
	uint64_t sequence_count; /* drawn by this rank: its position in the data */
	uint64_t rng_state;      /* of the last batch */
	uint64_t seed;
	uint64_t fingerprint; /* of the text */
	uint64_t lr_total;    /* gpt_lr_total() */
};

/* Jobs of older programs have blobs that end before ->lr_total. */
#define GPT_BLOB_BYTES_FIRST offsetof(struct gpt_blob, lr_total)

int gpt_begin(const struct gpt_run *run, struct gpt_backend *backend,
              const struct gpt_report *report, struct gpt_blob *ret_blob, uint64_t *ret_step,
              struct gpt_problem *problem);
