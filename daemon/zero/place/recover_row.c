/* SPDX-License-Identifier: Apache-2.0 */
/* Single rows of the catalog, and what they are of here. Floor 5, shard thread. */
#include "daemon/zero/place/recover_row.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "daemon/zero/job/job.h"
#include "kernels/hash.h"

/* Documented in the header, as are all others. */
struct tier_extent recover_place(const struct zero *zero, const struct catalog_extent *stored)
{
	struct tier_extent extent = { .offset_bytes = stored->extent.offset_bytes,
		                      .bytes = stored->extent.bytes };

	for (uint32_t i = 0; i < zero->options.nvme_tier_count && !extent.member; i++)
		extent.member = tier_member_find(&zero->options.nvme_tiers[i], stored->store_uuid);
	return extent;
}

struct zero_subgroup *recover_subgroup(struct zero_job *job, const struct catalog_extent *extent)
{
	if (extent->unit >= job->layout.unit_count ||
	    extent->subgroup >= job->units[extent->unit].subgroup_count)
		return NULL;
	return &job->subgroups[job->units[extent->unit].subgroup_first + extent->subgroup];
}

int recover_blob(struct zero_job *job, uint32_t index, const struct catalog_blob *stored)
{
	struct zero_blob *blob;

	if (stored->rank >= ZI_WORLD_MAX || stored->byte_count > ZI_BLOB_BYTES)
		return err_origin(-EUCLEAN);
	blob = &job->blobs[index][stored->rank];
	if (!blob->bytes)
		blob->bytes = malloc(ZI_BLOB_BYTES);
	if (!blob->bytes)
		return err_origin(-ENOMEM);
	memcpy(blob->bytes, stored->bytes, stored->byte_count);
	blob->byte_count = stored->byte_count;
	return 0;
}

uint64_t recover_digest(const struct catalog_extent *stored)
{
	const uint64_t words[] = {
		stored->plane,
		stored->unit,
		stored->subgroup,
		stored->step,
		kern_hash(stored->hashes, stored->hash_count * sizeof(stored->hashes[0])),
	};

	return kern_hash(words, sizeof(words));
}
