/* SPDX-License-Identifier: Apache-2.0 */
/* A session's way into its shard. Floor 6, private to daemon/session. */
#pragma once

#include "daemon/session/sess.h"

/* Hands a MOVING session over; its ATTACH lies in session->attach. Context: control thread. */
void sess_shard_take(struct sess_shard *shard, struct sess *session);
