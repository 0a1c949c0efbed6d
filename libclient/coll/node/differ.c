/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In what calls of members differ; see call.c. Floor 2.
 *
 * As soon as two posts contradict each other nobody can make the call any more: whoever sees it
 * says so at once, and raises its alarm for those who wait for somebody else. When one call has
 * more than half of the members, the odd one is named; else both sides are.
 */
#include "libclient/coll/node/differ.h"

#include <errno.h>
#include <inttypes.h>

#include "common/base/err.h"
#include "common/wire/call_words.h"
#include "common/wire/verdict.h"
#include "libclient/coll/node/members.h"
#include "libclient/coll/node/posts.h"
#include "libclient/coll/node/words.h"

static int say_refused(const struct zi_node_group *group, uint32_t sequence, uint32_t member,
                       const struct zi_board_call *other, struct zi_text *text)
{
	struct zi_text reason = zi_meet_reason_of(&group->meet, member, sequence);

	return err_origin(zi_text_error(text, zi_verdict_refusal_of(other->root),
	                                "call %u: %s refuses it: %s", sequence,
	                                zi_node_name(group, member).chars, reason.chars));
}

int zi_node_compare(const struct zi_node_group *group, uint32_t sequence, uint32_t member,
                    const struct zi_board_call *other, struct zi_text *text, bool *ret_differs)
{
	*ret_differs = false;
	if (other->flags & ZI_BOARD_REFUSED)
		return say_refused(group, sequence, member, other, text);
	*ret_differs = !zi_board_is_same_call(other, zi_node_said(group, sequence));
	return 0;
}

/* What those who have come call, copied: a peer's memory may change. Echoes are no calls. Return:
 * their bits. */
static uint64_t copy_calls(const struct zi_node_group *group, uint32_t sequence,
                           struct zi_board_call ret_calls[ZI_WORLD_MAX])
{
	const struct zi_meet *meet = &group->meet;
	uint64_t come = 0;

	for (uint32_t i = 0; i < meet->member_count; i++) {
		const struct zi_board_post *post = zi_meet_post_of(meet, i, sequence);

		if (i == meet->self)
			ret_calls[i] = *zi_node_said(group, sequence);
		else if (zi_meet_has_come(&post->sequence, sequence) &&
		         !zi_node_passes_over(group, i, &post->call))
			ret_calls[i] = post->call;
		else
			continue;
		come |= 1ull << i;
	}
	return come;
}

/* The member whose call most of @come make, the first of several; and of how many. */
static uint32_t find_model(const struct zi_board_call calls[ZI_WORLD_MAX], uint64_t come,
                           uint32_t *ret_count)
{
	uint32_t model = 0;

	*ret_count = 0;
	for (uint64_t left = come; left; left &= left - 1) {
		uint32_t member = (uint32_t)__builtin_ctzll(left), count = 0;

		for (uint64_t others = come; others; others &= others - 1)
			count += zi_board_is_same_call(&calls[__builtin_ctzll(others)],
			                               &calls[member]);
		if (count <= *ret_count)
			continue;
		*ret_count = count;
		model = member;
	}
	return model;
}

/* "; 2 of 3 members have come, so it is open who is wrong", or nothing. */
static void append_open(struct zi_text *text, uint32_t come_count, uint32_t member_count)
{
	if (come_count < member_count)
		zi_text_append(text, "; %u of %u members have come, so it is open who is wrong",
		               come_count, member_count);
	else
		zi_text_append(text, "; no call is that of more than half of the members");
}

int zi_node_tell_apart(struct zi_node_group *group, uint32_t sequence, struct zi_text *text)
{
	struct zi_board_call calls[ZI_WORLD_MAX];
	uint64_t come = copy_calls(group, sequence, calls);
	uint32_t members = group->meet.member_count, count, model, odd;

	for (uint64_t left = come; left; left &= left - 1) {
		odd = (uint32_t)__builtin_ctzll(left);
		if (odd == group->meet.self || !(calls[odd].flags & ZI_BOARD_REFUSED))
			continue;
		group->culprit = odd;
		return err_trace(say_refused(group, sequence, odd, &calls[odd], text));
	}
	model = find_model(calls, come, &count);
	for (odd = 0; odd < members; odd++)
		if (come >> odd & 1 && !zi_board_is_same_call(&calls[odd], &calls[model]))
			break;
	group->culprit = odd;
	if (odd == members)
		return err_origin(zi_text_error(text, -EPROTO,
		                                "call %u: what a member posted has changed: its "
		                                "memory is damaged",
		                                sequence));
	zi_text_set(text, "call %u: %s calls %s, %s %s", sequence, zi_node_name(group, odd).chars,
	            zi_call_words_of(&calls[odd]).chars, zi_node_name(group, model).chars,
	            zi_call_words_of(&calls[model]).chars);
	if (count > members / 2)
		return err_origin(-EINVAL);
	group->culprit = ZI_NODE_NOBODY;
	append_open(text, (uint32_t)__builtin_popcountll(come), members);
	return err_origin(-EINVAL);
}

void zi_node_raise_alarm(struct zi_node_group *group, uint32_t sequence)
{
	zi_meet_tell(&group->meet, &group->meet.members[group->meet.self].alarm.value, sequence);
}

void zi_node_warn_sleepers(struct zi_node_group *group)
{
	const struct zi_meet *meet = &group->meet;
	uint32_t sequence = group->sequence;

	for (uint32_t i = 0; i < meet->member_count; i++) {
		const struct zi_board_post *post = zi_meet_post_of(meet, i, sequence);

		if (i == meet->self || !zi_line_load(&meet->members[i].sleeping) ||
		    !zi_meet_has_come(&post->sequence, sequence) ||
		    post->call.flags & ZI_BOARD_REFUSED ||
		    zi_board_is_same_call(&post->call, zi_node_said(group, sequence)))
			continue;
		zi_node_raise_alarm(group, sequence);
		return;
	}
}

bool zi_node_look_ahead(struct zi_node_group *group, uint32_t sequence, uint32_t first,
                        struct zi_meet_wants *wants)
{
	const struct zi_board_call *own = zi_node_said(group, sequence);
	struct zi_meet *meet = &group->meet;

	for (uint32_t i = first; i < meet->member_count; i++) {
		const struct zi_board_post *post = zi_meet_post_of(meet, i, sequence);

		if (i == meet->self)
			continue;
		if (zi_meet_has_come(&post->sequence, sequence)) {
			if (zi_node_passes_over(group, i, &post->call))
				continue;
			if (post->call.flags & ZI_BOARD_REFUSED ||
			    !zi_board_is_same_call(&post->call, own))
				return true;
			continue;
		}
		zi_meet_glance(wants, &post->sequence, sequence);
		/* Who is left out here is looked at a second later at most. */
		if (wants->count < ZI_MEET_WANTS_MAX / 2)
			zi_meet_want(wants, meet, &meet->members[i].alarm.value, sequence);
	}
	return false;
}

int zi_node_compare_counts(const struct zi_node_group *group, struct zi_text *text)
{
	const struct zi_meet *meet = &group->meet;
	uint32_t members = meet->member_count;
	const uint64_t *counts[ZI_WORLD_MAX];

	for (uint32_t i = 0; i < members; i++)
		counts[i] = zi_meet_payload_of(meet, i, group->sequence,
		                               ZI_BOARD_COUNTS_BYTES(members));
	for (uint32_t from = 0; from < members; from++)
		for (uint32_t to = 0; to < members; to++)
			if (counts[from][to] != counts[to][members + from])
				return err_origin(zi_text_error(
					text, -EINVAL,
					"call %u, all_to_allv: %s sends %" PRIu64
					" elements to %s, which takes %" PRIu64,
					group->sequence, zi_node_name(group, from).chars,
					counts[from][to], zi_node_name(group, to).chars,
					counts[to][members + from]));
	return 0;
}
