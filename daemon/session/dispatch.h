/* SPDX-License-Identifier: Apache-2.0 */
/* From a slot to its handler. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include "daemon/session/sess.h"

/* One slot. -EPROTO: the session must end, shard->text says why. */
int sess_dispatch(struct sess *session, const struct zi_sqe *sqe);
