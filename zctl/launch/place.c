/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks onto NUMA nodes (place.h): hwloc tells the nodes, set_mempolicy(2) is inherited through
 * exec. */
#include "zctl/launch/place.h"

#include <errno.h>
#include <hwloc.h>
#include <numaif.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"

/* set_mempolicy() takes a mask in words, and wants one bit more than it has (its manual). */
#define MASK_WORDS 16u
#define MASK_BITS  (MASK_WORDS * 64u)
/* Of Linux 5.15 on; older <numaif.h> do not have it. */
#ifndef MPOL_PREFERRED_MANY
#define MPOL_PREFERRED_MANY 5
#endif

struct launch_places {
	hwloc_topology_t topology;
	bool is_this_system;
	bool is_only_tried; /* auto: what is forbidden (containers) is left */
	uint32_t rank_count, node_count;
	hwloc_bitmap_t cpus[LAUNCH_RANKS_MAX];
	hwloc_bitmap_t nodes[LAUNCH_RANKS_MAX];
};

/* See place.h. */
struct launch_places *launch_places_free(struct launch_places *places)
{
	if (!places)
		return NULL;
	for (uint32_t rank = 0; rank < places->rank_count; rank++) {
		hwloc_bitmap_free(places->cpus[rank]);
		hwloc_bitmap_free(places->nodes[rank]);
	}
	if (places->topology)
		hwloc_topology_destroy(places->topology);
	free(places);
	return NULL;
}

static int load(struct launch_places *places)
{
	if (hwloc_topology_init(&places->topology)) {
		places->topology = NULL;
		return err_origin(-ENOMEM);
	}
	if (hwloc_topology_load(places->topology))
		return err_origin(-errno);
	places->is_this_system = hwloc_topology_is_thissystem(places->topology);
	return 0;
}

/* The nodes whose CPUs this process may use; those with memory alone serve nobody's ranks. */
static uint32_t find_nodes(const struct launch_places *places, hwloc_const_bitmap_t allowed,
                           hwloc_obj_t *nodes, uint32_t capacity)
{
	hwloc_obj_t node = NULL;
	uint32_t count = 0;

	while (count < capacity &&
	       (node = hwloc_get_next_obj_by_type(places->topology, HWLOC_OBJ_NUMANODE, node)))
		if (hwloc_bitmap_intersects(node->cpuset, allowed))
			nodes[count++] = node;
	return count;
}

/* Rank r of n on node r·N/n of N; with n < N on the nodes from there to (r+1)·N/n. */
static int spread(struct launch_places *places, hwloc_const_bitmap_t allowed,
                  const hwloc_obj_t *nodes, uint32_t rank_count)
{
	for (uint32_t rank = 0; rank < rank_count; rank++) {
		uint32_t first = rank * places->node_count / rank_count;
		uint32_t end = ZI_MAX((rank + 1) * places->node_count / rank_count, first + 1);

		if (rank_count >= places->node_count)
			end = first + 1;
		places->rank_count = rank + 1;
		places->cpus[rank] = hwloc_bitmap_alloc();
		places->nodes[rank] = hwloc_bitmap_alloc();
		if (!places->cpus[rank] || !places->nodes[rank])
			return err_origin(-ENOMEM);
		for (uint32_t i = first; i < end; i++) {
			hwloc_bitmap_or(places->cpus[rank], places->cpus[rank], nodes[i]->cpuset);
			hwloc_bitmap_set(places->nodes[rank], nodes[i]->os_index);
		}
		hwloc_bitmap_and(places->cpus[rank], places->cpus[rank], allowed);
	}
	return 0;
}

static int fill(struct launch_places *places, uint32_t rank_count)
{
	hwloc_obj_t nodes[MASK_BITS];
	hwloc_bitmap_t allowed;
	int r;

	r = load(places);
	if (r)
		return err_trace(r);
	allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(places->topology));
	if (!allowed)
		return err_origin(-ENOMEM);
	/* What taskset, numactl or the batch system left to us; unknown: everything. */
	if (places->is_this_system)
		(void)hwloc_get_cpubind(places->topology, allowed, HWLOC_CPUBIND_PROCESS);
	places->node_count = find_nodes(places, allowed, nodes, MASK_BITS);
	r = places->node_count ? spread(places, allowed, nodes, rank_count) : err_origin(-ENODEV);
	hwloc_bitmap_free(allowed);
	return err_trace(r);
}

/* See place.h. */
int launch_places_new(enum launch_binding binding, uint32_t rank_count, struct zi_text *text,
                      struct launch_places **ret_places)
{
	_cleanup_(launch_places_freep) struct launch_places *places = NULL;
	int r;

	assert(rank_count >= 1 && rank_count <= LAUNCH_RANKS_MAX);
	*ret_places = NULL;
	if (binding == LAUNCH_BINDING_NONE)
		return 0;
	places = calloc(1, sizeof(*places));
	if (!places)
		return err_origin(-ENOMEM);
	places->is_only_tried = binding == LAUNCH_BINDING_AUTO;
	r = fill(places, rank_count);
	if (r && !places->is_only_tried)
		return zi_text_error(text, r,
		                     "hwloc reports no NUMA node: use --numa-binding none");
	if (r || (places->is_only_tried && places->node_count < 2))
		return 0; /* Nothing to gain. */
	*ret_places = zi_steal(places);
	return 0;
}

static void put_list(hwloc_const_bitmap_t bitmap, struct zi_text *text)
{
	(void)hwloc_bitmap_list_snprintf(text->chars, sizeof(text->chars), bitmap); /* Cut: fine. */
}

/* See place.h. */
void launch_places_cpus(const struct launch_places *places, uint32_t rank, struct zi_text *text)
{
	assert(rank < places->rank_count);
	put_list(places->cpus[rank], text);
}

/* See place.h. */
void launch_places_nodes(const struct launch_places *places, uint32_t rank, struct zi_text *text)
{
	assert(rank < places->rank_count);
	put_list(places->nodes[rank], text);
}

static int bind_memory(hwloc_const_bitmap_t nodes)
{
	unsigned long mask[MASK_WORDS] = { 0 };
	int mode = hwloc_bitmap_weight(nodes) == 1 ? MPOL_PREFERRED : MPOL_PREFERRED_MANY;

	if (hwloc_bitmap_last(nodes) >= (int)MASK_BITS - 1)
		return err_origin(-ERANGE);
	(void)hwloc_bitmap_to_ulongs(nodes, MASK_WORDS, mask);
	return set_mempolicy(mode, mask, MASK_BITS) ? err_origin(-errno) : 0;
}

/* See place.h. */
int launch_places_bind(const struct launch_places *places, uint32_t rank)
{
	int r = 0;

	assert(rank < places->rank_count);
	if (!places->is_this_system)
		return 0;
	if (hwloc_set_cpubind(places->topology, places->cpus[rank], HWLOC_CPUBIND_PROCESS))
		r = err_origin(-errno);
	if (!r)
		r = bind_memory(places->nodes[rank]);
	return places->is_only_tried ? 0 : err_trace(r);
}
