/* SPDX-License-Identifier: Apache-2.0 */
/* Shares and pieces; see shares.h. Floor 3. Any thread. */
#include "daemon/worker/shares.h"

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"

/* Shares begin on a line, as its elements are written by different nodes' results. */
#define SHARES_LINE_BYTES 64u

static void share_by_rank(struct shares *shares, const struct net_exchange *exchange)
{
	uint64_t block = exchange->element_count / exchange->rank_count;

	for (uint32_t i = 0; i < exchange->rank_count; i++)
		shares->items[shares->share_count++] =
			(struct share){ i * block, block, exchange->nodes[i] };
}

/* Evenly, and by lines, so that no two nodes' parts of a result meet within one. */
static void share_by_node(struct shares *shares, const struct net_exchange *exchange,
                          uint32_t node_count)
{
	uint64_t line = SHARES_LINE_BYTES / zi_dtype_bytes(exchange->dtype);
	uint64_t lines = (exchange->element_count + line - 1) / line;
	uint64_t first = 0;

	for (uint32_t i = 0; i < node_count; i++) {
		uint64_t end = ZI_MIN(lines * (i + 1) / node_count * line, exchange->element_count);

		shares->items[shares->share_count++] = (struct share){ first, end - first, i };
		first = end;
	}
}

/* Documented in the header, as are all of these. */
void shares_init(struct shares *shares, const struct net_exchange *exchange, uint32_t node_count,
                 uint64_t piece_elements)
{
	uint64_t bytes = exchange->element_count * zi_dtype_bytes(exchange->dtype);

	assert(node_count <= SUBTREE_NODES_MAX);
	*shares = (struct shares){ .piece_elements = piece_elements };
	if (exchange->mode == NET_SCATTER)
		share_by_rank(shares, exchange);
	else if (bytes <= SHARES_SMALL_BYTES)
		shares->items[shares->share_count++] =
			(struct share){ 0, exchange->element_count, SHARES_OWNER_WANTING };
	else
		share_by_node(shares, exchange, node_count);
}

bool shares_is_wanted(const struct net_exchange *exchange, uint32_t node)
{
	if (exchange->mode == NET_ROOT)
		return node == exchange->root;
	return exchange->mode != NET_BROADCAST || node != exchange->root;
}

static bool is_owner(const struct share *share, const struct net_exchange *exchange, uint32_t node)
{
	return share->owner == SHARES_OWNER_WANTING ? shares_is_wanted(exchange, node)
	                                            : share->owner == node;
}

static uint64_t pieces_of(const struct share *share, uint64_t piece_elements)
{
	return (share->count + piece_elements - 1) / piece_elements;
}

uint64_t shares_piece_count(const struct shares *shares, const struct net_exchange *exchange,
                            uint32_t node)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < shares->share_count; i++)
		if (is_owner(&shares->items[i], exchange, node))
			count += pieces_of(&shares->items[i], shares->piece_elements);
	return count;
}

struct share shares_piece(const struct shares *shares, const struct net_exchange *exchange,
                          uint32_t node, uint64_t index)
{
	for (uint32_t i = 0; i < shares->share_count; i++) {
		const struct share *share = &shares->items[i];
		uint64_t count = pieces_of(share, shares->piece_elements);
		uint64_t skipped = index * shares->piece_elements;

		if (!is_owner(share, exchange, node))
			continue;
		if (index < count)
			return (struct share){
				share->first + skipped,
				ZI_MIN(shares->piece_elements, share->count - skipped), share->owner
			};
		index -= count;
	}
	assert(false && "a piece of this node");
	return (struct share){ 0, 0, 0 };
}

static uint64_t leaf_bytes(const struct subtree *leaf, uint64_t element_count, enum zi_dtype dtype)
{
	return element_count * zi_dtype_bytes(subtree_dtype(leaf, dtype));
}

uint64_t shares_partial_offset(const struct subtree_plan *plan, uint32_t node, uint32_t leaf,
                               uint64_t element_count, enum zi_dtype dtype)
{
	uint64_t offset = 0;

	for (uint32_t i = 0; i < leaf; i++)
		if (plan->leaves[i].node == node)
			offset += zi_align_up(leaf_bytes(&plan->leaves[i], element_count, dtype),
			                      SHARES_LINE_BYTES);
	return offset;
}

uint64_t shares_partial_bytes(const struct subtree_plan *plan, uint32_t node,
                              uint64_t element_count, enum zi_dtype dtype)
{
	for (uint32_t i = plan->leaf_count; i-- > 0;)
		if (plan->leaves[i].node == node)
			return shares_partial_offset(plan, node, i, element_count, dtype) +
			       leaf_bytes(&plan->leaves[i], element_count, dtype);
	return 0;
}
