/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of a model on a whole text: windows of T bytes one behind the other, each predicted from
 * its own beginning on. What is left at the end, less than T bytes, is not looked at. */
#pragma once

#include "examples/gpt/activations.h"
#include "examples/gpt/data.h"

/* Windows of a text, and bytes that are predicted in them. */
uint64_t gpt_measure_windows(const struct gpt_corpus *corpus, uint32_t sequence_count);

/* @rank, @world_count: which batches of windows are this caller's. @ret_sum: of their bytes' cross
 * entropy in nats. Return: 0, -ENOMEM, what the backend answered. */
int gpt_measure(struct gpt_units *units, struct gpt_activations *acts,
                const struct gpt_corpus *corpus, uint32_t rank, uint32_t world_count,
                double *ret_sum, struct gpt_problem *problem);
