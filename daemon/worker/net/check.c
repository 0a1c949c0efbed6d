/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an operation across nodes can be one; see exchange.h. Floor 3. Any thread. */
#include "common/base/checked.h"
#include "common/base/err.h"
#include "daemon/worker/net/exchange.h"
#include "daemon/worker/shares.h"

static bool is_within(const struct exchange_slab *slab, uint64_t offset, uint64_t bytes)
{
	uint64_t end;

	return zi_checked_add(offset, bytes, &end) && end <= slab->bytes;
}

static int check_move(const struct net_exchange *exchange, uint32_t node, uint32_t node_count,
                      const struct exchange_slab *slab, struct zi_text *text)
{
	for (uint32_t i = 0; i < node_count; i++) {
		const struct net_range *sent = &exchange->sends[i];
		const struct net_range *received = &exchange->receives[i];

		if ((sent->bytes && !is_within(slab, sent->offset_bytes, sent->bytes)) ||
		    (received->bytes && !is_within(slab, received->offset_bytes, received->bytes)))
			return err_origin(zi_text_error(
				text, -EINVAL,
				"the bytes to or from node %u lie outside the slab (%lu bytes)", i,
				(unsigned long)slab->bytes));
	}
	if (exchange->sends[node].bytes || exchange->receives[node].bytes)
		return err_origin(zi_text_error(
			text, -EINVAL, "node %u is asked to send to itself: ranks of a node do",
			node));
	return 0;
}

static bool check_shape(const struct net_exchange *exchange, uint32_t node_count)
{
	if (!exchange->rank_count || exchange->rank_count > SUBTREE_RANKS_MAX ||
	    exchange->root >= node_count || !exchange->mode || exchange->mode >= _NET_MODE_COUNT)
		return false;
	if (!exchange->dtype || exchange->dtype >= _ZI_DTYPE_COUNT || !exchange->op ||
	    exchange->op >= _ZI_REDUCE_COUNT || !zi_reduce_op_is_for(exchange->op, exchange->dtype))
		return false;
	if (exchange->mode == NET_SCATTER && exchange->element_count % exchange->rank_count)
		return false;
	if (exchange->mode == NET_BROADCAST &&
	    (exchange->rank_count != 1 || exchange->nodes[0] != exchange->root))
		return false;
	for (uint32_t i = 0; i < exchange->rank_count; i++)
		if (exchange->nodes[i] >= node_count)
			return false;
	return true;
}

static int check_reduce(const struct net_exchange *exchange, uint32_t node, uint32_t node_count,
                        const struct exchange_slab *slab, struct zi_text *text)
{
	uint32_t nodes[SUBTREE_RANKS_MAX];
	struct subtree_plan plan;
	uint64_t width, result_bytes, all_bytes;
	int r;

	if (!check_shape(exchange, node_count))
		return err_origin(
			zi_text_error(text, -EINVAL,
		                      "a sum of %u ranks (type %u, operation %u, mode %u, root %u) "
		                      "over %u nodes is none",
		                      exchange->rank_count, exchange->dtype, exchange->op,
		                      exchange->mode, exchange->root, node_count));
	for (uint32_t i = 0; i < exchange->rank_count; i++)
		nodes[i] = exchange->nodes[i];
	r = subtree_plan_init(&plan, nodes, exchange->rank_count, text);
	if (r)
		return err_trace(r);
	width = zi_dtype_bytes(exchange->dtype);
	/* Eight bytes an element of each rank bound everything that is computed from them. */
	if (!zi_checked_mul(exchange->element_count, 16 * SUBTREE_RANKS_MAX, &all_bytes) ||
	    !zi_checked_mul(exchange->element_count, width, &result_bytes) ||
	    !is_within(slab, exchange->result_offset_bytes, result_bytes) ||
	    !is_within(slab, exchange->partial_offset_bytes,
	               shares_partial_bytes(&plan, node, exchange->element_count, exchange->dtype)))
		return err_origin(zi_text_error(
			text, -EINVAL,
			"%lu elements, partials at %lu, the result at %lu: outside the slab of %lu "
			"bytes",
			(unsigned long)exchange->element_count,
			(unsigned long)exchange->partial_offset_bytes,
			(unsigned long)exchange->result_offset_bytes, (unsigned long)slab->bytes));
	if (exchange->result_offset_bytes % width || exchange->partial_offset_bytes % 8)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"partials at %lu, the result at %lu: not aligned to their type",
			(unsigned long)exchange->partial_offset_bytes,
			(unsigned long)exchange->result_offset_bytes));
	return 0;
}

/* Documented in exchange.h. */
int exchange_check(const struct net_exchange *exchange, uint32_t node, uint32_t node_count,
                   const struct exchange_slab *slab, struct zi_text *text)
{
	if (exchange->kind == NET_REDUCE)
		return err_trace(check_reduce(exchange, node, node_count, slab, text));
	if (exchange->kind == NET_MOVE)
		return err_trace(check_move(exchange, node, node_count, slab, text));
	return err_origin(zi_text_error(text, -EINVAL, "%u is no kind of operation across nodes",
	                                exchange->kind));
}
