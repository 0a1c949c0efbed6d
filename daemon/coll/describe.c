/* SPDX-License-Identifier: Apache-2.0 */
/* A group as an administrator sees it; see describe.h. Floor 3, shard thread. */
#include "daemon/coll/describe.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "daemon/coll/look.h"
#include "daemon/coll/words.h"

/* The newest call of all members'. */
static void find_newest(const struct coll_group *group, struct coll_call *ret_newest)
{
	*ret_newest = (struct coll_call){ 0 };
	for (uint32_t i = 0; i < group->member_count; i++) {
		struct coll_call call;

		coll_look_newest(group, i, &call);
		if (!call.sequence)
			continue;
		if (!ret_newest->sequence || (int32_t)(call.sequence - ret_newest->sequence) > 0)
			*ret_newest = call;
	}
}

/* See describe.h. */
bool coll_describe(struct coll *coll, uint32_t group, struct coll_description *ret_description)
{
	struct coll_group *found = &coll->groups[group];
	uint64_t now_ns = zi_clock_now_ns();
	struct coll_call newest;

	assert(group < ZI_GROUPS_MAX);
	if (!found->is_used)
		return false;
	find_newest(found, &newest);
	*ret_description = (struct coll_description){
		.number = group,
		.member_count = found->member_count,
		.ranks = found->ranks,
		.timeout_ns = found->timeout_ns,
		.sequence = newest.sequence,
		.left_mask = found->left_mask,
		.error = found->error,
		.reason = found->error ? found->text.chars : "",
		.culprit = found->culprit,
	};
	if (newest.sequence) {
		uint64_t come = coll_look_come(found, newest.sequence);

		coll_append_call(&ret_description->call, found, &newest, false);
		ret_description->come_mask = come;
		ret_description->awaited_mask = coll_all_members(found) & ~come;
		if (!ret_description->awaited_mask)
			ret_description->awaited_mask = coll_look_awaited(found, 0, &newest);
	}
	if (found->seen_sequence != newest.sequence) {
		found->seen_sequence = newest.sequence;
		found->seen_ns = now_ns;
	}
	ret_description->waited_ns = now_ns - found->seen_ns;
	return true;
}
