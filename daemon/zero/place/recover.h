/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs from the catalog. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/catalog/catalog.h"
#include "daemon/tier/tier.h"

struct zero;
struct zero_job;
struct zero_subgroup;

/* No member: the store is not here. */
struct tier_extent recover_place(const struct zero *zero, const struct catalog_extent *stored);
/* NULL: there is none. */
struct zero_subgroup *recover_subgroup(struct zero_job *job, const struct catalog_extent *extent);
/* Into job->blobs[@index]. -EUCLEAN: it cannot be one; -ENOMEM. */
int recover_blob(struct zero_job *job, uint32_t index, const struct catalog_blob *stored);
uint64_t recover_digest(const struct catalog_extent *stored);
int recover_state(struct zero_job *job, const struct catalog_job *stored, bool is_load);
/* All of a job that nobody uses: what @stored says, whose arrays change hands, and its charge. 0;
 * -ENOMEM; what job->refusal is then. */
int recover_take(struct zero_job *job, struct catalog_job *stored, bool is_load);
