/* SPDX-License-Identifier: Apache-2.0 */
/* What the flags mean for one optimizer step. */
#pragma once

#include "examples/gpt/args.h"

void gpt_step_options(const struct gpt_args *args, uint64_t step, uint64_t update_count,
                      struct zinf_step_group groups[static GPT_GROUPS_MAX],
                      struct zinf_step_options *ret_options);
