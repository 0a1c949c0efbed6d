/* SPDX-License-Identifier: Apache-2.0 */
/* A connection becomes a rank of a job. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include "daemon/session/sess.h"

/* 0: the session is attached and answered. Else nothing is left of the attempt. */
int sess_attach(struct sess_shard *shard, struct sess *session, struct zi_text *text);
/* zero_broken_fn: the group of a session's rank is over; for sess_shard_stop() also. */
void sess_broken(void *arg, int error, uint32_t culprit, const struct zi_text *text);
