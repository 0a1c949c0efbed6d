/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a member refuses before it posts a call, in what calls of members differ, and how a call is
 * called. Floor 2, private to the engine.
 */
#pragma once

#include "libclient/coll/node/node.h"

struct zi_node_words {
	char chars[96];
};
/* "all_reduce of 17 × f32 (sum)". */
struct zi_node_words zi_node_words_of(const struct zi_board_call *call);
/* What of @call is equal on all members. */
struct zi_board_call zi_node_board_call(const struct zi_node_call *call);

/* Checks @call as far as this member knows, and prepares group->run for it. Return: 0; -EINVAL,
 * -EOVERFLOW, what the caller refuses it by; with @text. */
int zi_node_check(struct zi_node_group *group, const struct zi_node_call *call,
                  struct zi_text *text);
/* As above, of a message. */
int zi_node_check_p2p(const struct zi_node_group *group, const struct zi_node_p2p *p2p,
                      struct zi_text *text);
/* Whether @other, of @member, is what this member posted as call @sequence. Return: 0; the error of
 * one that was refused; 0 and *ret_differs: ask whose is the odd one. */
int zi_node_compare(const struct zi_node_group *group, uint32_t sequence, uint32_t member,
                    const struct zi_board_call *other, struct zi_text *text, bool *ret_differs);
/* Posts of call @sequence differ: names the odd one, and whose call most others make, or the first
 * of several. Return: -EINVAL, ZI_NODE_E_WAITS more must come to tell; others as above; -EPROTO. */
int zi_node_tell_apart(struct zi_node_group *group, uint32_t sequence, struct zi_meet_wants *wants,
                       struct zi_text *text);
/* all_to_allv, once all have posted: -EINVAL when two members' counts do not match. */
int zi_node_compare_counts(const struct zi_node_group *group, struct zi_text *text);
