/* SPDX-License-Identifier: Apache-2.0 */
/* --strategy dp: all ranks in one process, a thread for each. */
#pragma once

#include "examples/gpt/launch.h"

int gpt_replicas_main(const struct gpt_args *args, struct gpt_board *board, gpt_rank_fn rank_main,
                      void *arg);
