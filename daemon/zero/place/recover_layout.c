/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a stored layout can be true; see recover_layout.h. Floor 5, before the loop runs. */
#include "daemon/zero/place/recover_layout.h"

#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

/* Documented in the header. Of several nodes each rank has its share, to a subgroup; of what only
 * ranks elsewhere train there is no extent. */
bool recover_believes(const struct zero_job *job, const struct catalog_job *stored)
{
	const struct catalog_placement *placement = &stored->placement;
	uint64_t all_count = layout_padded_count(&job->layout), trained_count;
	uint64_t held_max = stored->extent_count, here_mask = 0, tier_bytes = 0;

	if (placement->node_count <= 1)
		return all_count / ZI_SUBGROUP_ELEMENTS <= held_max;
	for (uint32_t rank = 0; rank < stored->world_size; rank++)
		here_mask |= (uint64_t)(placement->nodes[rank] == placement->node) << rank;
	held_max = (held_max + 1) * stored->world_size;
	for (uint32_t i = 0; i < job->zero->options.cpu_tier_count; i++)
		tier_bytes += job->zero->options.cpu_tiers[i].capacity_bytes;
	trained_count = layout_trained_count(&job->layout, here_mask);
	return trained_count / ZI_SUBGROUP_ELEMENTS <= held_max &&
	       (all_count - trained_count) / LAYOUT_TABLE_ELEMENTS <= tier_bytes;
}
