/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: pieces of calls across nodes lie within their slot, what one member writes no other does,
 * every element is in one piece, and all nodes cut alike. Method: random placements of 2 to 64
 * members on 2 to 8 nodes, all operations and types, sizes around the borders of pieces.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/wire/far.h"

#define SLAB_BYTES ZI_FAR_GROUP_BYTES

static uint64_t state = 1;

static uint64_t roll(uint64_t sides)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (state >> 33) % sides;
}

/* The first members are one on each node, so that no node is empty. */
static void place(struct zi_far_shape *shapes, uint32_t *ret_nodes)
{
	uint32_t nodes = 2 + (uint32_t)roll(7);
	uint32_t members = nodes + (uint32_t)roll(ZI_WORLD_MAX - nodes + 1);
	uint8_t places[ZI_WORLD_MAX];

	for (uint32_t i = 0; i < members; i++)
		places[i] = (uint8_t)(i < nodes ? i : roll(nodes));
	for (uint32_t i = 0; i < nodes; i++)
		zi_far_shape_init(&shapes[i], places, members, nodes, i);
	*ret_nodes = nodes;
}

Test(far, members_are_numbered_node_by_node)
{
	const uint8_t nodes[] = { 0, 1, 0, 2, 1, 0 };
	struct zi_far_shape shape;

	zi_far_shape_init(&shape, nodes, 6, 3, 1);
	cr_expect_eq(shape.self_count, 2);
	cr_expect_eq(shape.members[0], 1);
	cr_expect_eq(shape.members[1], 4);
	cr_expect_eq(shape.firsts[2], 5);
	cr_expect_eq(shape.orders[5], 2);
	cr_expect_eq(zi_far_local(&shape, 5), 2);
	cr_expect(zi_far_is_here(&shape, 4));
	cr_expect_not(zi_far_is_here(&shape, 5));
}

Test(far, a_barrier_and_a_call_of_nothing_have_no_pieces)
{
	struct zi_far_shape shapes[8];
	struct zi_far_cut cut;
	uint32_t nodes;

	place(shapes, &nodes);
	zi_far_cut_init(&cut, &shapes[0], SLAB_BYTES, ZI_COLL_BARRIER, 0, 0);
	cr_expect_eq(cut.piece_count, 0);
	zi_far_cut_init(&cut, &shapes[0], SLAB_BYTES, ZI_COLL_ALL_REDUCE, ZI_DTYPE_F32, 0);
	cr_expect_eq(cut.piece_count, 0);
}

/* Marks a block of a slot that somebody writes. */
static void mark(unsigned char *marks, const struct zi_far_piece *piece, uint64_t slot_bytes,
                 uint64_t begin, uint64_t offset)
{
	cr_assert_geq(offset, begin);
	cr_assert_leq(offset + piece->block_bytes, piece->source + slot_bytes);
	/* Both ends of it, so that blocks which overlap meet. */
	for (uint32_t end = 0; end < 2; end++) {
		unsigned char *place =
			&marks[offset - piece->source + (end ? piece->block_bytes - 1 : 0)];

		cr_assert(!*place || piece->block_bytes == 1);
		*place = 1;
	}
}

static void check_sources(const struct zi_far_shape *shape, const struct zi_far_cut *cut,
                          const struct zi_far_piece *piece, unsigned char *marks)
{
	bool has_blocks = cut->operation == ZI_COLL_REDUCE_SCATTER ||
	                  cut->operation == ZI_COLL_SCATTER || cut->operation == ZI_COLL_ALL_TO_ALL;
	bool is_rooted = cut->operation == ZI_COLL_SCATTER || cut->operation == ZI_COLL_BROADCAST;

	memset(marks, 0, cut->slot_bytes);
	for (uint32_t from = 0; from < (is_rooted ? 1 : shape->self_count); from++)
		for (uint32_t to = 0; to < (has_blocks ? shape->member_count : 1); to++) {
			uint64_t offset = zi_far_source_at(shape, cut, piece, from, to);

			mark(marks, piece, cut->slot_bytes, piece->source, offset);
			if (!cut->is_in_place)
				cr_assert_leq(offset + piece->block_bytes, piece->partial);
		}
}

/* What comes from other nodes. */
static void check_results(const struct zi_far_shape *shape, const struct zi_far_cut *cut,
                          const struct zi_far_piece *piece, unsigned char *marks)
{
	memset(marks, 0, cut->slot_bytes);
	for (uint32_t from = 0; from < shape->member_count; from++)
		for (uint32_t i = 0; i < shape->self_count; i++) {
			uint32_t to = shape->members[i];
			uint64_t offset = zi_far_result_at(shape, cut, piece, from, to);

			if (zi_far_is_here(shape, from) && cut->operation > ZI_COLL_REDUCE_SCATTER)
				continue;
			cr_assert_geq(offset, piece->result);
			cr_assert_leq(offset + piece->block_bytes, piece->source + cut->slot_bytes);
			if (cut->operation == ZI_COLL_ALL_TO_ALL)
				mark(marks, piece, cut->slot_bytes, piece->result, offset);
		}
}

Test(far, pieces_lie_in_their_slots_and_blocks_do_not_meet)
{
	unsigned char *marks = malloc(SLAB_BYTES);

	cr_assert(marks);
	for (uint32_t round = 0; round < 300; round++) {
		enum zi_coll_operation operation =
			ZI_COLL_ALL_REDUCE +
			(uint32_t)roll(ZI_COLL_ALL_TO_ALL - ZI_COLL_ALL_REDUCE + 1);
		enum zi_dtype dtype = 1 + (uint32_t)roll(_ZI_DTYPE_COUNT - 1);
		struct zi_far_shape shapes[8];
		struct zi_far_cut first, cut;
		uint64_t count, sum = 0;
		uint32_t nodes;

		place(shapes, &nodes);
		zi_far_cut_init(&first, &shapes[0], SLAB_BYTES, operation, dtype, 1);
		count = first.piece_elements * roll(3) + roll(3);
		count = count ? count : 1;
		zi_far_cut_init(&first, &shapes[0], SLAB_BYTES, operation, dtype, count);
		for (uint64_t k = 0; k < first.piece_count; k++) {
			struct zi_far_piece piece;

			zi_far_piece_init(&piece, &first, k);
			cr_assert_eq(piece.first, sum);
			sum += piece.count;
		}
		cr_assert_eq(sum, count);
		for (uint32_t n = 0; n < nodes; n++) {
			struct zi_far_piece piece;

			zi_far_cut_init(&cut, &shapes[n], SLAB_BYTES, operation, dtype, count);
			cr_assert_eq(cut.piece_count, first.piece_count);
			cr_assert_eq(cut.piece_elements, first.piece_elements);
			zi_far_piece_init(&piece, &cut, 0);
			check_sources(&shapes[n], &cut, &piece, marks);
			check_results(&shapes[n], &cut, &piece, marks);
			cr_assert(!cut.is_in_place || piece.result == piece.source);
		}
	}
	free(marks);
}

Test(far, pieces_take_slots_on_from_call_to_call)
{
	struct zi_far_shape shapes[8];
	struct zi_far_piece piece, former;
	struct zi_far_cut cut;
	uint32_t nodes;

	place(shapes, &nodes);
	zi_far_cut_init(&cut, &shapes[0], SLAB_BYTES, ZI_COLL_ALL_GATHER, ZI_DTYPE_F32, 1000);
	zi_far_piece_init(&former, &cut, 0);
	for (cut.number = 1; cut.number < ZI_FAR_SLOTS; cut.number++) {
		zi_far_piece_init(&piece, &cut, 0);
		cr_expect_eq(piece.source, former.source + cut.slot_bytes);
		former = piece;
	}
	zi_far_piece_init(&piece, &cut, 0);
	cr_expect_eq(piece.source, former.source - (ZI_FAR_SLOTS - 1) * cut.slot_bytes);
}

Test(far, a_block_of_all_to_allv_ends_where_it_ends)
{
	const struct zi_far_piece piece = { .first = 100, .count = 50 };

	cr_expect_eq(zi_far_part(&piece, 0), 0);
	cr_expect_eq(zi_far_part(&piece, 100), 0);
	cr_expect_eq(zi_far_part(&piece, 101), 1);
	cr_expect_eq(zi_far_part(&piece, 150), 50);
	cr_expect_eq(zi_far_part(&piece, UINT64_MAX), 50);
}
