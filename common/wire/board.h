/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The board of a group: shared memory in which ranks of one node tell each other what they call,
 * where their data lies, and that they are done. Floor 1.
 *
 * Every member has a part of its own and is the only one who writes it; the others, and the daemon
 * when it looks for whoever holds up a call, only read it. Calls of a group are numbered from 1; a
 * rank posts call n to slot n mod 2. Two slots are enough: a rank posts n + 2 only after everyone
 * has posted n + 1, hence has left n.
 *
 * The verdict on a group is a line in a region that the daemon alone writes (ZI_VERDICT_*).
 */
#pragma once

#include <stdalign.h>
#include <stdint.h>

#include "common/wire/layout.h"

#define ZI_BOARD_INLINE_BYTES  4096u
#define ZI_BOARD_MEMBER_BYTES  12288u
#define ZI_BOARD_PAYLOAD_BYTES 16u

/* What ranks call together. Numbers are on the wire: they only add. */
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
	_ZI_COLL_COUNT,
};

/* "all_reduce" and so on; "?" when it is none. */
const char *zi_coll_operation_name(uint32_t operation);

/* What a call is. Equal on all members but for what says otherwise. */
struct zi_board_call {
	uint8_t operation; /* enum zi_coll_operation */
	uint8_t dtype;     /* enum zi_dtype */
	uint8_t reduce_op; /* enum zi_reduce_op, or 0 */
	uint8_t flags;
	uint32_t root;           /* member, or 0 */
	uint64_t element_count;  /* per member, as the operation counts */
	uint64_t source, target; /* this member's own: places in the arenas, or ZI_BOARD_NOWHERE */
};
#define ZI_BOARD_NOWHERE UINT64_MAX

/* One line: whoever reads the number has the rest without another miss. */
struct zi_board_post {
	alignas(ZI_LINE_BYTES) uint32_t sequence; /* written last, released */
	uint32_t payload_bytes;                   /* that lie here, or in the inline part */
	struct zi_board_call call;
	uint8_t payload[ZI_BOARD_PAYLOAD_BYTES];
	uint64_t reserved;
};
static_assert(sizeof(struct zi_board_post) == ZI_LINE_BYTES, "a post is one line");

struct zi_board_member {
	struct zi_board_post posts[2];
	struct zi_line finished; /* number of the newest call whose data this member has left */
	struct zi_line sleeping; /* 1: whoever posts or finishes wakes this member */
	uint8_t reserved[4096 - 4 * ZI_LINE_BYTES];
	uint8_t inlined[2][ZI_BOARD_INLINE_BYTES]; /* of the post of the same index */
};
static_assert(sizeof(struct zi_board_member) == ZI_BOARD_MEMBER_BYTES, "whole pages");
