/* SPDX-License-Identifier: Apache-2.0 */
/* Completions, and waking who waits for them. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include "daemon/session/sess.h"

void sess_complete(struct sess *session, const struct zi_sqe *sqe, int result,
                   const struct zi_text *text);
/* Wakes the client if it sleeps on its completion ring. */
void sess_wake(struct sess *session);
/* Rings whether or not the client seems to sleep: for news that are not in the ring. */
void sess_wake_always(struct sess *session);
