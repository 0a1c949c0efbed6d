/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of messages to and from one other node: frames of one length, in order, and pieces beside
 * them. Floor 3, of zinf-net. Owner: the mail's thread (mail.h).
 *
 * Gloo counts what has come, but says neither what it was nor wakes whoever waits for other things
 * as well. So a thread of each link waits for frames, counts them and rings; a piece has no such
 * thread: its receive has begun before its sender was told that there is room, so it waits for
 * nobody, and the frame that is sent after it comes after it, as what goes to a node keeps its
 * order (gloo.h). So the mail's thread, which serves all pairs, waits for no piece on the link.
 *
 * A frame that goes out lies still until it has gone: each pair of members has places of its own,
 * one for each kind of frame that may be on its way. What came back says that a frame has come:
 * then it is counted as gone (mail_link_gone()), and its place is free. No place is filled that is
 * not, and Gloo's list of what has gone stays short.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/thread.h"
#include "daemon/worker/net/gloo.h"

enum mail_kind {
	MAIL_SEND = 1,  /* to the receiver: a member has posted; short ones come with it */
	MAIL_ROOM = 2,  /* to the sender: piece `piece` may come; what lay there is emptied */
	MAIL_PIECE = 3, /* to the receiver: piece `piece` went before this frame */
	MAIL_OVER = 4,  /* to the sender: all is emptied, or refused */
	/* To the other member's node: the sender's time is passing, or the receiver's, which was
	 * `piece` ms. Its answer, always: `piece` is 1 when it is its member's turn, of which its
	 * daemon was told. */
	MAIL_LATE_SEND = 5,
	MAIL_LATE_TAKE = 6,
	MAIL_LATE_SEND_HEARD = 7,
	MAIL_LATE_TAKE_HEARD = 8,
	/* To the receiver: up to this one the sender refuses messages. Its answer. */
	MAIL_REFUSED = 9,
	MAIL_REFUSED_HEARD = 10,
	_MAIL_KIND_COUNT,
};

#define MAIL_FRAME_BYTES  1024u
#define MAIL_INLINE_BYTES (MAIL_FRAME_BYTES - 32u)
struct mail_frame {
	uint8_t kind;           /* enum mail_kind */
	uint8_t from, to;       /* members: of the message, whichever way the frame goes */
	uint8_t dtype;          /* OVER: 0, or that of the receive by which it was refused */
	uint32_t sequence;      /* of the message, of its pair of members */
	uint64_t element_count; /* OVER: as dtype */
	uint32_t piece;         /* as the pair counts them (common/wire/board.h), or as above */
	uint32_t bytes;         /* SEND: that come with it. REFUSED, OVER: of the reason */
	uint32_t refusal;       /* REFUSED, OVER: why, by its member's number, … */
	uint32_t error;         /* … and errno; OVER: 0 when it is not refused so */
	uint8_t data[MAIL_INLINE_BYTES];
};
static_assert(sizeof(struct mail_frame) == MAIL_FRAME_BYTES, "whole");

/* Whether @kind goes from the sender's node to the receiver's. */
static inline bool mail_kind_is_in(uint32_t kind)
{
	return kind == MAIL_SEND || kind == MAIL_PIECE || kind == MAIL_LATE_SEND ||
	       kind == MAIL_LATE_TAKE_HEARD || kind == MAIL_REFUSED;
}

/* Frames of one pair of members that may be on their way: two each of ROOM and PIECE. */
#define MAIL_PAIR_FRAMES 12u

struct mail_link {
	struct net_lane *frames, *pieces; /* NULL: the own node's */
	struct mail_frame *memory;        /* what comes in, then what goes out */
	uint64_t memory_bytes;
	uint16_t *lying; /* (pairs,) behind them: bitmaps of places that are not free */
	uint32_t *rung;  /* the mail's */
	struct zi_thread thread;
	uint32_t arrived; /* writer: the thread; frames so far */
	uint32_t is_dead; /* writer: the thread, once `text` says why */
	struct zi_text text;
	uint32_t taken; /* frames */
};

/* To node @node; @slab: (@slab_bytes,) where pieces lie. @link is zero, and in its place until
 * mail_link_close(). Return: 0, -ENOMEM, -EPIPE with @text. */
int mail_link_open(struct mail_link *link, struct net_mesh *mesh, uint32_t node,
                   uint32_t pair_count, void *slab, uint64_t slab_bytes, uint32_t *rung,
                   struct zi_text *text);
/* After net_mesh_abort(). Of one that is not open, or half: fine. */
void mail_link_close(struct mail_link *link);

/* To be filled in: zero but for its kind. Its place is free. @pair: of the link's; @piece: of ROOM
 * and PIECE. */
struct mail_frame *mail_link_frame(struct mail_link *link, uint32_t pair, enum mail_kind kind,
                                   uint32_t piece);
int mail_link_send(struct mail_link *link, const struct mail_frame *frame, struct zi_text *text);
/* The oldest that has come; NULL: none. It is there until mail_link_took(). */
const struct mail_frame *mail_link_next(struct mail_link *link);
int mail_link_took(struct mail_link *link, struct zi_text *text);
/* Whether the newest such frame is not known to have gone. */
bool mail_link_lies(const struct mail_link *link, uint32_t pair, enum mail_kind kind,
                    uint32_t piece);
/* It is known now, if it was not: neither it nor, of PIECE, its piece is counted any more. */
void mail_link_gone(struct mail_link *link, uint32_t pair, enum mail_kind kind, uint32_t piece);

/* Pieces of the message from @from to @to; see above. */
int mail_link_send_piece(struct mail_link *link, uint32_t from, uint32_t to, uint64_t offset_bytes,
                         uint64_t bytes, struct zi_text *text);
int mail_link_begin_piece(struct mail_link *link, uint32_t from, uint32_t to, uint64_t offset_bytes,
                          uint64_t bytes, struct zi_text *text);
/* One whose frame has come. */
int mail_link_end_piece(struct mail_link *link, struct zi_text *text);

/* Adds one to what the mail's thread waits for. Any thread. */
void mail_ring(uint32_t *rung);
