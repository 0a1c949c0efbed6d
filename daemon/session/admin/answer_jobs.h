/* SPDX-License-Identifier: Apache-2.0 */
/* The answer to `jobs`. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include <jansson.h>

#include "daemon/session/sess.h"

/* NULL: inquiry->result and ->text say why. */
json_t *sess_answer_jobs(struct sess_shard *shard, uid_t uid, struct sess_inquiry *inquiry);
