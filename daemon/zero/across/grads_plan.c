/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over nodes as arithmetic; see grads_plan.h. Floor 5, any thread. */
#include "daemon/zero/across/grads_plan.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"

/* A block of the norm, in the widest type that partials travel in. */
#define GRADS_BLOCK_BYTES (ZI_BLOCK_ELEMENTS * sizeof(float))

static_assert(ZI_SUBGROUP_ELEMENTS % ZI_BLOCK_ELEMENTS == 0, "pieces are whole blocks");
/* Two nodes at least, and a leaf for each rank at worst. */
static_assert(GRADS_NODE_BYTES / (GRADS_DEPTH * ZI_WORLD_MAX) >= GRADS_BLOCK_BYTES,
              "there is room for a block of each leaf");

/* Documented in the header, as are all others. */
int grads_plan_init(struct grads_plan *plan, uint64_t members, const uint8_t *nodes,
                    struct zi_text *text)
{
	uint32_t places[ZI_WORLD_MAX], count = 0, node_count;
	uint64_t half_bytes, room_bytes;
	int r;

	plan->nodes = 0;
	for (; members; members &= members - 1) {
		uint32_t rank = (uint32_t)__builtin_ctzll(members);

		plan->ranks[count] = (uint8_t)rank;
		places[count++] = nodes[rank];
		plan->nodes |= 1ull << nodes[rank];
	}
	r = subtree_plan_init(&plan->tree, places, count, text);
	if (r)
		return err_trace(r);
	node_count = (uint32_t)__builtin_popcountll(plan->nodes);
	plan->slab_bytes = ZI_MAX(node_count, 2u) * GRADS_NODE_BYTES;
	half_bytes = plan->slab_bytes / 2;
	room_bytes = half_bytes / (GRADS_DEPTH * plan->tree.leaf_count);
	plan->slot_bytes = ZI_MIN(room_bytes - room_bytes % GRADS_BLOCK_BYTES,
	                          ZI_SUBGROUP_ELEMENTS * sizeof(float));
	plan->piece_elements = (uint32_t)(plan->slot_bytes / sizeof(float));
	plan->serve_count = (uint32_t)(half_bytes / plan->slot_bytes);
	assert(plan->slot_bytes);
	return 0;
}

uint32_t grads_piece_count(const struct grads_plan *plan, uint64_t element_count)
{
	return (uint32_t)((element_count + plan->piece_elements - 1) / plan->piece_elements);
}

struct grads_piece grads_piece_at(const struct grads_plan *plan, uint64_t element_count,
                                  uint32_t piece)
{
	uint64_t first = (uint64_t)piece * plan->piece_elements;

	assert(first < element_count);
	return (struct grads_piece){ first, ZI_MIN(element_count - first, plan->piece_elements) };
}

bool grads_leaf_is_of(const struct grads_plan *plan, uint32_t leaf, uint32_t node)
{
	assert(leaf < plan->tree.leaf_count);
	return plan->tree.leaves[leaf].node == node;
}

uint64_t grads_finish_slot(const struct grads_plan *plan, uint32_t group, uint32_t leaf)
{
	assert(group < GRADS_DEPTH);
	assert(leaf < plan->tree.leaf_count);
	return ((uint64_t)group * plan->tree.leaf_count + leaf) * plan->slot_bytes;
}

uint64_t grads_serve_slot(const struct grads_plan *plan, uint32_t index)
{
	assert(index < plan->serve_count);
	return plan->slab_bytes / 2 + index * plan->slot_bytes;
}
