/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between members on different nodes: what a member here and the worker that speaks with
 * the other nodes share, for each member elsewhere. Floor 1. Pure arithmetic, alike in ranks and
 * worker.
 *
 * The worker stands in for whoever is elsewhere: what a member here sends it takes, piece by piece,
 * by the same lines and counts by which members of one node do (board.h), and what comes from there
 * it sends. So a piece lies in one of two letters at either end, and a letter is free again when
 * the far member has emptied its own.
 *
 *   mail   | a box for each member here and each elsewhere | why those elsewhere refuse messages |
 *          | letters of each box: two out, two in |
 *
 * It is the last part of the group's slab (far.h). What a member says lies on its own part of the
 * board, behind the lines for the members of its node. It rings after each word
 * that is for the worker (struct zi_board_member, `mail`); the worker sleeps as the member behind
 * zinf-net's own.
 */
#pragma once

#include <stdint.h>

#include "common/wire/far.h"

#define ZI_MAIL_LETTERS 2u /* each way */

/* Writer: the worker. */
struct zi_mail_box {
	struct zi_board_send send; /* what comes from there */
	struct zi_board_take take; /* of what goes there */
};
static_assert(sizeof(struct zi_mail_box) == 2 * (size_t)ZI_LINE_BYTES, "lines");

struct zi_mail {
	struct zi_mail_box *boxes; /* (members here, members elsewhere) */
	/* (members elsewhere, ZI_BOARD_REFUSALS); writer: the worker */
	struct zi_board_refusal *refusals;
	char *letters;
	uint64_t letter_bytes; /* of a piece: the same on all nodes */
	uint32_t self_count, other_count;
	uint8_t lines[ZI_WORLD_MAX];  /* (member_count,) which of its lines a member here has for
	                                 each: first of all those here, then those elsewhere */
	uint8_t others[ZI_WORLD_MAX]; /* (other_count,) members elsewhere */
};

/* @slab: (@slab_bytes,) of the node, whose @shape it is. */
void zi_mail_init(struct zi_mail *mail, const struct zi_far_shape *shape, char *slab,
                  uint64_t slab_bytes);
/* Which of the members elsewhere @member is, in their order. */
static inline uint32_t zi_mail_other(const struct zi_mail *mail, uint32_t member)
{
	return mail->lines[member] - mail->self_count;
}
static inline struct zi_mail_box *zi_mail_box(const struct zi_mail *mail, uint32_t local,
                                              uint32_t other)
{
	return &mail->boxes[local * mail->other_count + other];
}
/* Why member @other of those elsewhere refuses messages, as on its own board. */
static inline struct zi_board_refusal *zi_mail_refusals(const struct zi_mail *mail, uint32_t other)
{
	return &mail->refusals[other * ZI_BOARD_REFUSALS];
}
/* Two letters, the second behind the first: of what goes out, else of what comes in. */
static inline char *zi_mail_letters(const struct zi_mail *mail, uint32_t local, uint32_t other,
                                    bool is_out)
{
	uint64_t box = local * mail->other_count + other;

	return mail->letters + (2 * box + !is_out) * ZI_MAIL_LETTERS * mail->letter_bytes;
}
