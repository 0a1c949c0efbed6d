/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The norm of a step's gradients, which ranks may ask for before they end the step
 * (zinf_grad_norm()). It is known when all ranks have handed over all units. Floor 5, shard thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zero_job;
struct zero_op;
struct zi_text;

/* The sum of squares over the job, in f64: all sums are made, and the step wants a norm. */
double grad_norm_sum(struct zero_job *job);
/* GRAD_NORM, which waits: completes it when the norm is known. */
void grad_norm_try(struct zero_op *op);
/* Ranks that have gradients to hand over before it is known. */
uint64_t grad_norm_missing_mask(const struct zero_job *job);
/* Which ranks these are, and for which unit. Return: false, there are none; @ret_text is untouched.
 */
bool grad_norm_say_late(const struct zero_job *job, struct zi_text *ret_text);
