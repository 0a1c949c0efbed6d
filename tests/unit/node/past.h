/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test double of a long past: a member's part of a board, and what its engine counts, as they are
 * after thousands of millions of calls and messages. Numbers then run over, which no test lives to
 * see otherwise. For groups of one node.
 */
#pragma once

#include <assert.h>

#include "libclient/coll/node/node.h"
#include "libclient/coll/node/posts.h"

/* Numbers that matter: what was never told looks like later ones; what is told begins anew. */
#define PAST_HALF (1u << 31)
#define PAST_ALL  0u

/*
 * As after @count calls, and messages of one piece to and from everybody. Of every member, before
 * any member's first call. Words that are told now and then alone (ZI_NODE_TOLD_EVERY) are as old
 * as they may be: the next that is due comes in time, and no later one would.
 */
static inline void past_of(struct zi_node_group *group, uint32_t count)
{
	struct zi_board_member *self = &group->meet.members[group->meet.self];
	uint32_t next = (count + ZI_NODE_TOLD_EVERY - 1) / ZI_NODE_TOLD_EVERY * ZI_NODE_TOLD_EVERY;
	uint32_t pieces = 2 * count;

	assert(!group->far && !group->sequence);
	group->sequence = group->seen = group->left = count;
	group->steps = group->refusal_count = count;
	for (uint32_t i = 0; i < ZI_BOARD_SLOTS; i++)
		self->posts[(count - i) % ZI_BOARD_SLOTS].sequence = count - i;
	self->finished.value = self->alarm.value = next - PAST_HALF;
	self->step.value = count - 1; /* the last one of a call need not be told */
	for (uint32_t i = 0; i < group->meet.member_count; i++) {
		group->pairs.sent[i] = group->pairs.taken[i] = count;
		group->pairs.filled[i] = pieces;
		self->sends[i].sequence = count;
		self->sends[i].filled = pieces - 1;
		self->sends[i].base = pieces - 2;
		self->sends[i].refused = count - 1;
		self->takes[i].sequence = self->takes[i].done = count;
		self->takes[i].emptied = pieces;
		self->takes[i].refused = count - 1;
	}
}
