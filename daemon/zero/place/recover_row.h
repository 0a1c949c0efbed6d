/* SPDX-License-Identifier: Apache-2.0 */
/* What single rows of the catalog are of here: places, subgroups, blobs. Floor 5, shard thread. */
#pragma once

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
/* Two rows that name the same place must say the same about it: a job's, and a snapshot's. */
uint64_t recover_digest(const struct catalog_extent *stored);
