/* SPDX-License-Identifier: Apache-2.0 */
/* The answers to `snapshot …`. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include <jansson.h>

#include "daemon/session/sess.h"

json_t *sess_answer_snapshot_list(struct sess_shard *shard, uid_t uid,
                                  const struct sess_inquiry *inquiry);
/* Make, remove or go back to one: answered by sess_answered(), possibly before this returns. */
void sess_answer_snapshot(struct sess_shard *shard, uid_t uid, struct sess_inquiry *inquiry);
