/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's memory: two regions, and the doorbells of both sides. Floor 6, private to
 * daemon/session, shard thread.
 */
#pragma once

#include "daemon/session/sess.h"

/* The regions, charged to the session's uid, and both rings in them, empty. -ENOSPC, -EDQUOT with
 * figures in @text; -ENOMEM. sess_rings_free() in any case. */
int sess_rings_make(struct sess_shard *shard, struct sess *session, struct zi_text *text);
/* @ret_read_fd: the client's end, the caller's; neither end ever blocks anybody. -EMFILE. */
int sess_rings_make_doorbells(struct sess *session, int *ret_read_fd);
/* Gives rings and doorbells back; the process may map on, and sees zeros. */
void sess_rings_free(struct sess *session);
/* Tells clients how long they may spin: while all of them and this thread have a CPU each. */
void sess_rings_publish_spin(struct sess_shard *shard);
