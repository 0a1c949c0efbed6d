/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over nodes as arithmetic: which partials of a subgroup there are, where in the slab each
 * lies, and in which pieces they travel. Alike on all nodes but for what is this one's. Floor 5,
 * any thread; pure.
 *
 * slab   │ of sums that are finished here: a group of slots for  │ of partials that are served:  │
 * │ each piece under way, one for each leaf of the tree   │ one slot each, as many as fit │
 *
 * The halves are apart, and each slot is held for one transfer and one computation alone: so no
 * node waits for another's room while it holds room that the other one waits for.
 */
#pragma once

#include "common/base/text.h"
#include "common/base/types.h"
#include "daemon/worker/subtree.h"

/* Of the slab, for each node of the set. */
#define GRADS_NODE_BYTES (8ull << 20)
/* Pieces that are finished at a time. */
#define GRADS_DEPTH 4u

struct grads_plan {
	struct subtree_plan tree;    /* over the set's members, in the order of ranks */
	uint64_t nodes;              /* bits: those with members */
	uint8_t ranks[ZI_WORLD_MAX]; /* of each member */
	uint32_t piece_elements;     /* at most, of a subgroup: whole blocks of the norm */
	uint64_t slot_bytes;
	uint32_t serve_count;
	uint64_t slab_bytes;
};

/* A part of a subgroup. */
struct grads_piece {
	uint64_t first, count;
};

/**
 * grads_plan_init() - how a set's gradients are summed
 * @members: ranks: bits; @nodes: (ZI_WORLD_MAX,) the node of each rank
 *
 * Return: 0; -EINVAL with @text.
 */
int grads_plan_init(struct grads_plan *plan, uint64_t members, const uint8_t *nodes,
                    struct zi_text *text);

/* Of a subgroup. */
uint32_t grads_piece_count(const struct grads_plan *plan, uint64_t element_count);
/* @piece: below their number. */
struct grads_piece grads_piece_at(const struct grads_plan *plan, uint64_t element_count,
                                  uint32_t piece);
/* Whether @node makes that partial. */
bool grads_leaf_is_of(const struct grads_plan *plan, uint32_t leaf, uint32_t node);
/* Where in the slab: of @group (below GRADS_DEPTH), of what is finished; of what is served. */
uint64_t grads_finish_slot(const struct grads_plan *plan, uint32_t group, uint32_t leaf);
uint64_t grads_serve_slot(const struct grads_plan *plan, uint32_t index);
