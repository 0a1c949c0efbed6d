/* SPDX-License-Identifier: Apache-2.0 */
/* See missing.h. */
#include "daemon/zero/across/agree/missing.h"

#include "common/base/assert.h"
#include "common/wire/geometry.h"
#include "common/wire/owner.h"
#include "daemon/catalog/catalog.h"
#include "daemon/zero/job/layout.h"

/* The member of a set of all ranks that owned it; ZI_WORLD_MAX: which sets there were then is not
 * known. */
static uint32_t owner_of(const struct missing *missing)
{
	struct zi_job_training training = { .strategy = missing->placement->strategy,
		                            .shard_size = missing->placement->shard_size };
	uint32_t members = zi_shard_members(&training, missing->world), owner = 0;
	uint32_t param = 0;
	uint64_t left = missing->subgroup;
	struct zi_owners owners;

	if (missing->layout->set_count || !members || missing->world % members)
		return ZI_WORLD_MAX;
	zi_owners_init(&owners, members);
	for (uint32_t i = 0; i < missing->layout->unit_count; i++) {
		uint64_t padded = layout_padded_from(missing->layout, &param);
		uint32_t count = zi_geometry_subgroup_count(padded);

		for (uint32_t k = 0; k < count; k++) {
			owner = zi_owners_deal(&owners, zi_geometry_subgroup_elements(padded, k));
			if (!left--)
				return owner;
		}
	}
	return ZI_WORLD_MAX;
}

static struct zi_text say_who(const struct missing *missing)
{
	const struct catalog_placement *placement = missing->placement;
	uint32_t owner = owner_of(missing);
	struct zi_text text = { "a node of then" };

	if (owner < missing->world && placement->node_count > 1)
		zi_text_set(&text, "rank %u on node %u", owner, placement->nodes[owner]);
	else if (owner < missing->world)
		zi_text_set(&text, "rank %u on the one node", owner);
	return text;
}

/* Documented in the header. */
void missing_say(const struct missing *missing, struct zi_text *ret_text)
{
	uint64_t left = missing->subgroup;
	uint32_t unit = 0, param = 0, count;

	for (; unit < missing->layout->unit_count; unit++) {
		count = zi_geometry_subgroup_count(layout_padded_from(missing->layout, &param));
		if (left < count)
			break;
		left -= count;
	}
	assert(unit < missing->layout->unit_count);
	/* A vote carries it to the other nodes: with names of usual length all of it. */
	zi_text_set(ret_text,
	            "job '%.40s' cannot go on at step %lld: no node here has subgroup %llu of unit "
	            "'%.50s' (%llu in all), which %s had: start that node too, or zctl delete it "
	            "and load an export",
	            missing->job, (long long)missing->step, (unsigned long long)left,
	            missing->layout->units[unit].name, (unsigned long long)missing->count,
	            say_who(missing).chars);
}
