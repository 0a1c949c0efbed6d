/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of docs/ARITHMETIC.md when its ranks lie on several nodes: which parts of it a node can
 * join by itself (its leaves here, one partial each), and in which steps an owner finishes it.
 * Floor 3. Pure arithmetic over the ranks' places; a plan is never changed once it is made.
 *
 *   ranks  0 1 2 3 4 5      a maximal subtree: all of its ranks are on one node, and those of the
 *   nodes  a a a b b b      subtree above it are not. Here {0 1}a {2}a {3}b {4 5}b: four leaves.
 *
 *   ((0 1)(2 3))(4 5)       The steps are (2)+(3), then ({0 1}+that), then + {4 5}.
 *
 * A subtree of the tree over n ranks has the shape that the tree over its own number of ranks has
 * (below a left side, of 2^k ranks, everything halves; a right side is split as one by itself). So
 * a leaf is what kern_combine() makes of its ranks, and where leaves lie to each other as the
 * ranks of a smaller job would, one step of the plan joins all of them.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"

#define SUBTREE_RANKS_MAX 256u /* of a job on all of its nodes */
#define SUBTREE_NODES_MAX 64u
/* Results that wait for their sibling: one on each level of the tree, and the newest. */
#define SUBTREE_DEPTH_MAX 10u
static_assert(SUBTREE_RANKS_MAX <= 1u << (SUBTREE_DEPTH_MAX - 2), "levels of the tree");

/* Joined inside a node: ranks [first, first + count). */
struct subtree {
	uint32_t first, count;
	uint32_t node;
};

/* Joins values along a tree of their own: @operand_count of them from @operands on in the plan's
 * list. A value below leaf_count is a leaf, another one the result on level value - leaf_count. */
struct subtree_step {
	uint32_t operand_first, operand_count; /* 1 … ZI_WORLD_MAX */
	uint32_t level;                        /* of the result; the last step's is the tree's */
};

struct subtree_plan {
	uint32_t rank_count, leaf_count, step_count;
	struct subtree leaves[SUBTREE_RANKS_MAX]; /* in rank order */
	struct subtree_step steps[SUBTREE_RANKS_MAX];
	uint32_t operands[2 * SUBTREE_RANKS_MAX];
};

/**
 * subtree_plan_init() - the maximal subtrees of a placement, and how to finish the tree
 * @nodes: (rank_count,) the node of each rank, below SUBTREE_NODES_MAX
 * @rank_count: 1 … SUBTREE_RANKS_MAX; at most ZI_WORLD_MAX of them on one node
 *
 * Return: 0, or -EINVAL with @text. Context: any thread.
 */
int subtree_plan_init(struct subtree_plan *plan, const uint32_t *nodes, uint32_t rank_count,
                      struct zi_text *text);

/* What a leaf travels in: fp32 for floats; but a rank's own elements, and integers, as they are. */
enum zi_dtype subtree_dtype(const struct subtree *leaf, enum zi_dtype dtype);
