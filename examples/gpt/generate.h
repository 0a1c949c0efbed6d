/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text, byte by byte: forward over the newest --seq-len bytes, and one is drawn from what comes out
 * for the last of them. Nothing is kept between bytes: each costs a forward, whose units stream
 * through memory as in training.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "examples/gpt/activations.h"
#include "examples/gpt/units.h"

/* How a byte is drawn. */
struct gpt_sampling {
	double temperature; /* divides logits; 0: the likeliest, of equal ones the first */
	uint32_t top_k;     /* of the likeliest so many; 0: of all */
	uint64_t seed;
};

/* Takes each byte as it is drawn. Return: 0; anything else ends the text. */
typedef int (*gpt_emit_fn)(uint8_t byte, void *arg);

uint8_t gpt_sample(const float *logits, const struct gpt_sampling *sampling, uint64_t index);
int gpt_generate(struct gpt_units *units, struct gpt_activations *acts,
                 const struct gpt_sampling *sampling, uint8_t *text, size_t prompt_bytes,
                 uint64_t count, gpt_emit_fn emit, void *arg, struct gpt_problem *problem);
