/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of a followed group between members on different nodes; see common/wire/mail.h for what
 * lies where, mail_link.h for what travels. Floor 3, of zinf-net. A thread of its own: messages
 * under way and collective calls do not wait for each other, nor do messages of different pairs.
 *
 *   member here     mail                          mail there      member there
 *   posts  ───────▶ SEND  ──────────────────────▶ posts  ───────▶
 *                   ◀──────────────────────  ROOM (its letter is free)
 *   fills a letter  piece, PIECE ───────────────▶ it is filled ─▶ empties it
 *                   ◀──────────────────────  OVER ◀────────────── has emptied all, or refuses
 *
 * Between the two it is as if they shared the letters: the mail decides nothing, and knows by the
 * lines of both where each message stands.
 */
#pragma once

#include "common/wire/mail.h"
#include "daemon/worker/net/nodes.h"

struct mail;

/* Any of it the caller's, and there until mail_stop(). */
struct mail_options {
	struct nodes *nodes;
	const struct zi_far_shape *shape;
	struct zi_board_member *board; /* two parts more than members of this node */
	char *slab;
	uint64_t slab_bytes;
	uint32_t group;       /* for people */
	const uint8_t *ranks; /* (member_count,) so */
	/* 1 while messages from here are not over: whoever ends the group waits for a moment. */
	uint32_t *is_carrying;
	/* 1 while data of a call, which go the same way as messages, are under way. */
	const uint32_t *is_loaded;
	/* Once: a message cannot go on, which ends the group. From the mail's thread. */
	void (*failed)(void *arg, const struct nodes_end *end);
	/* A member here keeps one elsewhere waiting beyond its time. From the mail's thread. */
	void (*late)(void *arg, const struct net_late_message *late);
	void *arg;
};

/* @ret_mail: mail_stop(). Return: 0, -ENOMEM, -EPIPE, with @text. */
int mail_start(const struct mail_options *options, struct zi_text *text, struct mail **ret_mail);
/* What members here have taken is still told, if that takes but a moment. Aborts the mesh.
 * NULL-safe. Return: NULL. */
struct mail *mail_stop(struct mail *mail);
