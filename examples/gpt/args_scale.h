/* SPDX-License-Identifier: Apache-2.0 */
/* The loss scale that the command line asks for. */
#pragma once

#include "examples/gpt/args.h"

/* What no flag's value is: the machine's own default. */
#define GPT_SCALE_UNSET (-1.0)

/* From flags to args->scaler: of fp16 always one, of other types none. -EINVAL with the reason. */
int gpt_scale_check(struct gpt_args *args, struct gpt_problem *problem);
/* What gradients are multiplied by where there is no scaler, and unscale of each step undoes. */
double gpt_fixed_scale(const struct gpt_args *args);
