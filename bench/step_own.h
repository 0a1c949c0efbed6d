/* SPDX-License-Identifier: Apache-2.0 */
/* Our own ranks in suite `step`: the suite's program, started anew with "rank DTYPE
 * GRADIENT_BYTES", that attaches to the daemon at $ZINF_SOCKET as rank $RANK of $WORLD_SIZE. */
#pragma once

#include <stdint.h>

int step_own_rank(int argc, char **argv);

/* A step whose gradients are there: the last unit comes first, as in backward. @stats: may be NULL.
 * Return: 0; the -errno of the call that failed. */
struct zinf;
struct zinf_step_options;
struct zinf_step_stats;
int step_own_step(struct zinf *zinf, uint32_t unit_count, const struct zinf_step_options *options,
                  struct zinf_step_stats *stats);
