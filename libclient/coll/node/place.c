/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where everybody's data lie, and by which path a call goes, hence. Floor 2.
 *
 * The staging part of a group: three slots for pieces of collectives, then for each peer two
 * letters, pieces of what is sent to it. All members cut it alike. A slot is a quarter of it, but
 * no more than stays in a cache: of the world's 4 MiB the slots take 768 KiB, and the letters 1 MiB
 * at most; the rest is never touched.
 */
#include "libclient/coll/node/place.h"

#include <errno.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/verdict.h"
#include "libclient/coll/node/members.h"

/* The world, then each other group; whole pages. */
#define PLACE_WORLD_STAGING_BYTES (4ull << 20)
#define PLACE_GROUP_STAGING_BYTES (192ull << 10)
/* A piece, its results and what a peer has of both stay in a core's L2 of 1 MiB. */
#define PLACE_PIECE_BYTES (256ull << 10)

static_assert(PLACE_WORLD_STAGING_BYTES + (ZI_GROUPS_MAX - 1) * PLACE_GROUP_STAGING_BYTES <=
                      ZI_COLL_STAGING_BYTES,
              "every group has its part");

void zi_node_staging(uint32_t number, uint64_t *ret_offset, uint64_t *ret_bytes)
{
	assert(number < ZI_GROUPS_MAX);
	*ret_offset =
		number ? PLACE_WORLD_STAGING_BYTES + (number - 1) * PLACE_GROUP_STAGING_BYTES : 0;
	*ret_bytes = number ? PLACE_GROUP_STAGING_BYTES : PLACE_WORLD_STAGING_BYTES;
}

uint64_t zi_node_slot_bytes(const struct zi_node_group *group)
{
	uint64_t bytes = group->staging_bytes / 4 / ZI_LINE_BYTES * ZI_LINE_BYTES;

	return ZI_MIN(bytes, PLACE_PIECE_BYTES);
}

uint64_t zi_node_letter_bytes(const struct zi_node_group *group)
{
	uint64_t bytes = group->staging_bytes / 4 / (2ull * group->meet.member_count);

	return ZI_MIN(bytes, PLACE_PIECE_BYTES) / ZI_LINE_BYTES * ZI_LINE_BYTES;
}

char *zi_node_letters(const struct zi_node_group *group, uint32_t peer)
{
	return group->staging + ZI_NODE_SLOTS * zi_node_slot_bytes(group) +
	       2 * peer * zi_node_letter_bytes(group);
}

uint64_t zi_node_place_of(const struct zi_node_group *group, const void *pointer, uint64_t bytes)
{
	uint64_t offset = (uint64_t)((const char *)pointer - group->own);

	if (!pointer || offset > group->own_bytes || bytes > group->own_bytes - offset)
		return ZI_BOARD_NOWHERE;
	return (uint64_t)((const char *)pointer - group->arenas);
}

char *zi_node_place_at(const struct zi_node_group *group, uint64_t place, uint64_t bytes)
{
	if (bytes > group->arenas_bytes || place > group->arenas_bytes - bytes)
		return NULL;
	return group->arenas + place;
}

/* ---- what a post says ---- */

/* Prefix sums over what @member posted, of which the one at this member counts; and the longest. */
static int take_counts(struct zi_node_group *group, uint32_t member, uint64_t *ret_source_bytes,
                       uint64_t *ret_target_bytes)
{
	struct zi_node_run *run = &group->run;
	uint32_t members = group->meet.member_count, self = group->meet.self;
	uint64_t width = zi_dtype_bytes(run->call.dtype), sums[2] = { 0, 0 };
	const uint64_t *own[2] = { run->call.target_counts, run->call.source_counts };
	uint64_t counts[2 * ZI_WORLD_MAX], *offsets[2];

	memcpy(counts,
	       zi_meet_payload_of(&group->meet, member, group->sequence,
	                          ZI_BOARD_COUNTS_BYTES(members)),
	       ZI_BOARD_COUNTS_BYTES(members));
	offsets[0] = &run->source_offsets[member];
	offsets[1] = &run->target_offsets[member];
	for (uint32_t side = 0; side < 2; side++)
		for (uint32_t i = 0; i < members; i++) {
			uint64_t count = counts[side * members + i];

			if (i == self) {
				*offsets[side] = sums[side];
				run->is_uneven |= count != own[side][member];
			}
			run->longest = ZI_MAX(run->longest, count);
			if (!zi_checked_add(sums[side], count, &sums[side]))
				return err_origin(-EPROTO);
		}
	if (!zi_checked_mul(sums[0], width, ret_source_bytes) ||
	    !zi_checked_mul(sums[1], width, ret_target_bytes))
		return err_origin(-EPROTO);
	return 0;
}

/* In posts: the data of @member, or its counts. */
static int take_payload(struct zi_node_group *group, uint32_t member,
                        const struct zi_board_post *post)
{
	struct zi_node_run *run = &group->run;
	bool has_source = zi_node_has(run->with_source, member);

	if (post->payload_bytes != (has_source ? run->source_bytes : 0))
		return err_origin(-EPROTO);
	if (member != group->meet.self)
		run->sources[member] = zi_meet_payload_of(&group->meet, member, group->sequence,
		                                          post->payload_bytes);
	return 0;
}

/* @place, of @bytes, of a member that has one: noted in @outside when it is nowhere. Of nothing
 * that does not matter. */
static int take_place(const struct zi_node_group *group, uint64_t place, uint64_t bytes,
                      uint32_t member, uint64_t *outside, char **ret_pointer)
{
	char *pointer = NULL;

	if (place == ZI_BOARD_NOWHERE)
		*outside |= (uint64_t)(bytes > 0) << member;
	else if (!(pointer = zi_node_place_at(group, place, bytes)))
		return err_origin(-EFAULT);
	if (member != group->meet.self)
		*ret_pointer = pointer;
	return 0;
}

int zi_node_take_post(struct zi_node_group *group, uint32_t member,
                      const struct zi_board_post *post)
{
	struct zi_node_run *run = &group->run;
	uint64_t source_bytes = run->source_bytes, target_bytes = run->target_bytes;
	char *source = NULL;
	int r = 0;

	if (run->path == ZI_NODE_INLINE)
		return err_trace(take_payload(group, member, post));
	if (zi_coll_is_counted(run->call.operation)) {
		if (post->payload_bytes != ZI_BOARD_COUNTS_BYTES(group->meet.member_count))
			return err_origin(-EPROTO);
		r = take_counts(group, member, &source_bytes, &target_bytes);
	}
	run->stagings[member] =
		zi_node_place_at(group, post->staging, ZI_NODE_SLOTS * zi_node_slot_bytes(group));
	if (!r && !run->stagings[member])
		r = err_origin(-EFAULT);
	if (!r && zi_node_has(run->with_source, member)) {
		uint64_t place = post->call.source;

		run->addresses[member] = zi_cma_address_at(place);
		if (run->addresses[member] && !zi_coll_is_join(run->call.operation)) {
			run->unstaged |= 1ull << member;
			place = ZI_BOARD_NOWHERE;
		}
		r = take_place(group, place, source_bytes, member, &run->outside_sources, &source);
		if (member != group->meet.self)
			run->sources[member] = source;
	}
	if (!r && zi_node_has(run->with_target, member))
		r = take_place(group, post->call.target, target_bytes, member,
		               &run->outside_targets, &run->targets[member]);
	return err_trace(r);
}

/* ---- which way ---- */

static enum zi_node_path path_of_move(const struct zi_node_run *run)
{
	bool can_push = !run->outside_targets, can_pull = !run->outside_sources;

	switch (run->call.operation) {
	case ZI_COLL_BROADCAST:
		if (can_push && can_pull)
			return ZI_NODE_SHARED;
		return can_pull ? ZI_NODE_PULL : ZI_NODE_PIECES;
	case ZI_COLL_ALL_GATHER: /* each line is read once, however many take it */
	case ZI_COLL_GATHER:     /* by all, not the root alone */
		if (can_push)
			return ZI_NODE_PUSH;
		return can_pull ? ZI_NODE_PULL : ZI_NODE_PIECES;
	default:
		if (can_pull)
			return ZI_NODE_PULL;
		return can_push ? ZI_NODE_PUSH : ZI_NODE_PIECES;
	}
}

void zi_node_choose_path(struct zi_node_group *group)
{
	struct zi_node_run *run = &group->run;
	uint64_t count = run->call.element_count;

	if (run->path == ZI_NODE_INLINE)
		return;
	if (run->call.operation == ZI_COLL_REDUCE_SCATTER)
		run->path = run->outside_sources ? ZI_NODE_PIECES : ZI_NODE_SHARED;
	else if (zi_coll_is_join(run->call.operation))
		run->path = run->outside_sources | run->outside_targets ? ZI_NODE_PIECES
		                                                        : ZI_NODE_SHARED;
	else
		run->path = path_of_move(run);
	if (group->numa.node_count > 1)
		zi_numa_choose_path(group);
	if (run->path == ZI_NODE_PIECES && run->unstaged) {
		/* Some wanted it staged, since not all of their takers can read it. */
		run->is_restaged = run->unstaged != run->outside_sources;
		run->path = run->is_restaged ? ZI_NODE_PIECES : ZI_NODE_CMA;
		if (run->is_restaged)
			zi_cma_hold(group);
	}
	if (zi_coll_is_counted(run->call.operation))
		count = run->longest;
	run->piece_count = (uint32_t)((count + run->piece_elements - 1) / run->piece_elements);
}
