/* SPDX-License-Identifier: Apache-2.0 */
/* What tests ask of warm slots. */
#pragma once

#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/step.h"
#include "kernels/hash.h"
#include "tests/unit/zero/plain.h"

/* Bytes of state that the next step need not read. Asserts that each is the state in force, byte by
 * byte as far as its checksums tell, and that no slot is lost: of a job between steps. */
static inline uint64_t warm_bytes(struct zero_job *job)
{
	const uint64_t tile_bytes = ZI_TILE_ELEMENTS * job_state_bytes(job);
	uint64_t bytes = 0;
	uint32_t count = 0;

	cr_assert_eq(job->step.phase, ZERO_STEP_NONE);
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];
		const struct zero_place *place = &subgroup->places[ZERO_PLANE_STATE];
		const uint64_t *hashes =
			&job->hashes[ZERO_PLANE_STATE][place->hash_index][subgroup->tile_first];
		uint64_t own_bytes = job_subgroup_state_bytes(job, subgroup);

		if (!subgroup->warm)
			continue;
		cr_assert(!subgroup->memory && !subgroup->is_reset && place->extent.bytes);
		for (uint64_t done = 0; done < own_bytes; done += tile_bytes)
			cr_assert_eq(kern_hash_tile((char *)subgroup->warm + done,
			                            ZI_MIN(tile_bytes, own_bytes - done),
			                            (uint32_t)job_state_bytes(job)),
			             *hashes++, "subgroup %u", i);
		bytes += own_bytes;
		count++;
	}
	if (job->staging)
		cr_assert_eq(job->staging->free_count + count, job->staging->slot_count);
	return bytes;
}

/* Between steps nothing is warm, and every slot is free. */
static inline bool warm_is_none(struct zero_job *job)
{
	return zi_list_is_empty(&job->warm) && warm_bytes(job) == 0;
}
