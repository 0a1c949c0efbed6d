/* SPDX-License-Identifier: Apache-2.0 */
/* How a step ends. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/zero.h"

struct zero_job;

void step_skip(struct zero_job *job);  /* STEPPING, a gradient is not finite */
void step_abort(struct zero_job *job); /* STEPPING, group broken */
/* The aborted pipeline of a step has drained. */
void step_drained(struct zero_job *job);
/* The step is over: ranks, snapshots and what else waited go on. The job may be gone afterwards. */
void step_go_on(struct zero_job *job);
void step_undone(struct zero_job *job); /* is_undo_due, and nothing is in flight */
void step_end(struct zero_job *job, int error, const struct zi_text *text); /* commit's end */
