/* SPDX-License-Identifier: Apache-2.0 */
/* What a strategy gives each rank, wherever it lies and however many ranks share one copy. */
#pragma once

#include "common/wire/owner.h"
#include "zctl/estimate/model.h"

struct estimate_logical {
	struct zi_plane_bytes ranks[ZI_WORLD_MAX]; /* (world_size,) */
	struct zi_plane_bytes most;                /* of each plane, of any rank */
};

/* @training passed zi_check_training(). */
void estimate_logical(const struct estimate_model *model, const struct zi_job_config *config,
                      const struct zi_job_training *training, uint32_t world_size,
                      struct estimate_logical *ret_logical);
