/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over nodes as arithmetic; see grads_plan.h. Floor 5, any thread. */
#include "daemon/zero/across/sums/grads_plan.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "daemon/zero/across/bytes/pull.h"

/* A block of the norm, in the widest type that partials travel in. */
#define GRADS_BLOCK_BYTES (ZI_BLOCK_ELEMENTS * sizeof(float))

static_assert(ZI_SUBGROUP_ELEMENTS % ZI_BLOCK_ELEMENTS == 0, "pieces are whole blocks");
/* Of a leaf for each rank, at worst, on two nodes, which is the smallest slab. */
static_assert(PULL_NODE_SLOTS * PULL_SLOT_BYTES / (GRADS_DEPTH * ZI_WORLD_MAX) >= GRADS_BLOCK_BYTES,
              "there is room for a block of each leaf");

/* Documented in the header, as are all others. */
int grads_plan_init(struct grads_plan *plan, uint64_t members, const uint8_t *nodes,
                    uint64_t half_bytes, struct zi_text *text)
{
	uint32_t places[ZI_WORLD_MAX], count = 0;
	uint64_t room_bytes;
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
	room_bytes = half_bytes / (GRADS_DEPTH * plan->tree.leaf_count);
	plan->slot_bytes = ZI_MIN(room_bytes - room_bytes % GRADS_BLOCK_BYTES, PULL_SLOT_BYTES);
	assert(plan->slot_bytes);
	grads_plan_divide(plan, plan->slot_bytes);
	return 0;
}

void grads_plan_divide(struct grads_plan *plan, uint64_t slot_bytes)
{
	assert(slot_bytes <= plan->slot_bytes);
	assert(slot_bytes && slot_bytes % GRADS_BLOCK_BYTES == 0);
	plan->piece_elements = (uint32_t)(slot_bytes / sizeof(float));
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
