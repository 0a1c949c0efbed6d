/* SPDX-License-Identifier: Apache-2.0 */
/* How a session ends. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include <stdbool.h>

#include "daemon/session/sess.h"

/* At the top of a turn only (not from zero's callbacks). */
void sess_end(struct sess *session, bool is_clean, const char *reason);
/* Anywhere: ends the session at the end of the poller's turn. */
void sess_doom(struct sess *session, bool is_clean, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void sess_reap_doomed(struct sess_shard *shard);
/* At the top of a turn only. Those of @job whose processes are gone; return: how many. */
uint32_t sess_reap_gone(struct sess_shard *shard, const char *job);
/* The socket is at its end; the pidfd is readable. */
void sess_hung_up(struct sess *session);
void sess_pidfd_ready(struct zi_source *source, uint32_t epoll_events);
/* One more reason for a session to stay; one less. */
void sess_ref(struct sess *session);
void sess_unref(struct sess *session);
