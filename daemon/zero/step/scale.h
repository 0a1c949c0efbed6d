/* SPDX-License-Identifier: Apache-2.0 */
/* The loss scale of a job, committed with its steps. Floor 5, shard thread. */
#pragma once

#include "common/base/assert.h"
#include "common/base/scaler.h"
#include "common/base/types.h"
#include "daemon/catalog/catalog.h"

struct zero_job;
struct zi_step_options;

/* As it is stored. */
struct zero_scale {
	uint32_t kind; /* enum zi_scaler_kind: whose rules it followed; NONE: there is no state */
	uint32_t reserved;
	struct zi_scaler state;
};
static_assert(sizeof(struct zero_scale) == 48, "it is stored");

bool scale_is_on(const struct zero_job *job);
/* What the loss of the next step is to be multiplied by; 1 without a scaler. */
double scale_of(const struct zero_job *job);
/* What gradients of the step that begins are multiplied by. */
float scale_unscale(const struct zero_job *job);
/* The step's options beside it. -EINVAL. */
int scale_options_check(const struct zero_job *job, const struct zi_step_options *options,
                        struct zi_text *text);
/* In force is what is committed, as far as the job's ranks still ask for the same. */
void scale_resume(struct zero_job *job);
/* All gradients of the step are there: the machine moves, and is taken with the step. */
void scale_advance(struct zero_job *job, bool is_finite);

/* Into the record of a commit, and out of a stored one: -EUCLEAN it can be none. */
void scale_put(const struct zero_scale *scale, struct catalog_job *record);
int scale_get(const struct catalog_job *record, struct zero_scale *ret_scale);
