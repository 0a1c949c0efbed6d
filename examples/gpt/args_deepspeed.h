/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --deepspeed-config: DeepSpeed's JSON as the settings of a run (docs/DEEPSPEED.md). Flags that are
 * given go before it, and are told where they differ; what the file leaves to the trainer (the
 * model, the schedule where it has none, "auto") comes from the flags and their defaults.
 */
#pragma once

#include <stdio.h>

#include "examples/gpt/args.h"

/*
 * Reads args->deepspeed, if it was given, into @args, and checks all of them together. Behind
 * gpt_args_environment(): sizes depend on the number of ranks. @notes: gets a line for each key
 * that does nothing here and each flag that goes before a key; NULL: they are told by somebody
 * else. Return: 0; -EINVAL, -EOPNOTSUPP and errors of the file system with the reason.
 */
int gpt_deepspeed_apply(struct gpt_args *args, FILE *notes, struct gpt_problem *problem);
