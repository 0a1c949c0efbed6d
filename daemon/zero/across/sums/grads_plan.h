/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over nodes as arithmetic: which partials of a subgroup there are, and in which pieces they
 * travel. Alike on all nodes. Floor 5, any thread; pure.
 *
 * A piece is finished from the partials of all leaves, each of which has a slot of the slab while
 * it is: GRADS_DEPTH pieces at a time have room, whatever else is on its way, since that holds its
 * slots for no more than a transfer and a copy. So no node waits for another's room while it holds
 * room that the other one waits for.
 */
#pragma once

#include "common/base/text.h"
#include "common/base/types.h"
#include "daemon/worker/subtree.h"

/* Pieces that are finished at a time. */
#define GRADS_DEPTH 4u

struct grads_plan {
	struct subtree_plan tree;    /* over the set's members, in the order of ranks */
	uint64_t nodes;              /* bits: those with members */
	uint8_t ranks[ZI_WORLD_MAX]; /* of each member */
	uint64_t slot_bytes;         /* with room for GRADS_DEPTH pieces, at most */
	uint32_t piece_elements;     /* at most, of a subgroup: whole blocks of the norm */
};

/* A part of a subgroup. */
struct grads_piece {
	uint64_t first, count;
};

/**
 * grads_plan_init() - how a set's gradients are summed
 * @members: ranks: bits; @nodes: (ZI_WORLD_MAX,) the node of each rank
 * @half_bytes: of the slab, what is pulled into
 *
 * Pieces are as long as a slot: grads_plan_divide() makes them shorter where another set's are.
 * Return: 0; -EINVAL with @text.
 */
int grads_plan_init(struct grads_plan *plan, uint64_t members, const uint8_t *nodes,
                    uint64_t half_bytes, struct zi_text *text);
/* @slot_bytes: at most plan->slot_bytes, of some plan's. */
void grads_plan_divide(struct grads_plan *plan, uint64_t slot_bytes);

/* Of a subgroup. */
uint32_t grads_piece_count(const struct grads_plan *plan, uint64_t element_count);
/* @piece: below their number. */
struct grads_piece grads_piece_at(const struct grads_plan *plan, uint64_t element_count,
                                  uint32_t piece);
/* Whether @node makes that partial. */
bool grads_leaf_is_of(const struct grads_plan *plan, uint32_t leaf, uint32_t node);
