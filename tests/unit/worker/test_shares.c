/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every element of a sum over nodes is finished once by each who shall have it, or once and
 * then sent; in pieces that end on lines; and no two partials of a node overlap. Method: counters
 * for all elements, over seeded random operations.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "common/base/cleanup.h"
#include "daemon/worker/shares.h"
#include "tests/kernels/data.h"

#define PIECE 1024u

static struct net_exchange draw(uint64_t *state, uint32_t node_count)
{
	static const uint64_t sizes[] = { 0, 1, 15, 16, 17, 8192, 8193, 40000, 100001 };
	struct net_exchange exchange = {
		.kind = NET_REDUCE,
		.mode = 1 + data_random(state) % (_NET_MODE_COUNT - 1),
		.dtype = data_random(state) % 2 ? ZI_DTYPE_F32 : ZI_DTYPE_I8,
		.root = (uint32_t)(data_random(state) % node_count),
		.rank_count = node_count + (uint32_t)(data_random(state) % 5),
		.element_count = sizes[data_random(state) % ZI_COUNT_OF(sizes)]
	};

	for (uint32_t i = 0; i < exchange.rank_count; i++)
		exchange.nodes[i] = (uint8_t)(data_random(state) % node_count);
	if (exchange.mode == NET_BROADCAST) {
		exchange.rank_count = 1;
		exchange.nodes[0] = (uint8_t)exchange.root;
	}
	if (exchange.mode == NET_SCATTER)
		exchange.element_count -= exchange.element_count % exchange.rank_count;
	return exchange;
}

/* How often @node finishes each element. */
static void count(const struct net_exchange *exchange, uint32_t node_count, uint32_t node,
                  uint8_t *counts, bool *ret_sends)
{
	struct shares shares;
	uint64_t pieces;

	shares_init(&shares, exchange, node_count, PIECE);
	pieces = shares_piece_count(&shares, exchange, node);
	for (uint64_t k = 0; k < pieces; k++) {
		struct share piece = shares_piece(&shares, exchange, node, k);

		cr_assert_gt(piece.count, 0);
		cr_assert_leq(piece.count, PIECE);
		cr_assert_leq(piece.first + piece.count, exchange->element_count);
		*ret_sends = piece.owner != SHARES_OWNER_WANTING;
		for (uint64_t i = 0; i < piece.count; i++)
			counts[piece.first + i]++;
		if (exchange->mode != NET_SCATTER)
			cr_assert_eq(piece.first % (64 / zi_dtype_bytes(exchange->dtype)), 0);
	}
}

static void check(const struct net_exchange *exchange, uint32_t node_count)
{
	uint8_t *all = calloc(exchange->element_count + 1, 1);
	bool sends = false;

	for (uint32_t node = 0; node < node_count; node++) {
		uint8_t *own = calloc(exchange->element_count + 1, 1);
		uint64_t block = exchange->mode == NET_SCATTER
		                         ? exchange->element_count / exchange->rank_count
		                         : 0;

		count(exchange, node_count, node, own, &sends);
		for (uint64_t i = 0; i < exchange->element_count; i++) {
			all[i] += own[i];
			if (exchange->mode == NET_SCATTER)
				cr_assert_eq(own[i], exchange->nodes[i / block] == node);
			else if (!sends && own[i])
				cr_assert(own[i] == 1 && shares_is_wanted(exchange, node));
		}
		free(own);
	}
	for (uint64_t i = 0; i < exchange->element_count && (sends || exchange->mode == NET_ROOT);
	     i++)
		cr_assert_eq(all[i], 1);
	free(all);
}

Test(shares, every_element_has_its_owner)
{
	uint64_t state = 11;

	for (uint32_t i = 0; i < 2000; i++) {
		uint32_t node_count = 1 + (uint32_t)(data_random(&state) % 7);
		struct net_exchange exchange = draw(&state, node_count);

		check(&exchange, node_count);
	}
}

Test(shares, those_who_want_it_are_as_the_mode_says)
{
	struct net_exchange exchange = { .mode = NET_ALL, .root = 1 };

	cr_expect(shares_is_wanted(&exchange, 0) && shares_is_wanted(&exchange, 1));
	exchange.mode = NET_ROOT;
	cr_expect(!shares_is_wanted(&exchange, 0) && shares_is_wanted(&exchange, 1));
	exchange.mode = NET_BROADCAST;
	cr_expect(shares_is_wanted(&exchange, 0) && !shares_is_wanted(&exchange, 1));
}

Test(shares, partials_of_a_node_lie_one_after_the_other)
{
	static const uint32_t nodes[] = { 0, 0, 1, 0, 1, 1, 0 };
	struct subtree_plan plan;
	uint64_t end = 0;

	cr_assert_eq(subtree_plan_init(&plan, nodes, ZI_COUNT_OF(nodes), NULL), 0);
	for (uint32_t i = 0; i <= plan.leaf_count; i++) {
		uint64_t place = shares_partial_offset(&plan, 0, i, 100, ZI_DTYPE_BF16);

		cr_expect_eq(place % 64, 0);
		cr_expect_geq(place, end);
		if (i < plan.leaf_count && plan.leaves[i].node == 0)
			end = place +
			      100 * zi_dtype_bytes(subtree_dtype(&plan.leaves[i], ZI_DTYPE_BF16));
	}
	cr_expect_gt(end, 0);
	/* To the last byte: what lies behind it may be no memory. */
	cr_expect_eq(shares_partial_bytes(&plan, 0, 100, ZI_DTYPE_BF16), end);
	cr_expect_eq(shares_partial_bytes(&plan, 2, 100, ZI_DTYPE_BF16), 0);
}
