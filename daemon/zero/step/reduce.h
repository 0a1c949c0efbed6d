/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients, summed over ranks. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"

struct zero_job;

void reduce_unit(struct zero_job *job, uint32_t unit);
