/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate that the command line asks for. */
#pragma once

#include "examples/gpt/args.h"
#include "zinf/lr.h"

/* What no flag's value is: the schedule's own default. */
#define GPT_LR_UNSET       (-1.0)
#define GPT_LR_UNSET_COUNT UINT64_MAX

/* Whether the flags make a schedule, and are all of it. -EINVAL with the reason. */
int gpt_lr_check(const struct gpt_args *args, struct gpt_problem *problem);

/* Updates to the end of the schedule; 0: it has no end, or a file names it. */
uint64_t gpt_lr_total(const struct gpt_args *args);

/* The value of a step. @step: from 1. @update_count: of the steps before it, those that changed the
 * parameters. A schedule goes by them: a step that was skipped does not move it. */
void gpt_lr(const struct gpt_args *args, uint64_t step, uint64_t update_count,
            struct zinf_lr_value *ret_value);
