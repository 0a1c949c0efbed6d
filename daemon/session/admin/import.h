/* SPDX-License-Identifier: Apache-2.0 */
/* `load …`. Floor 6, private to daemon/session, shard thread but for what says otherwise. */
#pragma once

#include "daemon/session/sess.h"

/* Answered by sess_answered(), possibly before this returns. */
void sess_answer_import(struct sess_shard *shard, struct sess *session);
/* The connection ends; nothing is out. Context: control thread. */
void sess_import_drop(struct sess *session);
