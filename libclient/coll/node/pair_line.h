/* SPDX-License-Identifier: Apache-2.0 */
/* Where the two sides of a pair of members say what they do: the lines of the board, or, for a
 * member on another node, the boxes and letters of the mail. Floor 2, private to pair*.c. */
#pragma once

#include "kernels/copy.h"
#include "libclient/coll/node/far.h"
#include "libclient/coll/node/place.h"

/* Pieces of a message that may be on their way. */
#define ZI_PAIR_LETTERS 2u
static_assert(ZI_PAIR_LETTERS == ZI_MAIL_LETTERS, "alike between nodes");

static inline bool zi_pair_is_near(const struct zi_node_group *group, uint32_t peer)
{
	return !group->far || zi_far_is_here(&group->far->shape, peer);
}

/* Which of the own lines is for @peer; if it is near, also which part of the board it has. */
static inline uint32_t zi_pair_line(const struct zi_node_group *group, uint32_t peer)
{
	return group->far ? group->far->mail.lines[peer] : peer;
}

static inline struct zi_mail_box *zi_pair_box(const struct zi_node_group *group, uint32_t peer)
{
	const struct zi_far_group *far = group->far;

	return zi_mail_box(&far->mail, group->meet.self, zi_mail_other(&far->mail, peer));
}

static inline struct zi_board_send *zi_pair_own_send(const struct zi_node_group *group,
                                                     uint32_t peer)
{
	return &group->meet.members[group->meet.self].sends[zi_pair_line(group, peer)];
}

static inline struct zi_board_take *zi_pair_own_take(const struct zi_node_group *group,
                                                     uint32_t peer)
{
	return &group->meet.members[group->meet.self].takes[zi_pair_line(group, peer)];
}

/* What @peer says of what it sends to this member, and of what it takes from it. */
static inline const struct zi_board_send *zi_pair_peer_send(const struct zi_node_group *group,
                                                            uint32_t peer)
{
	if (!zi_pair_is_near(group, peer))
		return &zi_pair_box(group, peer)->send;
	return &group->meet.members[zi_pair_line(group, peer)].sends[group->meet.self];
}

static inline const struct zi_board_take *zi_pair_peer_take(const struct zi_node_group *group,
                                                            uint32_t peer)
{
	if (!zi_pair_is_near(group, peer))
		return &zi_pair_box(group, peer)->take;
	return &group->meet.members[zi_pair_line(group, peer)].takes[group->meet.self];
}

/* Two, in which pieces for @peer lie. */
static inline char *zi_pair_letters(const struct zi_node_group *group, uint32_t peer)
{
	const struct zi_far_group *far = group->far;

	if (zi_pair_is_near(group, peer))
		return zi_node_letters(group, zi_pair_line(group, peer));
	return zi_mail_letters(&far->mail, group->meet.self, zi_mail_other(&far->mail, peer), true);
}

static inline uint64_t zi_pair_letter_bytes(const struct zi_node_group *group, uint32_t peer)
{
	return zi_pair_is_near(group, peer) ? zi_node_letter_bytes(group)
	                                    : group->far->mail.letter_bytes;
}

/* Stores a word of this member's, for @peer. */
static inline void zi_pair_tell(struct zi_node_group *group, uint32_t peer, uint32_t *word,
                                uint32_t value)
{
	struct zi_board_member *self = &group->meet.members[group->meet.self];

	if (zi_pair_is_near(group, peer)) {
		zi_meet_tell_one(&group->meet, zi_pair_line(group, peer), word, value);
		return;
	}
	__atomic_store_n(word, value, __ATOMIC_RELEASE); /* Pairs with zi_meet_load(). */
	zi_meet_tell_one(&group->meet, group->far->shape.self_count + 1, &self->mail.value,
	                 ++group->far->rung);
}

static inline uint64_t zi_pair_bytes(const struct zi_node_p2p *p2p)
{
	return p2p->element_count * zi_dtype_bytes(p2p->dtype);
}

static inline void zi_pair_copy(const struct zi_node_group *group, void *target, const void *source,
                                uint64_t bytes, bool is_last)
{
	if (bytes)
		kern_copy(&target, 1, source, bytes,
		          is_last && 2 * bytes >= group->streaming_bytes);
}
