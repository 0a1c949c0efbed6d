/* SPDX-License-Identifier: Apache-2.0 */
/* Posting calls, and looking at what others posted. Floor 2, private to the engine. */
#pragma once

#include "libclient/coll/node/node.h"

/* Words that tell the number of a call only now and then do so no more rarely than this, lest
 * numbers that are far apart look like later ones. */
#define ZI_NODE_TOLD_EVERY (1u << 20)

/* What this member posted as @sequence, one of the newest ZI_BOARD_SLOTS. */
static inline const struct zi_board_call *zi_node_said(const struct zi_node_group *group,
                                                       uint32_t sequence)
{
	return &group->said[sequence % ZI_BOARD_SLOTS];
}
/* Whose posts this member waits for in run->call, which has been checked. */
enum zi_coll_needs zi_node_needs(const struct zi_node_group *group);
/* Posts the call that has just been numbered; or that this member does not make it, and why: what
 * is wrong with it, behind that what is due. */
void zi_node_say(struct zi_node_group *group, const struct zi_board_call *call, uint64_t staging,
                 const void *payload, uint32_t payload_bytes);
void zi_node_say_refused(struct zi_node_group *group);
/* Others still wait for the calls that this member was ahead of: stands by what it posted, if a
 * peer has written that over. */
void zi_node_say_again(struct zi_node_group *group);
/* Until the next call may be posted. What was wrong with one before is due. Return: 0,
 * ZI_NODE_E_WAITS, -EPROTO. */
int zi_node_catch_up(struct zi_node_group *group, struct zi_meet_wants *wants,
                     struct zi_text *text);
/* Until all have posted call @sequence as this member has; of the newest, takes down where the data
 * lie. Return: 0; what is wrong with it; ZI_NODE_E_WAITS. */
int zi_node_look_at(struct zi_node_group *group, uint32_t sequence, struct zi_meet_wants *wants,
                    struct zi_text *text);
/* Until the root has posted the newest call as this member has, and no longer: what is wrong with
 * the others' posts is due later, unless it is seen before. Takes down and returns as that does. */
int zi_node_look_at_root(struct zi_node_group *group, struct zi_meet_wants *wants,
                         struct zi_text *text);
/* The caller knows what is wrong with call @sequence: later only that all have posted it counts. */
void zi_node_told(struct zi_node_group *group, uint32_t sequence);
/* The call whose posts are looked at next. */
static inline uint32_t zi_node_awaited(const struct zi_node_group *group)
{
	bool is_behind = group->run.phase == ZI_NODE_CATCH_UP && group->seen != group->sequence;

	return is_behind ? group->seen + 1 : group->sequence;
}
