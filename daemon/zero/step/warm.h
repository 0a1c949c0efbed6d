/* SPDX-License-Identifier: Apache-2.0 */
/* State that staging keeps from step to step. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"

struct zero_job;
struct zero_subgroup;

void warm_keep(struct zero_subgroup *subgroup, void *slot);
void *warm_claim(struct zero_subgroup *subgroup);
void warm_drop(struct zero_subgroup *subgroup);
/* Nothing is kept any more. */
void warm_drop_all(struct zero_job *job);
void *warm_slot(struct zero_job *job);
