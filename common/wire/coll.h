/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks call together, and what each operation takes and gives: one table, which everybody
 * reads who has to know how long a buffer is, whether there is one at all, or what of it goes to
 * whom. Floor 1, any thread.
 *
 * An operation takes a source and gives a target. Each is a block of as many elements as the call
 * says, or a block for (from) each member, one after the other in the order of members; and each is
 * everybody's, or the root's alone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/checked.h"

/* Numbers are on the wire: they only add. */
enum zi_coll_operation {
	ZI_COLL_BARRIER = 1,
	ZI_COLL_ALL_REDUCE = 2,
	ZI_COLL_REDUCE = 3,
	ZI_COLL_REDUCE_SCATTER = 4,
	ZI_COLL_ALL_GATHER = 5,
	ZI_COLL_BROADCAST = 6,
	ZI_COLL_GATHER = 7,
	ZI_COLL_SCATTER = 8,
	ZI_COLL_ALL_TO_ALL = 9,
	ZI_COLL_ALL_TO_ALLV = 10, /* posted with counts, ZI_BOARD_COUNTS_BYTES */
	ZI_COLL_SEND = 11,        /* the last two are never posted as calls */
	ZI_COLL_RECV = 12,
	_ZI_COLL_COUNT,
};

enum zi_coll_blocks {
	ZI_BLOCKS_NONE = 0,
	ZI_BLOCKS_ONE = 1,
	ZI_BLOCKS_EACH = 2,    /* one for each member, … */
	ZI_BLOCKS_COUNTED = 3, /* … each as long as the call says of it */
};

enum zi_coll_holder {
	ZI_HELD_BY_NOBODY = 0,
	ZI_HELD_BY_ALL = 1,
	ZI_HELD_BY_ROOT = 2,
	ZI_HELD_BY_OTHERS = 3, /* all but the root */
};

struct zi_coll_buffer {
	enum zi_coll_blocks blocks;
	enum zi_coll_holder holder;
};

struct zi_coll_shape {
	const char *name;
	bool is_join; /* elements of members are joined by a reduction; else they only move */
	struct zi_coll_buffer source, target;
};

/* (_ZI_COLL_COUNT,) by operation; 0: none. Of send and recv only the name. */
extern const struct zi_coll_shape zi_coll_shapes[];

/* @operation may be anything: of none, an empty shape without a name. */
static inline const struct zi_coll_shape *zi_coll_shape_of(uint32_t operation)
{
	return &zi_coll_shapes[operation < _ZI_COLL_COUNT ? operation : 0];
}

/* "all_reduce" and so on; "?" when it is none. */
const char *zi_coll_operation_name(uint32_t operation);

/* Whether it is called by all members of a group. */
static inline bool zi_coll_is_collective(uint32_t operation)
{
	return operation >= ZI_COLL_BARRIER && operation <= ZI_COLL_ALL_TO_ALLV;
}

static inline bool zi_coll_is_join(uint32_t operation)
{
	return zi_coll_shape_of(operation)->is_join;
}

/* Whether a member has a part of its own in it. */
static inline bool zi_coll_is_rooted(uint32_t operation)
{
	const struct zi_coll_shape *shape = zi_coll_shape_of(operation);

	return shape->source.holder == ZI_HELD_BY_ROOT || shape->target.holder == ZI_HELD_BY_ROOT;
}

/* Whether blocks have lengths of their own, that each member says. */
static inline bool zi_coll_is_counted(uint32_t operation)
{
	return zi_coll_shape_of(operation)->source.blocks == ZI_BLOCKS_COUNTED;
}

/* Whether elements go from member to member; else they only meet. */
static inline bool zi_coll_has_data(uint32_t operation)
{
	return zi_coll_shape_of(operation)->source.blocks != ZI_BLOCKS_NONE;
}

static inline bool zi_coll_is_for_each(const struct zi_coll_buffer *buffer)
{
	return buffer->blocks >= ZI_BLOCKS_EACH;
}

static inline uint32_t zi_coll_block_count(const struct zi_coll_buffer *buffer,
                                           uint32_t member_count)
{
	return zi_coll_is_for_each(buffer) ? member_count : buffer->blocks;
}

static inline bool zi_coll_is_holder(const struct zi_coll_buffer *buffer, uint32_t member,
                                     uint32_t root)
{
	return buffer->holder == ZI_HELD_BY_ALL ||
	       (buffer->holder == ZI_HELD_BY_ROOT && member == root) ||
	       (buffer->holder == ZI_HELD_BY_OTHERS && member != root);
}

/* Who of @everyone has one: bitmaps of members. @root is a member where the operation has one. */
static inline uint64_t zi_coll_holders(const struct zi_coll_buffer *buffer, uint64_t everyone,
                                       uint32_t root)
{
	switch (buffer->holder) {
	case ZI_HELD_BY_ALL:
		return everyone;
	case ZI_HELD_BY_ROOT:
		return 1ull << root;
	case ZI_HELD_BY_OTHERS:
		return everyone & ~(1ull << root);
	default:
		return 0;
	}
}

/* Whose data a member needs. */
enum zi_coll_needs {
	ZI_NEEDS_ALL = 0,
	ZI_NEEDS_ROOT = 1, /* which alone has a source, and is another one */
	ZI_NEEDS_NOBODY = 2,
};

static inline enum zi_coll_needs zi_coll_needs_of(uint32_t operation, uint32_t member,
                                                  uint32_t root)
{
	const struct zi_coll_shape *shape = zi_coll_shape_of(operation);

	if (shape->source.holder == ZI_HELD_BY_ROOT)
		return member == root ? ZI_NEEDS_NOBODY : ZI_NEEDS_ROOT;
	return shape->target.holder == ZI_HELD_BY_ROOT && member != root ? ZI_NEEDS_NOBODY
	                                                                 : ZI_NEEDS_ALL;
}

/* Elements before block @block of those that lie one after the other, as long as @counts says. */
static inline uint64_t zi_coll_sum_before(const uint64_t *counts, uint32_t block)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < block; i++)
		sum += counts[i];
	return sum;
}

/* What tells how long a member's buffers are. */
struct zi_coll_lengths {
	uint32_t operation;
	uint32_t member_count;
	uint32_t width;         /* bytes of an element */
	uint64_t element_count; /* of a block; not looked at where blocks are counted, … */
	/* … (member_count,) elements for and from each member, which are looked at only then. */
	const uint64_t *source_counts, *target_counts;
};

/* zi_coll_bytes() where blocks are counted. */
bool zi_coll_counted_bytes(const struct zi_coll_lengths *lengths, uint64_t *ret_source_bytes,
                           uint64_t *ret_target_bytes);

/**
 * zi_coll_bytes() - how long a member's buffers are, where it has them
 *
 * Whatever the operation, a block for each member must fit into 64 bits: so the data of a whole
 * call can be counted.
 *
 * Return: false when something does not fit; nothing is written then.
 */
static inline bool zi_coll_bytes(const struct zi_coll_lengths *lengths, uint64_t *ret_source_bytes,
                                 uint64_t *ret_target_bytes)
{
	const struct zi_coll_shape *shape = zi_coll_shape_of(lengths->operation);
	uint64_t block = 0, all;

	if (shape->source.blocks == ZI_BLOCKS_COUNTED)
		return zi_coll_counted_bytes(lengths, ret_source_bytes, ret_target_bytes);
	if (shape->source.blocks != ZI_BLOCKS_NONE &&
	    (!zi_checked_mul(lengths->element_count, lengths->width, &block) ||
	     !zi_checked_mul(block, lengths->member_count, &all)))
		return false;
	*ret_source_bytes = block * zi_coll_block_count(&shape->source, lengths->member_count);
	*ret_target_bytes = block * zi_coll_block_count(&shape->target, lengths->member_count);
	return true;
}
