/* SPDX-License-Identifier: Apache-2.0 */
/* What the catalog is told of a job. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/catalog/catalog.h"
#include "daemon/tier/tier.h"

struct zero_job;
struct zero_marks;
struct zero_scale;
struct zero_subgroup;

/* Under which a commit is made now: all of it is in this node. */
struct catalog_placement record_placement(const struct zero_job *job);
/* Which ranks were on this node when it committed @record. Where planes were divided among several
 * nodes, what it holds follows from the strategy of then, not from what its newest start asked for.
 */
void record_take_placement(struct zero_job *job, const struct catalog_job *record);
/* What a commit says of itself, all but extents and blobs. */
void record_put_marks(struct catalog_job *record, int64_t step, const struct zero_marks *marks);
/* The other way. @scale: of its scaler, which scale_get() has looked at. */
struct zero_marks record_marks(const struct catalog_job *record, const struct zero_scale *scale,
                               uint32_t blob_index);
/* Those of ranks below @world that job->blobs[@index] has. @blobs: (ZI_WORLD_MAX,). */
void record_put_blobs(const struct zero_job *job, uint32_t index, uint32_t world,
                      struct catalog_job *record, struct catalog_blob *blobs);
void record_describe(const struct zero_job *job, struct catalog_job *ret_record);
struct catalog_extent record_extent(const struct zero_subgroup *subgroup, uint32_t plane,
                                    const struct tier_extent *extent, const uint64_t *hashes,
                                    uint64_t step);
/* Of one whole step: */
enum record_of {
	RECORD_PRESENT, /* what is committed */
	RECORD_FORMER,  /* the commit before, while it is kept (former.h) */
	RECORD_WRITTEN, /* what was just written of state in memory alone */
};
/* Extents and blobs. @record: described, with its step; @extents: (2 × subgroup_count,); @blobs:
 * (ZI_WORLD_MAX,). */
void record_committed(const struct zero_job *job, enum record_of of, struct catalog_job *record,
                      struct catalog_extent *extents, struct catalog_blob *blobs);
