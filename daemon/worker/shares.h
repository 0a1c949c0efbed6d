/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who finishes which elements of a sum over several nodes, and in which pieces. Floor 3. Pure
 * arithmetic, alike on all nodes.
 *
 * Small ones, and those where every node would send all it has anyway, are finished by everyone who
 * wants the result: one way through the network instead of two.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/worker/net.h"

/* Up to here two ways cost more than the bytes: 64 KiB pass in the time of one at 10 Gbit/s. */
#define SHARES_SMALL_BYTES   65536u
#define SHARES_OWNER_WANTING UINT32_MAX /* all who want the result: shares_is_wanted() */

struct share {
	uint64_t first, count;
	uint32_t owner; /* a node, or SHARES_OWNER_WANTING */
};

struct shares {
	struct share items[SUBTREE_RANKS_MAX];
	uint32_t share_count;
	uint64_t piece_elements; /* at most, of a piece */
};

/* @exchange: checked by exchange_check(). @piece_elements: a multiple of a line of any type. */
void shares_init(struct shares *shares, const struct net_exchange *exchange, uint32_t node_count,
                 uint64_t piece_elements);
/* Whether @node has the result of what SHARES_OWNER_WANTING finishes. */
bool shares_is_wanted(const struct net_exchange *exchange, uint32_t node);

/* The pieces that @node finishes, counted over its shares in their order. */
uint64_t shares_piece_count(const struct shares *shares, const struct net_exchange *exchange,
                            uint32_t node);
/* @index: below shares_piece_count(). */
struct share shares_piece(const struct shares *shares, const struct net_exchange *exchange,
                          uint32_t node, uint64_t index);

/* Where @leaf, one of @node's, lies from partial_offset_bytes on. */
uint64_t shares_partial_offset(const struct subtree_plan *plan, uint32_t node, uint32_t leaf,
                               uint64_t element_count, enum zi_dtype dtype);
/* From there to the last byte of the last of the node's leaves. */
uint64_t shares_partial_bytes(const struct subtree_plan *plan, uint32_t node,
                              uint64_t element_count, enum zi_dtype dtype);
