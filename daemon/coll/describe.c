/* SPDX-License-Identifier: Apache-2.0 */
/* A group as an administrator sees it; see describe.h. Floor 3, shard thread. */
#include "daemon/coll/describe.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "daemon/coll/look.h"
#include "daemon/coll/words.h"

/* The oldest call that a member waits in; when nobody waits, the newest of all members'. */
static void find_call(const struct coll_group *group, struct coll_call *ret_call)
{
	bool is_any_waiting = false;

	*ret_call = (struct coll_call){ 0 };
	for (uint32_t i = 0; i < group->member_count; i++) {
		struct coll_call call;
		bool is_waiting, is_later;

		coll_look_newest(group, i, &call);
		if (!call.sequence)
			continue;
		is_waiting = coll_look_awaited(group, i, &call);
		is_later = (int32_t)(call.sequence - ret_call->sequence) > 0;
		if (!ret_call->sequence || (is_waiting && !is_any_waiting) ||
		    (is_waiting == is_any_waiting && is_later != is_waiting))
			*ret_call = call;
		is_any_waiting |= is_waiting;
	}
}

/* Members that are waited for in @call, by anybody. */
static uint64_t awaited_in(const struct coll_group *group, const struct coll_call *call)
{
	uint64_t awaited = 0;

	for (uint32_t i = 0; i < group->member_count; i++) {
		struct coll_call own;
		uint64_t mask;

		coll_look_newest(group, i, &own);
		mask = coll_look_awaited(group, i, &own);
		if (own.sequence == call->sequence)
			awaited |= mask;
	}
	return awaited;
}

/* Who waits in which messages. */
static void find_messages(const struct coll_group *group, struct coll_description *description)
{
	for (uint32_t i = 0; i < group->member_count; i++) {
		struct coll_message message;
		uint32_t cursor = 0;

		if (group->error || group->left_mask >> i & 1)
			continue;
		while (coll_look_message(group, i, &cursor, &message)) {
			uint32_t place = description->message_count++;
			struct coll_waiting *waiting;

			if (place >= COLL_MESSAGES_TOLD)
				continue;
			waiting = &description->messages[place];
			waiting->rank = group->ranks[i];
			waiting->peer = message.peer;
			coll_append_message(&waiting->call, group, &message, false);
		}
	}
}

/* See describe.h. */
bool coll_describe(struct coll *coll, uint32_t group, struct coll_description *ret_description)
{
	struct coll_group *found = &coll->groups[group];
	uint64_t now_ns = zi_clock_now_ns();
	struct coll_call call;

	assert(group < ZI_GROUPS_MAX);
	if (!found->is_used)
		return false;
	find_call(found, &call);
	*ret_description = (struct coll_description){
		.number = group,
		.member_count = found->member_count,
		.ranks = found->ranks,
		.timeout_ns = found->timeout_ns,
		.sequence = call.sequence,
		.left_mask = found->left_mask,
		.error = found->error,
		.reason = found->error ? found->text.chars : "",
		.culprit = found->culprit,
	};
	ret_description->read_mask = coll_look_read(found, &ret_description->unread_mask);
	if (call.sequence) {
		coll_append_call(&ret_description->call, found, &call, false);
		ret_description->come_mask = coll_look_come(found, call.sequence);
		ret_description->awaited_mask = awaited_in(found, &call);
	}
	find_messages(found, ret_description);
	if (found->seen_sequence != call.sequence) {
		found->seen_sequence = call.sequence;
		found->seen_ns = now_ns;
	}
	ret_description->waited_ns = now_ns - found->seen_ns;
	return true;
}
