/* SPDX-License-Identifier: Apache-2.0 */
/* Where everybody's data lie, and hence by which path a call goes. Floor 2, the engine's own. */
#pragma once

#include "libclient/coll/node/node.h"

/* Steps that a piece lives: it is staged, worked on, and its results are taken. */
#define ZI_NODE_SLOTS 3u

/* Where @pointer, of @bytes, lies in the arenas: ZI_BOARD_NOWHERE when not in this rank's. */
uint64_t zi_node_place_of(const struct zi_node_group *group, const void *pointer, uint64_t bytes);
/* NULL: a peer's word is taken only as far as it lies in the arenas. */
char *zi_node_place_at(const struct zi_node_group *group, uint64_t place, uint64_t bytes);
/* Bytes of a piece in the staging part, and of one on its way to a peer. */
uint64_t zi_node_slot_bytes(const struct zi_node_group *group);
uint64_t zi_node_letter_bytes(const struct zi_node_group *group);
/* Two letters to @peer. */
char *zi_node_letters(const struct zi_node_group *group, uint32_t peer);
/* Takes down where the data of @member lie. Return: 0, -EPROTO, -EFAULT. */
int zi_node_take_post(struct zi_node_group *group, uint32_t member,
                      const struct zi_board_post *post);
/* Once every post has been taken: chooses run->path, the same on all members. */
void zi_node_choose_path(struct zi_node_group *group);
/* Where @member stages @piece. */
static inline char *zi_node_slot(const struct zi_node_group *group, uint32_t member, uint32_t piece)
{
	return group->run.stagings[member] +
	       (group->slot + piece) % ZI_NODE_SLOTS * zi_node_slot_bytes(group);
}
