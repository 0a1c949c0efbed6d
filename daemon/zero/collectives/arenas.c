/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where arenas lie; see arenas.h. Floor 5, shard thread.
 *
 * A rank is where its process may run (topo_node_of_process()) when all have come to open
 * collectives: launchers bind before that. The arena of a rank that may run anywhere lies with the
 * job's other memory; one that finds no room where it should lie, where most room is left.
 */
#include "daemon/zero/collectives/arenas.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/segment.h"
#include "daemon/topo/topo.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"

static_assert(TOPO_NODES_MAX <= UINT8_MAX, "a byte names a node");
static_assert(ZI_WORLD_MAX <= sizeof(((struct zi_verdicts *)NULL)->numa), "a byte for each rank");

/* The tier for @rank. @left_bytes: of each tier; what it takes is taken off. */
static uint32_t choose(const struct zero_job *job, const struct zero_rank *rank,
                       uint64_t arena_bytes, uint64_t *left_bytes)
{
	const struct zero_options *options = &job->zero->options;
	uint32_t tier = (uint32_t)(job->cpu_tier - options->cpu_tiers);

	if (options->cpu_tier_count > 1 && job->cpu_tier->topo)
		tier = topo_node_of_process(job->cpu_tier->topo, rank->pid, tier);
	assert(tier < options->cpu_tier_count && options->cpu_tiers[tier].node == tier);
	if (left_bytes[tier] < arena_bytes)
		for (uint32_t i = 0; i < options->cpu_tier_count; i++)
			if (left_bytes[i] > left_bytes[tier])
				tier = i;
	left_bytes[tier] -= ZI_MIN(left_bytes[tier], arena_bytes);
	return tier;
}

/* See arenas.h. */
int arenas_charge(struct zero_job *job, uint64_t arena_bytes, struct zi_text *text)
{
	struct zero_collectives *collectives = &job->collectives;
	struct tier_part parts[ZI_WORLD_MAX];
	struct tier *tiers = job->zero->options.cpu_tiers;
	uint64_t left_bytes[TOPO_NODES_MAX] = { 0 };
	uint32_t count = 0;

	memset(collectives->tiers, 0, sizeof(collectives->tiers));
	collectives->is_told = true;
	for (uint32_t i = 0; i < job->zero->options.cpu_tier_count; i++)
		left_bytes[i] = tier_free_bytes(&tiers[i]);
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *rank = job->group.ranks[i];
		uint32_t tier;

		if (!rank)
			continue; /* On another node. */
		tier = choose(job, rank, arena_bytes, left_bytes);
		collectives->tiers[i] = (uint8_t)tier;
		/* One who does not know would go another way in a call than the others. */
		collectives->is_told &= rank->gathered[ZERO_GATHER_COLL_OPEN]->knows_numa;
		parts[count++] = (struct tier_part){ &tiers[tier], arena_bytes };
	}
	assert(count == job->group.local_size);
	return err_trace(tier_segment_charge_parts(parts, count, &job->account->account,
	                                           "zinf-arena", TIER_PAGES_COLLAPSED, text,
	                                           &collectives->arenas));
}

/* See arenas.h. */
void arenas_tell(const struct zero_job *job, struct zi_verdicts *verdicts)
{
	if (job->collectives.is_told)
		memcpy(verdicts->numa, job->collectives.tiers, sizeof(job->collectives.tiers));
}
