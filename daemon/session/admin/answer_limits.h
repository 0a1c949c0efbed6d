/* SPDX-License-Identifier: Apache-2.0 */
/* The answer to `limits`. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include <jansson.h>

#include "daemon/session/sess.h"

/* Every limit with its present use. Of a limit per uid, root and the daemon's uid see the uid that
 * uses most; other uids see their own use. */
json_t *sess_answer_limits(struct sess_shard *shard, const struct sess_facts *facts, uid_t uid);
/* Jobs of all uids. */
uint64_t sess_answer_job_count(struct sess_shard *shard);
