/* SPDX-License-Identifier: Apache-2.0 */
/* Calls across nodes in pieces; see far.h. Floor 1. Any thread. */
#include "common/wire/far.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"

/* Partials travel in fp32 at least. */
#define FAR_PARTIAL_WIDTH 4u

static uint64_t align(uint64_t bytes)
{
	return (bytes + ZI_LINE_BYTES - 1) / ZI_LINE_BYTES * ZI_LINE_BYTES;
}

/* See far.h. */
void zi_far_shape_init(struct zi_far_shape *shape, const uint8_t *nodes, uint32_t member_count,
                       uint32_t node_count, uint32_t node)
{
	uint32_t order = 0;

	assert(member_count <= ZI_WORLD_MAX);
	assert(node < node_count);
	*shape = (struct zi_far_shape){ .member_count = member_count,
		                        .node_count = node_count,
		                        .node = node };
	memcpy(shape->nodes, nodes, member_count);
	for (uint32_t i = 0; i < node_count; i++) {
		shape->firsts[i] = (uint8_t)order;
		for (uint32_t k = 0; k < member_count; k++) {
			if (nodes[k] != i)
				continue;
			shape->orders[k] = (uint8_t)order++;
			if (i == node)
				shape->members[shape->self_count++] = (uint8_t)k;
		}
		shape->counts[i] = (uint8_t)(order - shape->firsts[i]);
		assert(shape->counts[i] > 0);
	}
	assert(order == member_count);
}

/* See far.h. Of reduce, members but the root have no room in which a part of it is finished. */
bool zi_far_can_be_direct(const struct zi_far_shape *shape, enum zi_coll_operation operation)
{
	const struct zi_coll_shape *buffers = zi_coll_shape_of(operation);

	if (!zi_coll_has_data(operation) || zi_coll_is_counted(operation) ||
	    operation == ZI_COLL_REDUCE)
		return false;
	return shape->node_count == shape->member_count ||
	       (!buffers->is_join && (zi_coll_is_for_each(&buffers->source) ||
	                              buffers->target.holder == ZI_HELD_BY_ROOT));
}

/* Blocks that @here members of a node have of @all, and that they get together. */
static void count_blocks(enum zi_coll_operation operation, uint32_t here, uint32_t all,
                         uint32_t *ret_sources, uint32_t *ret_results)
{
	const struct zi_coll_shape *shape = zi_coll_shape_of(operation);

	*ret_sources = zi_coll_block_count(&shape->source, all);
	*ret_results = zi_coll_block_count(&shape->target, all);
	if (shape->source.holder == ZI_HELD_BY_ALL)
		*ret_sources *= here;
	/* Of what is for each member nobody gets the same; the sum has all of it in one place. */
	if (shape->is_join)
		*ret_results = zi_coll_block_count(&shape->source, all);
	else if (zi_coll_is_for_each(&shape->source))
		*ret_results *= here;
}

/* See far.h. */
void zi_far_cut_init(struct zi_far_cut *cut, const struct zi_far_shape *shape, uint64_t slab_bytes,
                     enum zi_coll_operation operation, enum zi_dtype dtype, uint64_t element_count)
{
	uint32_t largest = 1, sources, results, line_elements;
	uint64_t element_bytes, lines;

	*cut = (struct zi_far_cut){ .operation = operation, .element_count = element_count };
	cut->slot_bytes = zi_far_slot_bytes(slab_bytes);
	if (operation == ZI_COLL_BARRIER || !element_count)
		return;
	cut->width = zi_dtype_bytes(dtype);
	assert(cut->width);
	count_blocks(operation, shape->self_count, shape->member_count, &cut->source_blocks,
	             &cut->result_blocks);
	for (uint32_t i = 0; i < shape->node_count; i++)
		largest = ZI_MAX(largest, shape->counts[i]);
	count_blocks(operation, largest, shape->member_count, &sources, &results);
	cut->is_in_place =
		operation == ZI_COLL_BROADCAST || (zi_coll_is_join(operation) && largest == 1);
	element_bytes = (uint64_t)(sources + (cut->is_in_place ? 0 : results)) * cut->width;
	if (zi_coll_is_join(operation) && !cut->is_in_place)
		element_bytes += (uint64_t)sources * ZI_MAX(cut->width, FAR_PARTIAL_WIDTH);
	/* Each partial begins on a line, as do the three parts. */
	lines = largest + 4;
	cut->leaf_lines = shape->self_count;
	line_elements = ZI_LINE_BYTES / cut->width;
	assert(cut->slot_bytes > lines * ZI_LINE_BYTES);
	cut->piece_elements = (cut->slot_bytes - lines * ZI_LINE_BYTES) / element_bytes;
	if (cut->piece_elements > line_elements)
		cut->piece_elements -= cut->piece_elements % line_elements;
	assert(cut->piece_elements > 0);
	cut->piece_count = (element_count - 1) / cut->piece_elements + 1;
}

/* See far.h. */
void zi_far_piece_init(struct zi_far_piece *piece, const struct zi_far_cut *cut, uint64_t index)
{
	uint64_t partial_bytes = 0;

	assert(index < cut->piece_count);
	piece->first = index * cut->piece_elements;
	piece->count = ZI_MIN(cut->piece_elements, cut->element_count - piece->first);
	piece->block_bytes = piece->count * cut->width;
	piece->source =
		ZI_FAR_WORKER_BYTES + (cut->number + index) % ZI_FAR_SLOTS * cut->slot_bytes;
	piece->partial = piece->result = piece->source;
	if (cut->is_in_place)
		return;
	piece->partial = align(piece->source + cut->source_blocks * piece->block_bytes);
	if (zi_coll_is_join(cut->operation))
		partial_bytes =
			cut->source_blocks * piece->count * ZI_MAX(cut->width, FAR_PARTIAL_WIDTH) +
			cut->leaf_lines * ZI_LINE_BYTES;
	piece->result = align(piece->partial + partial_bytes);
}

/* See far.h. */
uint64_t zi_far_source_at(const struct zi_far_shape *shape, const struct zi_far_cut *cut,
                          const struct zi_far_piece *piece, uint32_t from, uint32_t to)
{
	uint32_t node = shape->nodes[to], block;
	uint32_t there = (uint32_t)shape->orders[to] - shape->firsts[node];

	switch (cut->operation) {
	case ZI_COLL_REDUCE_SCATTER:
		block = from * shape->member_count + to;
		break;
	case ZI_COLL_SCATTER:
		block = shape->orders[to];
		break;
	case ZI_COLL_BROADCAST:
		block = 0;
		break;
	case ZI_COLL_ALL_TO_ALL:
	case ZI_COLL_ALL_TO_ALLV:
		block = shape->firsts[node] * shape->self_count + from * shape->counts[node] +
		        there;
		break;
	default:
		block = from;
		break;
	}
	return piece->source + block * piece->block_bytes;
}

/* See far.h. */
uint64_t zi_far_result_at(const struct zi_far_shape *shape, const struct zi_far_cut *cut,
                          const struct zi_far_piece *piece, uint32_t from, uint32_t to)
{
	uint32_t node = shape->nodes[from], block = 0;

	assert(zi_far_is_here(shape, to));
	if (!zi_coll_is_join(cut->operation) && node == shape->node)
		return zi_far_source_at(shape, cut, piece, zi_far_local(shape, from), to);
	switch (cut->operation) {
	case ZI_COLL_REDUCE_SCATTER:
		block = to;
		break;
	case ZI_COLL_ALL_GATHER:
	case ZI_COLL_GATHER:
		block = shape->orders[from];
		break;
	case ZI_COLL_SCATTER:
		block = zi_far_local(shape, to);
		break;
	case ZI_COLL_ALL_TO_ALL:
	case ZI_COLL_ALL_TO_ALLV:
		block = shape->firsts[node] * shape->self_count +
		        zi_far_local(shape, from) * shape->self_count + zi_far_local(shape, to);
		break;
	default:
		break;
	}
	return piece->result + block * piece->block_bytes;
}
