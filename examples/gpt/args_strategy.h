/* SPDX-License-Identifier: Apache-2.0 */
/* What --strategy and --shard-size say together. */
#pragma once

#include "examples/gpt/args.h"
#include "zinf/zinf.h"

/* -EINVAL with the reason: no such name, or a size that means nothing to it. */
int gpt_strategy_check(const struct gpt_args *args, struct gpt_problem *problem);
/* Of flags that were checked. */
void gpt_strategy_set(const struct gpt_args *args, struct zinf_options *options);
/* "zero3" of "fsdp": of several names for one thing the first. */
const char *gpt_strategy_name(const struct gpt_args *args);
