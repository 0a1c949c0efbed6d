/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that a member refuses, or that are not what the other side says. Floor 2, private to the
 * engine. */
#pragma once

#include "libclient/coll/node/node.h"

/* Whether there is somebody to be told of @p2p: its peer is a member, and another one. */
bool zi_pair_has_peer(const struct zi_node_group *group, const struct zi_node_p2p *p2p);
/* Leaves on the board why this member refuses messages. Return: its number, for their `refusal`. */
uint32_t zi_node_post_reason(struct zi_node_group *group, int error, const struct zi_text *reason);
/* This member refuses @p2p, for what message.refusal says: whoever comes to it is told. */
void zi_pair_refuse(struct zi_node_group *group, struct zi_node_p2p *p2p);
/* Says on the board that it does so, for reason @number; 0: for its type. */
void zi_pair_refuse_one(struct zi_node_group *group, const struct zi_node_p2p *p2p,
                        uint32_t number);
/* The peer refuses @p2p: its words are @refused and @refusal. Return: the number of its reason; 0:
 * the message's type; ZI_BOARD_REFUSAL_LOST. */
uint32_t zi_pair_reason_of(const struct zi_node_group *group, const struct zi_node_p2p *p2p,
                           const uint32_t *refused, const uint32_t *refusal);
/* Return: the error that reason @number gives. */
int zi_pair_say_refused(struct zi_node_group *group, const struct zi_node_p2p *p2p, uint32_t number,
                        struct zi_text *text);
/* The peer's side of @p2p has another count or type. Return: -EINVAL. */
int zi_pair_say_mismatch(const struct zi_node_group *group, const struct zi_node_p2p *p2p,
                         uint64_t other_count, uint32_t other_dtype, struct zi_text *text);
