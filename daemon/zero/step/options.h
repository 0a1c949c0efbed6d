/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperparameters of a step; step.h has step_options_compare(). Floor 5, shard thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zero_job;
struct zero_op;
struct zi_step_options;
struct zi_text;

/* Groups of the step, and what only some optimizers have. Return: 0; -EINVAL, with @text. */
int options_check_groups(const struct zero_job *job, const struct zi_step_options *options,
                         struct zi_text *text);
int options_check_optimizer(const struct zero_job *job, const struct zi_step_options *options,
                            struct zi_text *text);
/* What @op brings of groups becomes its rank's; the caller's memory is not used afterwards. */
void options_keep_groups(struct zero_op *op);
/* The groups of @op's rank, which it has as many of as the step, beside those of the step, which
 * @model_rank gave. Return: 0; -EINVAL, with op->text. */
int options_compare_groups(const struct zero_job *job, struct zero_op *op, uint32_t model_rank);
/* The step was begun without its hyperparameters. */
bool options_are_deferred(const struct zero_job *job);
/* All ranks have ended the step: its hyperparameters are known. */
void options_settle(struct zero_job *job);
