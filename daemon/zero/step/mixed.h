/* SPDX-License-Identifier: Apache-2.0 */
/* The step of a tile whose elements are of several groups of parameters. Floor 5, any device
 * thread. */
#pragma once

#include "common/base/types.h"
#include "kernels/optim.h"

struct zero_stretch;

/* @whole: the tile, whole vectors of 16. @run: with its first element, which is @begin of the unit;
 * others follow. @scalars: of each group, but for the average. What is frozen stays as it is. */
void mixed_step(const struct kern_optim_run *whole, const struct zero_stretch *run, uint64_t begin,
                const struct kern_optim_scalars *scalars, float average);
