/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and members of groups, for people; see words.h. Floor 3, shard thread. */
#include "daemon/coll/words.h"

#include "common/base/assert.h"
#include "daemon/coll/look.h"

/* See words.h. */
void coll_append_rank(struct zi_text *text, const struct coll *coll, uint32_t rank)
{
	assert(rank < coll->options.world_size);
	if (coll->ranks[rank].is_here)
		zi_text_append(text, "rank %u (pid %d)", rank, coll->ranks[rank].pid);
	else
		zi_text_append(text, "rank %u (on another node)", rank);
}

/* See words.h. */
void coll_append_members(struct zi_text *text, const struct coll_group *group, uint64_t mask)
{
	const char *before = mask & (mask - 1) ? "ranks " : "rank ";

	for (uint32_t i = 0; i < group->member_count; i++) {
		if (!(mask >> i & 1))
			continue;
		zi_text_append(text, "%s%u", before, group->ranks[i]);
		before = ", ";
	}
}

/* The root's rank, with a word before it; a root that is no member is not one. */
static void append_root(struct zi_text *text, const struct coll_group *group, uint32_t root,
                        const char *word)
{
	uint32_t rank = coll_rank_of(group, root);

	if (rank != COLL_NOBODY)
		zi_text_append(text, ", %s rank %u", word, rank);
	else
		zi_text_append(text, ", %s no member", word);
}

/* See words.h. */
void coll_append_call(struct zi_text *text, const struct coll_group *group,
                      const struct coll_call *call, bool is_numbered)
{
	const struct zi_coll_shape *shape = zi_coll_shape_of(call->operation);
	bool is_from = shape->source.holder == ZI_HELD_BY_ROOT || call->operation == ZI_COLL_RECV;
	bool is_to = shape->target.holder == ZI_HELD_BY_ROOT || call->operation == ZI_COLL_SEND;

	zi_text_append(text, "%s", zi_coll_operation_name(call->operation));
	if (is_numbered)
		zi_text_append(text, " #%u of group %u", call->sequence, group->number);
	if (call->operation == ZI_COLL_BARRIER)
		return;
	zi_text_append(text, " (%s", zi_dtype_name((enum zi_dtype)call->dtype));
	if (!zi_coll_is_counted(call->operation)) /* Counts are each pair's. */
		zi_text_append(text, " x %llu", (unsigned long long)call->element_count);
	if (call->reduce_op)
		zi_text_append(text, ", %s", zi_reduce_op_name((enum zi_reduce_op)call->reduce_op));
	/* The root of a refused one is not on the board. */
	if (is_from && !call->is_refused)
		append_root(text, group, call->root, "from");
	else if (is_to && !call->is_refused)
		append_root(text, group, call->root, "to");
	zi_text_append(text, ")");
}

/* See words.h. */
void coll_append_message(struct zi_text *text, const struct coll_group *group,
                         const struct coll_message *message, bool is_numbered)
{
	zi_text_append(text, message->is_send ? "send" : "recv");
	if (is_numbered)
		zi_text_append(text, " of group %u", group->number);
	zi_text_append(text, " (%s x %llu, %s rank %u)",
	               zi_dtype_name((enum zi_dtype)message->dtype),
	               (unsigned long long)message->element_count, message->is_send ? "to" : "from",
	               message->peer);
}

/* "it is in barrier #5 of group 0, which waits for rank 1". False: in none; of @besides it can only
 * be in one that is over on other nodes. */
static bool append_call_it_is_in(struct zi_text *text, const struct coll *coll, uint32_t rank,
                                 const struct coll_group *besides)
{
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++) {
		const struct coll_group *group = &coll->groups[i];
		uint32_t member = COLL_NOBODY;
		struct coll_call call;
		uint64_t awaited;

		if (group->is_used && !group->error)
			member = coll_member_of(group, rank);
		if (member == COLL_NOBODY || group->left_mask >> member & 1)
			continue;
		coll_look_newest(group, member, &call);
		if (coll_look_awaits_nodes(group, member, &call)) {
			zi_text_append(text, "it is in ");
			coll_append_call(text, group, &call, true);
			zi_text_append(text, ", which waits for ranks of other nodes");
			return true;
		}
		awaited = group != besides ? coll_look_awaited(group, member, &call) : 0;
		if (!awaited)
			continue;
		awaited &= ~(1ull << member);
		zi_text_append(text, awaited ? "it is in " : "it is at work on ");
		coll_append_call(text, group, &call, true);
		if (awaited) {
			zi_text_append(text, ", which waits for ");
			coll_append_members(text, group, awaited);
		}
		return true;
	}
	return false;
}

/* "it is in recv of group 2 (f32 x 4, from rank 1)". False: in none. */
static bool append_message_it_is_in(struct zi_text *text, const struct coll *coll, uint32_t rank)
{
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++) {
		const struct coll_group *group = &coll->groups[i];
		uint32_t member = COLL_NOBODY, cursor = 0;
		struct coll_message message;

		if (group->is_used && !group->error)
			member = coll_member_of(group, rank);
		if (member == COLL_NOBODY || group->left_mask >> member & 1 ||
		    !coll_look_message(group, member, &cursor, &message))
			continue;
		zi_text_append(text, "it is in ");
		coll_append_message(text, group, &message, true);
		return true;
	}
	return false;
}

/* See words.h. */
void coll_append_doing(struct zi_text *text, const struct coll *coll,
                       const struct coll_group *group, uint32_t member)
{
	uint32_t rank = group->ranks[member];
	struct zi_text doing = { "" };
	struct coll_call call;

	if (append_call_it_is_in(text, coll, rank, group) ||
	    append_message_it_is_in(text, coll, rank))
		return;
	if (coll->options.doing)
		coll->options.doing(coll->options.arg, rank, &doing);
	if (doing.chars[0]) {
		zi_text_append(text, "%s", doing.chars);
		return;
	}
	coll_look_newest(group, member, &call);
	if (call.sequence) {
		zi_text_append(text, "its last call there is ");
		coll_append_call(text, group, &call, true);
	} else {
		zi_text_append(text, "it has made no call there");
	}
}
