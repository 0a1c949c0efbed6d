/* SPDX-License-Identifier: Apache-2.0 */
/* Private to mail.c and mail_message.c. Floor 3, of zinf-net. Owner: the mail's thread. */
#pragma once

#include "common/base/thread.h"
#include "common/wire/meet.h"
#include "daemon/worker/net/mail.h"
#include "daemon/worker/net/mail_link.h"

/* A message under way, from here or to here; pieces count on from message to message, and each
 * message counts one more. */
struct mail_message {
	bool is_busy;
	uint8_t dtype;
	uint32_t sequence;
	uint32_t base, piece_count;
	uint64_t bytes;
	uint32_t moved;     /* pieces that went out, or came */
	uint32_t room;      /* that may */
	uint32_t told_late; /* number of the message that the other node was told of as late */
	uint32_t told_own;  /* so, the own daemon: the member here is */
	uint32_t framed;    /* frames and pieces of it that are to be collected */
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

/* What came of @pair's message. Return: as above, or 1: it makes no sense. */
int mail_take_send(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                   struct zi_text *text);
int mail_take_room(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                   struct zi_text *text);
int mail_take_piece(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                    struct zi_text *text);
int mail_take_over(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame);

/* ---- mail_late.c ---- */

/* Whether a member here waits for @pair's other one. */
bool mail_is_wanted(const struct mail_pair *pair);
/* Notes until when it does. */
void mail_note_due(struct mail *mail, const struct mail_pair *pair);
/* At mail->due_ns: tells other nodes of what is late. Return: 0; -ETIMEDOUT *ret_node was told, and
 * does not answer; -EPIPE; with @text. */
int mail_tell_late(struct mail *mail, uint64_t now_ns, struct zi_text *text, uint32_t *ret_node);
/* Another node waits beyond its time: if the member here is to do something, the daemon hears. */
void mail_take_late(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame);
