/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives inside a node: the ranks do the work, each its share. Floor 2; a struct belongs to
 * the thread that makes the group's calls.
 *
 *   call.c    one call: posted, awaited, compared, ended        meet.c  waiting for each other
 *   join.c    all_reduce, reduce, reduce_scatter                move.c  what only moves bytes
 *
 * Two paths. Up to ZI_BOARD_INLINE_BYTES the data travel with the post: each rank reads what it
 * needs from the others' posts, and the call is over with one meeting. Above, a post says where in
 * the arenas the data lie; each rank works on its share of everybody's, and all meet once more at
 * the end, since until then others read what is one's own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"
#include "libclient/coll/meet.h"

/* As the caller gives it. Pointers that an operation does not have on this member are NULL. */
struct zi_node_call {
	enum zi_coll_operation operation;
	enum zi_dtype dtype;
	enum zi_reduce_op reduce_op; /* of those that join; else 0 */
	uint32_t root;               /* member; else 0 */
	uint64_t element_count; /* all_reduce, reduce, broadcast: of the buffer; else of a block */
	const void *source;
	void *target; /* may be @source where both have the same length */
	uint64_t deadline_ns;
};

struct zi_node_group {
	struct zi_meet meet;
	char *arenas; /* member_count arenas of arena_bytes, one after the other */
	uint64_t arena_bytes;
	uint32_t sequence; /* of the newest call */
	/* Results of at least so many bytes in all pass by the cache. */
	uint64_t streaming_bytes;
};

/* Where a member's data lie while a call runs. */
struct zi_node_places {
	const void *sources[ZI_WORLD_MAX];
	void *targets[ZI_WORLD_MAX];
	bool is_inline;
};

/*
 * Return: 0; -ETIMEDOUT, or the verdict on the group; -EINVAL @text says who calls something else;
 * -EFAULT a member's place lies outside the arenas.
 */
int zi_node_call(struct zi_node_group *group, const struct zi_node_call *call,
                 struct zi_text *text);

/* ---- between the files ---- */

/* Elements of a share end on lines, so that no two ranks write one line. */
static inline uint64_t zi_node_share(uint64_t element_count, uint32_t width, uint32_t part,
                                     uint32_t part_count)
{
	uint64_t line_elements = ZI_LINE_BYTES / width;
	uint64_t lines = (element_count + line_elements - 1) / line_elements;
	uint64_t end = lines * part / part_count * line_elements;

	return end < element_count ? end : element_count;
}

/* This member's share of what joins elements. */
void zi_node_join(const struct zi_node_group *group, const struct zi_node_call *call,
                  const struct zi_node_places *places);
/* This member's share of what only moves bytes. */
void zi_node_move(const struct zi_node_group *group, const struct zi_node_call *call,
                  const struct zi_node_places *places);
