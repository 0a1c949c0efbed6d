/* SPDX-License-Identifier: Apache-2.0 */
/* What the boards say; see look.h. Floor 3, shard thread. */
#include "daemon/coll/look.h"

#include "common/base/assert.h"

static void take(const struct coll_group *group, uint32_t member, uint32_t slot,
                 struct coll_call *ret_call)
{
	struct zi_board_post post;

	assert(member < group->member_count);
	zi_board_look(&group->board[member].posts[slot], &post);
	*ret_call = (struct coll_call){
		.sequence = post.sequence,
		.operation = post.call.operation,
		.dtype = post.call.dtype,
		.reduce_op = post.call.reduce_op,
		.root = post.call.root,
		.element_count = post.call.element_count,
		.is_placed = post.call.source != ZI_BOARD_NOWHERE ||
		             post.call.target != ZI_BOARD_NOWHERE,
	};
}

/* See look.h. */
bool coll_look(const struct coll_group *group, uint32_t member, uint32_t sequence,
               struct coll_call *ret_call)
{
	take(group, member, sequence % 2, ret_call);
	return sequence && ret_call->sequence == sequence;
}

/* See look.h. */
void coll_look_newest(const struct coll_group *group, uint32_t member, struct coll_call *ret_call)
{
	struct coll_call other;

	take(group, member, 0, ret_call);
	take(group, member, 1, &other);
	/* Numbers run freely: the later of two neighbours. */
	if (!ret_call->sequence ||
	    (other.sequence && (int32_t)(other.sequence - ret_call->sequence) > 0))
		*ret_call = other;
}

/* See look.h. */
uint64_t coll_look_come(const struct coll_group *group, uint32_t sequence)
{
	struct coll_call call;
	uint64_t mask = 0;

	for (uint32_t i = 0; i < group->member_count; i++)
		if (coll_look(group, i, sequence, &call))
			mask |= 1ull << i;
	return mask;
}

/* See look.h. */
uint64_t coll_look_finished(const struct coll_group *group, uint32_t sequence)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < group->member_count; i++)
		if ((int32_t)(zi_line_load(&group->board[i].finished) - sequence) >= 0)
			mask |= 1ull << i;
	return mask;
}

/* See look.h. */
uint64_t coll_look_awaited(const struct coll_group *group, uint32_t member,
                           const struct coll_call *newest)
{
	uint64_t self = 1ull << member;
	uint64_t awaited;

	if (!newest->sequence)
		return 0;
	awaited = coll_all_members(group) & ~self & ~coll_look_come(group, newest->sequence);
	if (!awaited && newest->is_placed)
		awaited = coll_all_members(group) & ~coll_look_finished(group, newest->sequence);
	/* Its peers may have made their next call, or gone: then it has left this one. */
	return awaited;
}
