/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posting calls, and looking at what others posted; see posts.h. Floor 2.
 *
 * Most calls need something from everybody, and are over when all posts have been looked at. Who
 * needs nothing (the root of a small broadcast or scatter; of a small reduce or gather everybody
 * else) is over as soon as it has posted; who needs the root's data alone (everybody else in a
 * small broadcast or scatter) leans: it is over as soon as it has looked at the root's post. They
 * look at the others' posts later: at their next call that needs everybody, or when they would be
 * too far ahead. What is wrong with a call that one was ahead of those have said long ago who
 * waited there, each for itself; it is then said anew by refusing the call at hand, so that this
 * one fails with the same words on all members that look at it. Such a refusal is an echo: whoever
 * was ahead of that call in turn, or leans on another, passes over it, for it finds what was wrong
 * in the first place by itself, and two would refuse in turns for ever.
 *
 * Who leans and waits, since the root has not come, looks at the others as everybody who waits
 * does: whatever is wrong with them is told at once then, and not again later (`told`).
 *
 * Call n may be posted (its slot is written) when this member has looked at all posts of call
 * n - SLOTS + 1, and all others have said that they have looked at all of call n - SLOTS: a slot is
 * written over when nobody will look at it any more. Whoever is last can go on: everybody's newest
 * post, m or later, was written under the first condition, so it says m - SLOTS or more, which is
 * what the second asks for m + 1. Nor does it wait for a root, whose post of call m is there. A
 * call that needs something from everybody begins when all posts of the one before have been looked
 * at; then both conditions hold. The root's post, which a member leans on, is one of those that it
 * has yet to look at, so that it is not written over either, nor are the data beside it.
 */
#include "libclient/coll/node/posts.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/verdict.h"
#include "libclient/coll/node/differ.h"
#include "libclient/coll/node/place.h"
#include "libclient/coll/node/words.h"

static_assert(ZI_BOARD_SLOTS <= 32, "each slot has a bit in `told`");

static bool is_later(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

static uint32_t bit_of(uint32_t sequence)
{
	return 1u << sequence % ZI_BOARD_SLOTS;
}

enum zi_coll_needs zi_node_needs(const struct zi_node_group *group)
{
	const struct zi_node_run *run = &group->run;
	enum zi_coll_needs needs =
		zi_coll_needs_of(run->call.operation, group->meet.self, run->call.root);

	if (group->far || run->source_bytes > ZI_BOARD_INLINE_BYTES)
		return ZI_NEEDS_ALL;
	/* Of two the root is everybody else: then nothing is left to look at later. */
	return needs == ZI_NEEDS_ROOT && group->meet.member_count == 2 ? ZI_NEEDS_ALL : needs;
}

/* ---- saying ---- */

void zi_node_say(struct zi_node_group *group, const struct zi_board_call *call, uint64_t staging,
                 const void *payload, uint32_t payload_bytes)
{
	if (group->sequence % ZI_NODE_TOLD_EVERY == 0)
		zi_line_store(&group->meet.members[group->meet.self].alarm, group->sequence - 1);
	group->said[group->sequence % ZI_BOARD_SLOTS] = *call;
	group->told &= ~bit_of(group->sequence);
	zi_meet_post(&group->meet, group->sequence, group->sequence - 1 - group->seen, call,
	             staging, payload, payload_bytes);
	if (call->flags & ZI_BOARD_AHEAD)
		zi_node_warn_sleepers(group);
}

/* To what is said of the call at hand. */
static void add_due(struct zi_node_group *group)
{
	struct zi_node_run *run = &group->run;
	struct zi_node_due *due = &group->due;

	if (!run->refused) {
		run->refused = due->error;
		run->culprit = due->culprit;
		run->reason = due->reason;
	} else if (due->error) {
		zi_text_append(&run->reason, "; and %s", due->reason.chars);
	}
	due->error = 0;
}

void zi_node_say_refused(struct zi_node_group *group)
{
	const struct zi_node_run *run = &group->run;
	uint8_t echo = run->refused ? 0 : ZI_BOARD_ECHO;
	struct zi_board_call said = zi_node_board_call(&run->call);
	uint32_t root = said.root;

	add_due(group);
	said.flags = ZI_BOARD_REFUSED | echo;
	said.root = (uint32_t)-run->refused;
	zi_node_say(group, &said, 0, run->reason.chars, (uint32_t)strlen(run->reason.chars) + 1);
	/* For our own words, should the others not come to it. */
	group->said[group->sequence % ZI_BOARD_SLOTS].root = root;
	zi_node_raise_alarm(group, group->sequence);
	group->told |= bit_of(group->sequence);
}

void zi_node_say_again(struct zi_node_group *group)
{
	struct zi_board_member *own = &group->meet.members[group->meet.self];

	for (uint32_t sequence = group->sequence; is_later(sequence, group->seen); sequence--) {
		uint32_t *word = &own->posts[sequence % ZI_BOARD_SLOTS].sequence;

		if (zi_meet_load(word) != sequence)
			zi_meet_tell(&group->meet, word, sequence);
	}
}

/* ---- looking ---- */

static int tell_apart(struct zi_node_group *group, uint32_t sequence, struct zi_text *text)
{
	int r = zi_node_tell_apart(group, sequence, text);

	zi_node_raise_alarm(group, sequence);
	return r;
}

/* What is wrong with the post of the member that is looked at. */
static int judge(struct zi_node_group *group, uint32_t sequence, const struct zi_board_post *post,
                 struct zi_text *text)
{
	struct zi_node_run *run = &group->run;
	bool differs = false;
	int r = 0;

	if (run->member != group->meet.self &&
	    !zi_node_passes_over(group, run->member, &post->call))
		r = zi_node_compare(group, sequence, run->member, &post->call, text, &differs);
	if (differs)
		return tell_apart(group, sequence, text);
	if (!r && run->phase == ZI_NODE_MEETING) {
		r = zi_node_take_post(group, run->member, post);
		if (r)
			zi_text_set(text,
			            "call %u: what member %u posted makes no sense: its memory is "
			            "damaged, or it is another version",
			            sequence, run->member);
	}
	if (r)
		group->culprit = run->member;
	return r;
}

int zi_node_look_at(struct zi_node_group *group, uint32_t sequence, struct zi_meet_wants *wants,
                    struct zi_text *text)
{
	struct zi_node_run *run = &group->run;
	struct zi_meet *meet = &group->meet;

	if (!run->member)
		run->left = sequence - 1;
	for (; run->member < meet->member_count; run->member++) {
		const struct zi_board_post *post = zi_meet_post_of(meet, run->member, sequence);
		struct zi_board_post copy;
		int r;

		if (!zi_meet_has_come(&post->sequence, sequence)) {
			zi_meet_want(wants, meet, &post->sequence, sequence);
			if (!(group->told & bit_of(sequence)) &&
			    zi_node_look_ahead(group, sequence, run->member + 1, wants))
				return tell_apart(group, sequence, text);
			return ZI_NODE_E_WAITS;
		}
		copy = *post;
		if (run->member != meet->self && is_later(run->left, sequence - 1 - copy.unseen))
			run->left = sequence - 1 - copy.unseen;
		if (group->told & bit_of(sequence))
			continue;
		r = judge(group, sequence, &copy, text);
		if (r)
			return r;
	}
	run->member = 0;
	group->seen = sequence;
	group->left = run->left;
	return 0;
}

int zi_node_look_at_root(struct zi_node_group *group, struct zi_meet_wants *wants,
                         struct zi_text *text)
{
	struct zi_node_run *run = &group->run;
	uint32_t root = run->call.root, sequence = group->sequence;
	const struct zi_board_post *post = zi_meet_post_of(&group->meet, root, sequence);
	struct zi_board_post copy;
	int r;

	assert(run->needs == ZI_NEEDS_ROOT && root != group->meet.self);
	run->member = root; /* who is late, if anybody is */
	if (!zi_meet_has_come(&post->sequence, sequence)) {
		zi_meet_want(wants, &group->meet, &post->sequence, sequence);
		if (zi_node_look_ahead(group, sequence, 0, wants))
			return tell_apart(group, sequence, text);
		return ZI_NODE_E_WAITS;
	}
	copy = *post;
	r = judge(group, sequence, &copy, text);
	if (!r)
		run->member = 0;
	return r;
}

/* Whether more must be looked at before the next call is posted. Who is as far ahead as it may be
 * waits until it is half as far: to look at the very post that is written next takes the line from
 * its writer, each time. */
static bool is_behind(struct zi_node_group *group)
{
	struct zi_node_run *run = &group->run;
	uint32_t next = group->sequence + 1, unseen = next - group->seen;

	if (group->seen == group->sequence)
		return false;
	if (run->needs == ZI_NEEDS_ALL)
		return true;
	run->is_too_far |= unseen >= ZI_BOARD_SLOTS;
	return unseen >= (run->is_too_far ? ZI_BOARD_SLOTS / 2 : ZI_BOARD_SLOTS) ||
	       is_later(next - ZI_BOARD_SLOTS, group->left);
}

/* It stays so until a call has been posted: the one at hand may be canceled. */
static void set_due(struct zi_node_group *group, int error, const struct zi_text *reason)
{
	struct zi_node_due *due = &group->due;

	if (due->error)
		return;
	due->error = error;
	due->culprit = group->culprit;
	due->reason = *reason;
}

int zi_node_catch_up(struct zi_node_group *group, struct zi_meet_wants *wants, struct zi_text *text)
{
	while (is_behind(group)) {
		uint32_t sequence = group->seen + 1;
		struct zi_text reason; /* written when something is wrong */
		int r = zi_node_look_at(group, sequence, wants, &reason);

		if (!r)
			continue;
		if (r == ZI_NODE_E_WAITS)
			return r;
		zi_node_told(group, sequence);
		if (!zi_verdict_is_refusal(r)) {
			*text = reason;
			return err_trace(r);
		}
		set_due(group, r, &reason);
	}
	return 0;
}

void zi_node_told(struct zi_node_group *group, uint32_t sequence)
{
	group->told |= bit_of(sequence);
	group->run.member = 0;
}
