/* SPDX-License-Identifier: Apache-2.0 */
/* What a strategy gives each rank, wherever it lies and however many ranks share one copy. */
#pragma once

#include "common/wire/owner.h"
#include "common/wire/plan.h"

struct estimate_logical {
	struct zi_plane_bytes ranks[ZI_WORLD_MAX]; /* (world_size,) */
	struct zi_plane_bytes most;                /* of each plane, of any rank */
};

/* @model, @options: such as zi_plan_make() takes. */
void estimate_logical(const struct zi_plan_model *model, const struct zi_plan_options *options,
                      struct estimate_logical *ret_logical);
