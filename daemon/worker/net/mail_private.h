/* SPDX-License-Identifier: Apache-2.0 */
/* Private to mail*.c. Floor 3, of zinf-net. Owner: the mail's thread. */
#pragma once

#include "common/base/thread.h"
#include "common/wire/meet.h"
#include "daemon/worker/net/mail.h"
#include "daemon/worker/net/mail_link.h"

/* How far it is with a message whose time is passing. */
enum mail_late {
	MAIL_IN_TIME = 0,
	MAIL_ASKED = 1,     /* the other member's node */
	MAIL_NOT_THERE = 2, /* which says that it is not its member's turn */
	MAIL_BLAMED = 3,    /* a daemon knows, and ends the group */
};

/* What a member here waits for, as it said. */
struct mail_wait {
	uint32_t sequence; /* of the message */
	uint32_t timeout_ms;
	uint64_t deadline_ns;
	uint64_t element_count;
	uint8_t dtype;
};

/* A message under way, from here or to here; pieces count on from message to message, and each
 * message counts one more. */
struct mail_message {
	bool is_busy;
	uint8_t dtype;
	uint32_t sequence;
	uint32_t base, piece_count;
	uint64_t bytes;
	uint32_t moved; /* pieces that went out, or came */
	uint32_t room;  /* that may */
	struct mail_wait wait;
	uint32_t asked_moved; /* as `moved`, when the other node was asked */
	enum mail_late late;
	uint64_t due_ns, margin_ns; /* when there is something to do, unless it is blamed */
};

/* A member here and one elsewhere. */
struct mail_pair {
	uint32_t local, self, peer; /* self and peer: members */
	uint32_t node, index;       /* the peer's; which of its link's pairs */
	struct mail_link *link;
	struct zi_mail_box *box;
	struct zi_board_send *said;       /* by the member here */
	struct zi_board_take *taken;      /* so */
	uint64_t letters_out, letters_in; /* offsets in the slab */
	struct mail_message out, in;
};

struct mail {
	struct mail_options options;
	struct zi_mail wire;
	struct zi_meet meet;
	struct zi_line zero; /* no verdict, no spinning */
	struct zi_thread thread;
	uint32_t rung;               /* by links and mail_stop() */
	uint32_t stopping;           /* writer: mail_stop() */
	uint32_t ended;              /* by the mail's thread: its last turn is over */
	uint32_t seen[ZI_WORLD_MAX]; /* of the members' rings */
	uint32_t carried_count;
	bool is_over;    /* `failed` was called */
	uint64_t due_ns; /* when somebody may be late */
	struct mail_link links[SUBTREE_NODES_MAX];
	struct mail_pair pairs[]; /* (members here, members elsewhere) */
};

/* ---- mail_message.c ---- */

/* Go on with what @pair's member here sends, and takes. Return: 0, an error with @text. */
int mail_poll_out(struct mail *mail, struct mail_pair *pair, struct zi_text *text);
int mail_poll_in(struct mail *mail, struct mail_pair *pair, struct zi_text *text);
/* To the other node, about @pair's message @sequence; to be filled in and sent. @piece: see
 * mail_link_frame(), as of the next. */
struct mail_frame *mail_frame_of(const struct mail_pair *pair, enum mail_kind kind, uint32_t piece,
                                 uint32_t sequence);
/* See mail_link_gone(). */
void mail_gone(const struct mail_pair *pair, enum mail_kind kind, uint32_t piece);
/* What the member here says to have emptied, of messages before `in` in any case. */
uint32_t mail_emptied(const struct mail_pair *pair);

/* What came of @pair's message. Return: as above, or 1: it makes no sense. */
int mail_take_send(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                   struct zi_text *text);
int mail_take_room(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                   struct zi_text *text);
int mail_take_piece(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                    struct zi_text *text);
int mail_take_over(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame);

/* ---- mail_refuse.c ---- */

/* The member here refuses messages up to @sequence: tells the other node, unless it has yet to
 * answer the last time. Return: 0, an error with @text. */
int mail_tell_refused(struct mail *mail, struct mail_pair *pair, uint32_t sequence,
                      struct zi_text *text);
/* As above; see enum mail_kind. */
int mail_take_refused(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                      struct zi_text *text);
int mail_take_refused_heard(struct mail *mail, struct mail_pair *pair, struct zi_text *text);
/* Whether the member here refuses message @sequence, which it has not emptied. */
bool mail_refuses(const struct mail_pair *pair, uint32_t sequence);
/* Into @frame: why it does, as the sender or the receiver. */
void mail_put_reason(const struct mail *mail, const struct mail_pair *pair, uint32_t sequence,
                     bool is_send, struct mail_frame *frame);
/* What came with @frame is kept for members here. */
void mail_keep_reason(const struct mail *mail, const struct mail_pair *pair,
                      const struct mail_frame *frame);

/* ---- mail_late.c ---- */

/* Whether a member here waits for @pair's other one. */
bool mail_is_wanted(const struct mail_pair *pair);
/* What the receiver of @line waits for; it may go on meanwhile. Return: whether it waits. */
bool mail_read_take(const struct zi_board_take *line, struct mail_wait *ret_wait);
/* Notes until when it does. */
void mail_note_due(struct mail *mail, struct mail_pair *pair);
/* At mail->due_ns: asks other nodes about what is late. Return: 0; -ETIMEDOUT *ret_node was asked,
 * and does not answer, or the link to it is too slow; -EPIPE; with @text. */
int mail_ask_late(struct mail *mail, uint64_t now_ns, struct zi_text *text, uint32_t *ret_node);
/* Another node asks: if it is the turn of the member here, the daemon hears. As above. */
int mail_take_late(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                   struct zi_text *text);
/* It has answered. */
int mail_take_late_heard(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame);
