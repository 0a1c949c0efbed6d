/* SPDX-License-Identifier: Apache-2.0 */
/* Tiers: memory or disk of one place, with a capacity. Floor 4, shard thread. */
#include "daemon/tier/tier.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/device/gpu.h"
#include "daemon/tier/member.h"

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
 * tier_init_nvme() - one or several stores, to be added by tier_member_add()
 * @tier: written on success; its address is known to its members: it is not copied
 * @name: of the tier, without "nvme:"
 * @node: index into topo's nodes that it hangs on
 *
 * Return: 0; -ENOMEM; -ENAMETOOLONG.
 */
int tier_init_nvme(struct tier *tier, const char *name, uint32_t node)
{
	struct tier_member *members;
	char full_name[ZI_NAME_BYTES];
	int written;

	written = snprintf(full_name, sizeof(full_name), "nvme:%s", name);
	if (written < 0 || (size_t)written >= sizeof(full_name))
		return err_origin(-ENAMETOOLONG);
	members = calloc(TIER_MEMBERS_MAX, sizeof(*members));
	if (!members)
		return err_origin(-ENOMEM);
	*tier = (struct tier){ .kind = TIER_NVME, .node = node, .members = members };
	(void)zi_copy_name(tier->name, sizeof(tier->name), full_name); /* Of the same size. */
	zi_list_init(&tier->tiers_link);
	return 0;
}

/**
 * tier_init_gpu() - memory of a GPU
 * @gpu: outlives the tier
 * @capacity_bytes: the memory without what the configuration reserves
 */
void tier_init_gpu(struct tier *tier, struct dev_gpu *gpu, uint64_t capacity_bytes)
{
	static_assert(sizeof("gpu:") + DEV_GPU_UUID_BYTES <= ZI_NAME_BYTES, "a tier's name");
	*tier = (struct tier){
		.kind = TIER_GPU,
		.capacity_bytes = capacity_bytes,
		.node = gpu->facts.node < 0 ? 0 : (uint32_t)gpu->facts.node,
		.gpu = gpu,
	};
	(void)snprintf(tier->name, sizeof(tier->name), "gpu:%s", gpu->facts.uuid); /* Fits. */
	zi_list_init(&tier->tiers_link);
}

const char *tier_kind_name(enum tier_kind kind)
{
	static const char *const names[] = {
		[TIER_CPU] = "cpu", [TIER_NVME] = "nvme", [TIER_GPU] = "gpu"
	};

	assert(kind < _TIER_KIND_COUNT);
	return names[kind];
}

/* Asserts that nothing is charged. */
void tier_deinit(struct tier *tier)
{
	assert(tier->used_bytes == 0);

	for (uint32_t i = 0; i < tier->member_count; i++) {
		tier->members[i].flusher = tier_flusher_free(tier->members[i].flusher);
		tier->members[i].space = nvme_space_free(tier->members[i].space);
	}
	tier->member_count = 0;
	free(tier->members);
	tier->members = NULL;
}
