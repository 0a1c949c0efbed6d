/* SPDX-License-Identifier: Apache-2.0 */
/* What --eval and --generate, which use what was trained, say together with the rest. */
#pragma once

#include "examples/gpt/args.h"

/* Fills in what follows from the flags. -EINVAL with the reason: they cannot be. */
int gpt_use_check(struct gpt_args *args, struct gpt_problem *problem);
