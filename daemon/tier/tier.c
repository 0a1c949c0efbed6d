/* SPDX-License-Identifier: Apache-2.0 */
/* Tiers: memory or disk of one place, with a capacity. Floor 4, shard thread. */
#include "daemon/tier/tier.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"

/**
 * tier_init_cpu() - the memory of a NUMA node
 * @tier: written
 * @node: index into @topo's nodes
 * @capacity_bytes: what may be charged; the caller took it from configuration and limits
 * @topo: may be NULL
 * @wants_huge: try huge pages for segments
 */
void tier_init_cpu(struct tier *tier, uint32_t node, uint64_t capacity_bytes,
                   const struct topo *topo, bool wants_huge)
{
	*tier = (struct tier){
		.kind = TIER_CPU,
		.capacity_bytes = capacity_bytes,
		.node = node,
		.topo = topo,
		.wants_huge = wants_huge,
	};
	(void)snprintf(tier->name, sizeof(tier->name), "cpu:%u", node); /* Always fits. */
	zi_list_init(&tier->tiers_link);
}

/**
 * tier_init_nvme() - a tier of one store
 * @tier: written on success; its address is known to its members: it is not copied
 * @store: the caller's, open as long as the tier
 * @node: index into topo's nodes that it hangs on
 *
 * Return: 0; -ENOMEM; -ENAMETOOLONG.
 */
int tier_init_nvme(struct tier *tier, struct nvme_store *store, uint32_t node)
{
	_cleanup_(zi_freep) struct tier_member *members = NULL;
	struct nvme_space *space = NULL;
	char name[ZI_NAME_BYTES];
	int written;
	int r;

	written = snprintf(name, sizeof(name), "nvme:%s", store->name);
	if (written < 0 || (size_t)written >= sizeof(name))
		return err_origin(-ENAMETOOLONG);
	members = calloc(TIER_MEMBERS_MAX, sizeof(*members));
	if (!members)
		return err_origin(-ENOMEM);
	r = nvme_space_new(store->bytes, &space);
	if (r)
		return err_fold(r);
	members[0] = (struct tier_member){ .tier = tier, .store = store, .space = space };
	*tier = (struct tier){
		.kind = TIER_NVME,
		.capacity_bytes = nvme_space_total_bytes(space),
		.node = node,
		.members = zi_steal(members),
		.member_count = 1,
	};
	(void)zi_copy_name(tier->name, sizeof(tier->name), name); /* Of the same size. */
	zi_list_init(&tier->tiers_link);
	return 0;
}

/* Asserts that nothing is charged. */
void tier_deinit(struct tier *tier)
{
	assert(tier->used_bytes == 0);

	for (uint32_t i = 0; i < tier->member_count; i++)
		tier->members[i].space = nvme_space_free(tier->members[i].space);
	tier->member_count = 0;
	free(tier->members);
	tier->members = NULL;
}
