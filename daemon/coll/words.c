/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and members of groups, for people; see words.h. Floor 3, shard thread. */
#include "daemon/coll/words.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "daemon/coll/look.h"

/* See words.h. */
void coll_append(struct zi_text *text, const char *format, ...)
{
	size_t used = strnlen(text->chars, sizeof(text->chars) - 1);
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text->chars + used, sizeof(text->chars) - used, format, args); /* Cut. */
	va_end(args);
}

/* See words.h. */
void coll_append_rank(struct zi_text *text, const struct coll *coll, uint32_t rank)
{
	assert(rank < coll->options.world_size);
	if (coll->ranks[rank].is_here)
		coll_append(text, "rank %u (pid %d)", rank, coll->ranks[rank].pid);
	else
		coll_append(text, "rank %u (on another node)", rank);
}

/* See words.h. */
void coll_append_members(struct zi_text *text, const struct coll_group *group, uint64_t mask)
{
	const char *before = mask & (mask - 1) ? "ranks " : "rank ";

	for (uint32_t i = 0; i < group->member_count; i++) {
		if (!(mask >> i & 1))
			continue;
		coll_append(text, "%s%u", before, group->ranks[i]);
		before = ", ";
	}
}

/* The root's rank, with a word before it; a root that is no member is not one. */
static void append_root(struct zi_text *text, const struct coll_group *group, uint32_t root,
                        const char *word)
{
	if (root < group->member_count)
		coll_append(text, ", %s rank %u", word, group->ranks[root]);
	else
		coll_append(text, ", %s no member", word);
}

/* See words.h. */
void coll_append_call(struct zi_text *text, const struct coll_group *group,
                      const struct coll_call *call, bool is_numbered)
{
	coll_append(text, "%s", zi_coll_operation_name(call->operation));
	if (is_numbered)
		coll_append(text, " #%u of group %u", call->sequence, group->number);
	if (call->operation == ZI_COLL_BARRIER)
		return;
	coll_append(text, " (%s x %llu", zi_dtype_name((enum zi_dtype)call->dtype),
	            (unsigned long long)call->element_count);
	if (call->reduce_op)
		coll_append(text, ", %s", zi_reduce_op_name((enum zi_reduce_op)call->reduce_op));
	if (call->operation == ZI_COLL_BROADCAST || call->operation == ZI_COLL_SCATTER)
		append_root(text, group, call->root, "from");
	else if (call->operation == ZI_COLL_REDUCE || call->operation == ZI_COLL_GATHER)
		append_root(text, group, call->root, "to");
	coll_append(text, ")");
}

/* The group, other than @besides, in a call of which @rank is: NULL when there is none. */
static const struct coll_group *group_it_is_in(const struct coll *coll, uint32_t rank,
                                               const struct coll_group *besides,
                                               struct coll_call *ret_call, uint64_t *ret_awaited)
{
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++) {
		const struct coll_group *group = &coll->groups[i];
		uint32_t member = COLL_NOBODY;

		if (group->is_used && group != besides && !group->error)
			member = coll_member_of(group, rank);
		if (member == COLL_NOBODY || group->left_mask >> member & 1)
			continue;
		coll_look_newest(group, member, ret_call);
		*ret_awaited = coll_look_awaited(group, member, ret_call);
		if (*ret_awaited)
			return group;
	}
	return NULL;
}

/* See words.h. */
void coll_append_doing(struct zi_text *text, const struct coll *coll,
                       const struct coll_group *group, uint32_t member)
{
	uint32_t rank = group->ranks[member];
	const struct coll_group *other;
	struct zi_text doing = { "" };
	struct coll_call call;
	uint64_t awaited;

	other = group_it_is_in(coll, rank, group, &call, &awaited);
	if (other) {
		uint64_t others = awaited & ~(1ull << coll_member_of(other, rank));

		coll_append(text, others ? "it is in " : "it is at work on ");
		coll_append_call(text, other, &call, true);
		if (others) {
			coll_append(text, ", which waits for ");
			coll_append_members(text, other, others);
		}
		return;
	}
	if (coll->options.doing)
		coll->options.doing(coll->options.arg, rank, &doing);
	if (doing.chars[0]) {
		coll_append(text, "%s", doing.chars);
		return;
	}
	coll_look_newest(group, member, &call);
	if (call.sequence) {
		coll_append(text, "its last call there is ");
		coll_append_call(text, group, &call, true);
	} else {
		coll_append(text, "it has made no call there");
	}
}
