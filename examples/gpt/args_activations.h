/* SPDX-License-Identifier: Apache-2.0 */
/* What --activations and --checkpoint-every say together. */
#pragma once

#include "examples/gpt/args.h"

/* Fills in what follows from the flags. -EINVAL with the reason: they cannot be. */
int gpt_activations_check(struct gpt_args *args, struct gpt_problem *problem);
