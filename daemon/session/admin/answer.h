/* SPDX-License-Identifier: Apache-2.0 */
/* Questions that are answered at once. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include "daemon/session/sess.h"

void sess_answer(struct sess_shard *shard, const struct sess_facts *facts, uid_t uid,
                 struct sess_inquiry *inquiry);
