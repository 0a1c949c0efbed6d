/* SPDX-License-Identifier: Apache-2.0 */
/* Private to talk_link.c and talk_pull.c. Floor 3, of zinf-net. Owner: the thread that talks. */
#pragma once

#include "common/base/clock.h"
#include "daemon/worker/net/talk_link.h"

/* What is known to have come or gone; Gloo's thread may still be about to count it. */
#define TALK_SOON_NS (10 * ZI_NS_PER_S)

/* ---- talk_link.c ---- */

/* To be filled in and sent: zero but for its kind. There is room for it. */
struct talk_frame *talk_frame_new(struct talk_link *link, uint32_t kind);
void talk_frame_send(struct talk_link *link, struct talk_frame *frame);
/* As those of gloo.h; what fails shows when all that came before is heard. */
void talk_send(struct talk_link *link, struct net_lane *lane, uint64_t slot, uint64_t offset_bytes,
               uint64_t bytes);
void talk_receive(struct talk_link *link, struct net_lane *lane, uint64_t slot,
                  uint64_t offset_bytes, uint64_t bytes);
/* Whether one that is no HEARD may be sent; pieces leave some for what is not pulled. */
bool talk_has_room(const struct talk_link *link, bool is_piece);
/* What came makes no sense: @what. Return: -EPROTO. */
int talk_nonsense(const struct talk_link *link, const struct talk_frame *frame, const char *what,
                  struct zi_text *text);

/* ---- talk_pull.c: as those of talk_link.h ---- */

int talk_say_pull(struct talk_link *link, const struct talk_entry *entry, struct talk_frame *frame,
                  struct zi_text *text);
int talk_say_serve(struct talk_link *link, const struct talk_entry *entry, struct zi_text *text);
/* @frame: to be sent when this returns 0. */
int talk_say_refused(struct talk_link *link, const struct talk_entry *entry,
                     struct talk_frame *frame, struct zi_text *text);
/* What came. @entry: made of it, for the daemon; @ret_is_told: whether it is. */
int talk_hear_pull(struct talk_link *link, const struct talk_frame *frame, struct zi_text *text);
int talk_hear_answer(struct talk_link *link, const struct talk_frame *frame,
                     struct talk_entry *entry, bool *ret_is_told, struct zi_text *text);
/* A frame from here that was about a pull has gone. */
int talk_gone(struct talk_link *link, const struct talk_frame *frame, struct zi_text *text);
