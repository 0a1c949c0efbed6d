/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: of any set on any nodes, pieces cover each subgroup once and in whole blocks, slots are
 * enough for all pieces under way, and all nodes reckon alike. Method: drawn sets and placements.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "common/wire/geometry.h"
#include "daemon/zero/across/bytes/pull.h"
#include "daemon/zero/across/sums/grads_plan.h"

static uint64_t seed = 1;

static uint32_t draw(uint32_t count)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % count;
}

static void check_pieces(const struct grads_plan *plan, uint64_t element_count)
{
	uint64_t next = 0;

	for (uint32_t i = 0; i < grads_piece_count(plan, element_count); i++) {
		struct grads_piece piece = grads_piece_at(plan, element_count, i);

		cr_assert_eq(piece.first, next);
		cr_assert_gt(piece.count, 0);
		cr_assert_eq(piece.first % ZI_BLOCK_ELEMENTS, 0);
		cr_assert_leq(piece.count * sizeof(float), plan->slot_bytes);
		next += piece.count;
	}
	cr_assert_eq(next, element_count);
}

/* Each piece under way has a slot for each leaf, whatever else is. */
static void check_slots(const struct grads_plan *plan, uint64_t half_bytes)
{
	cr_assert_leq(GRADS_DEPTH * plan->tree.leaf_count * plan->slot_bytes, half_bytes);
	cr_assert_leq(plan->slot_bytes, PULL_SLOT_BYTES);
}

/* A slab of so many nodes. */
static uint64_t half_of(uint32_t node_count)
{
	return (node_count > 2 ? node_count : 2) * PULL_NODE_SLOTS * PULL_SLOT_BYTES / 2;
}

Test(grads_plan, pieces_and_slots_of_drawn_sets)
{
	for (uint32_t i = 0; i < 2000; i++) {
		uint32_t world = 1 + draw(ZI_WORLD_MAX), node_count = 1 + draw(8), leaves = 0;
		uint64_t world_mask = world == 64 ? UINT64_MAX : (1ull << world) - 1;
		uint64_t members = ((uint64_t)draw(1u << 31) << 33 | draw(1u << 31)) & world_mask;
		uint8_t nodes[ZI_WORLD_MAX];
		struct grads_plan plan, again;
		struct zi_text text;

		members = draw(2) ? members | 1 : world_mask;
		for (uint32_t k = 0; k < world; k++)
			nodes[k] = (uint8_t)(draw(2) ? draw(node_count) : k * node_count / world);
		memset(&plan, 0, sizeof(plan));
		memset(&again, 0xff, sizeof(again));
		cr_assert_eq(grads_plan_init(&plan, members, nodes, half_of(node_count), &text), 0,
		             "%s", text.chars);
		cr_assert_eq(grads_plan_init(&again, members, nodes, half_of(node_count), &text),
		             0);
		cr_assert_eq(plan.piece_elements, again.piece_elements);
		cr_assert_eq(plan.tree.rank_count, (uint32_t)__builtin_popcountll(members));
		check_pieces(&plan, ZI_SUBGROUP_ELEMENTS);
		check_pieces(&plan, ZI_BLOCK_ELEMENTS * (1 + draw(64)));
		check_slots(&plan, half_of(node_count));
		grads_plan_divide(&plan, 16 * 1024);
		check_pieces(&plan, ZI_SUBGROUP_ELEMENTS);
		for (uint32_t leaf = 0; leaf < plan.tree.leaf_count; leaf++) {
			const struct subtree *tree = &plan.tree.leaves[leaf];

			for (uint32_t k = 0; k < tree->count; k++)
				cr_assert_eq(nodes[plan.ranks[tree->first + k]], tree->node);
			cr_assert(grads_leaf_is_of(&plan, leaf, tree->node));
			leaves += tree->count;
		}
		cr_assert_eq(leaves, plan.tree.rank_count, "each member is in one leaf");
	}
}

Test(grads_plan, a_set_of_nobody_is_refused)
{
	uint8_t nodes[ZI_WORLD_MAX] = { 0 };
	struct grads_plan plan;
	struct zi_text text;

	cr_expect_eq(grads_plan_init(&plan, 0, nodes, half_of(2), &text), -EINVAL);
}

/* Aligned nodes have a leaf each: whole subgroups travel. */
Test(grads_plan, two_aligned_nodes_pull_whole_subgroups)
{
	uint8_t nodes[ZI_WORLD_MAX] = { 0, 0, 1, 1 };
	struct grads_plan plan;
	struct zi_text text;

	cr_assert_eq(grads_plan_init(&plan, 0xf, nodes, half_of(2), &text), 0);
	cr_expect_eq(plan.tree.leaf_count, 2);
	cr_expect_eq(plan.piece_elements, ZI_SUBGROUP_ELEMENTS);
	cr_expect_eq(grads_piece_count(&plan, ZI_SUBGROUP_ELEMENTS), 1);
}
