/* SPDX-License-Identifier: Apache-2.0 */
/* In what calls of members differ. Floor 2, private to the engine. */
#pragma once

#include "libclient/coll/node/node.h"

/* Whether @other, of @member, is what this member called as @sequence. Return: 0; the error of one
 * that was refused; 0 and *ret_differs: ask whose is the odd one. */
int zi_node_compare(const struct zi_node_group *group, uint32_t sequence, uint32_t member,
                    const struct zi_board_call *other, struct zi_text *text, bool *ret_differs);
/* Whether @other, of @member, is an echo, which concerns nobody who was ahead of that call, nor who
 * leans on another member in it (posts.c). */
static inline bool zi_node_passes_over(const struct zi_node_group *group, uint32_t member,
                                       const struct zi_board_call *other)
{
	const struct zi_node_run *run = &group->run;

	return other->flags & ZI_BOARD_ECHO &&
	       (run->phase == ZI_NODE_CATCH_UP ||
	        (run->needs == ZI_NEEDS_ROOT && member != run->call.root));
}
/* Posts of call @sequence differ, or one is a refusal: names the odd one, and whose call more than
 * half of all make; else one of each side. Return: -EINVAL; others as above; -EPROTO. */
int zi_node_tell_apart(struct zi_node_group *group, uint32_t sequence, struct zi_text *text);
/* Whether a member from @first on has refused call @sequence or made another one. Those who have
 * not come are waited for by their alarms alone. */
bool zi_node_look_ahead(struct zi_node_group *group, uint32_t sequence, uint32_t first,
                        struct zi_meet_wants *wants);
/* Who waits for somebody else in call @sequence looks at all posts again. */
void zi_node_raise_alarm(struct zi_node_group *group, uint32_t sequence);
/* This member has posted its newest call and does not wait in it, so that it compares nothing: if
 * the call of one who sleeps contradicts it, that one hears of it now. Who does not sleep looks
 * before it does. (Who leans on the root need not: it waits, and compares, until that one has come
 * and agrees with it, which has warned the same ones.) */
void zi_node_warn_sleepers(struct zi_node_group *group);
/* all_to_allv, once all have posted: -EINVAL when two members' counts do not match. */
int zi_node_compare_counts(const struct zi_node_group *group, struct zi_text *text);
