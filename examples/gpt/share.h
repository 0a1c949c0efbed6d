/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks show each other (board.h). */
#pragma once

#include "examples/gpt/train.h"

/* @values: (world_count,) of the board; this rank has written its own. Ranks of a launcher share no
 * page: each has everybody's then, by a collective; ranks that do look behind the next barrier.
 * Return: 0 or what the backend answered. */
int gpt_share(const struct gpt_run *run, struct gpt_backend *backend, volatile double *values);
