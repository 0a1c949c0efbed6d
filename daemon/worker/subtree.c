/* SPDX-License-Identifier: Apache-2.0 */
/* Maximal subtrees and the plan of their joining; see subtree.h. Floor 3. Any thread. */
#include "daemon/worker/subtree.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

#define SUBTREE_ITEMS_MAX (2u * SUBTREE_RANKS_MAX)
#define SUBTREE_NONE      UINT32_MAX

/* A subtree while the plan is made. */
struct item {
	uint32_t first, count;
	uint32_t parent;
	uint32_t left, right;            /* SUBTREE_NONE: a leaf */
	uint32_t leaf_first, leaf_count; /* of the plan's leaves */
	uint32_t value;                  /* as an operand */
	bool is_regular; /* its leaves lie as the ranks of a job of leaf_count would */
};

/* The largest power of two below @count, which is at least 2. */
static uint32_t split(uint32_t count)
{
	uint32_t half = 1;

	while (half * 2 < count)
		half *= 2;
	return half;
}

static bool is_on_one_node(const uint32_t *nodes, uint32_t first, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++)
		if (nodes[first + i] != nodes[first])
			return false;
	return true;
}

/* Depth first, left before right: items come in rank order, leaves too. Return: how many. */
static uint32_t lay_out(struct subtree_plan *plan, const uint32_t *nodes, struct item *items)
{
	uint32_t pending[SUBTREE_DEPTH_MAX + 1];
	uint32_t pending_count = 0, item_count = 0;

	items[item_count++] = (struct item){ .count = plan->rank_count, .parent = SUBTREE_NONE };
	pending[pending_count++] = 0;
	while (pending_count) {
		uint32_t index = pending[--pending_count];
		struct item *item = &items[index];
		uint32_t half;

		if (is_on_one_node(nodes, item->first, item->count)) {
			item->left = item->right = SUBTREE_NONE;
			item->leaf_first = plan->leaf_count;
			plan->leaves[plan->leaf_count++] =
				(struct subtree){ item->first, item->count, nodes[item->first] };
			continue;
		}
		half = split(item->count);
		assert(item_count + 2 <= SUBTREE_ITEMS_MAX);
		assert(pending_count + 2 <= ZI_COUNT_OF(pending));
		item->left = item_count++;
		item->right = item_count++;
		items[item->left] = (struct item){ item->first, half, .parent = index };
		items[item->right] =
			(struct item){ item->first + half, item->count - half, .parent = index };
		pending[pending_count++] = item->right;
		pending[pending_count++] = item->left;
	}
	return item_count;
}

/* Counts leaves upward; a child's index is above its parent's. */
static void weigh(struct item *items, uint32_t item_count)
{
	for (uint32_t i = item_count; i-- > 0;) {
		struct item *item = &items[i];
		const struct item *left, *right;

		if (item->left == SUBTREE_NONE) {
			item->leaf_count = 1;
			item->is_regular = true;
			continue;
		}
		left = &items[item->left];
		right = &items[item->right];
		item->leaf_first = left->leaf_first;
		item->leaf_count = left->leaf_count + right->leaf_count;
		item->is_regular = left->is_regular && right->is_regular &&
		                   left->leaf_count == split(item->leaf_count) &&
		                   item->leaf_count <= ZI_WORLD_MAX;
	}
}

static void add_step(struct subtree_plan *plan, struct item *item, const struct item *items,
                     uint32_t *operand_count, uint32_t level)
{
	struct subtree_step *step = &plan->steps[plan->step_count++];

	assert(plan->step_count <= SUBTREE_RANKS_MAX);
	step->level = level;
	step->operand_first = *operand_count;
	if (item->is_regular) {
		for (uint32_t i = 0; i < item->leaf_count; i++)
			plan->operands[(*operand_count)++] = item->leaf_first + i;
	} else {
		plan->operands[(*operand_count)++] = items[item->left].value;
		plan->operands[(*operand_count)++] = items[item->right].value;
	}
	assert(*operand_count <= ZI_COUNT_OF(plan->operands));
	step->operand_count = *operand_count - step->operand_first;
	item->value = plan->leaf_count + level;
}

/* Depth first once more, right sides first: so the results that wait form a stack by level, and
 * the newest of them are what the item above joins. */
static void make_steps(struct subtree_plan *plan, struct item *items)
{
	/* An item is looked at twice: to have its sides made, right first, and to join them. */
	struct {
		uint32_t index;
		bool is_made;
	} pending[2 * SUBTREE_DEPTH_MAX];
	uint32_t pending_count = 0, operand_count = 0, level = 0;

	pending[pending_count].index = 0;
	pending[pending_count++].is_made = false;
	while (pending_count) {
		struct item *item = &items[pending[pending_count - 1].index];
		uint32_t made = 0;

		if (!item->is_regular && !pending[pending_count - 1].is_made) {
			pending[pending_count - 1].is_made = true;
			assert(pending_count + 2 <= ZI_COUNT_OF(pending));
			pending[pending_count].index = item->left;
			pending[pending_count++].is_made = false;
			pending[pending_count].index = item->right;
			pending[pending_count++].is_made = false;
			continue;
		}
		pending_count--;
		if (item->leaf_count == 1 && item->parent != SUBTREE_NONE) {
			item->value = item->leaf_first;
			continue;
		}
		if (!item->is_regular) /* What it joins leaves the stack. */
			made = (items[item->left].value >= plan->leaf_count) +
			       (items[item->right].value >= plan->leaf_count);
		level -= made;
		assert(level < SUBTREE_DEPTH_MAX);
		add_step(plan, item, items, &operand_count, level++);
	}
	assert(level == 1);
}

/* Documented in the header. */
int subtree_plan_init(struct subtree_plan *plan, const uint32_t *nodes, uint32_t rank_count,
                      struct zi_text *text)
{
	uint32_t ranks_of[SUBTREE_NODES_MAX] = { 0 };
	struct item items[SUBTREE_ITEMS_MAX];

	if (!rank_count || rank_count > SUBTREE_RANKS_MAX)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "%u ranks: a job over several nodes has 1 to %u",
		                                rank_count, SUBTREE_RANKS_MAX));
	for (uint32_t i = 0; i < rank_count; i++) {
		if (nodes[i] >= SUBTREE_NODES_MAX)
			return err_origin(zi_text_error(
				text, -EINVAL, "rank %u is on node %u: a job has at most %u nodes",
				i, nodes[i], SUBTREE_NODES_MAX));
		if (++ranks_of[nodes[i]] > ZI_WORLD_MAX)
			return err_origin(zi_text_error(text, -EINVAL,
			                                "node %u has more than %u ranks of the job",
			                                nodes[i], ZI_WORLD_MAX));
	}
	*plan = (struct subtree_plan){ .rank_count = rank_count };
	weigh(items, lay_out(plan, nodes, items));
	make_steps(plan, items);
	return 0;
}

/* Documented in the header. Exact: a rank's own elements widen without loss where they arrive. */
enum zi_dtype subtree_dtype(const struct subtree *leaf, enum zi_dtype dtype)
{
	return leaf->count > 1 ? zi_dtype_joined(dtype) : dtype;
}
