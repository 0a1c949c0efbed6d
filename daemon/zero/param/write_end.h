/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a write of parameters. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/zero.h"

struct zero_job;
struct zero_subgroup;

/* A subgroup of what is being written, to @target: device threads. */
void write_copy(const struct zero_job *job, const struct zero_subgroup *subgroup, void *target);
/* With a pool: nothing reads the unit any more whose write has ended. */
void write_go_on(struct zero_job *job);
/* The STORE pipeline's end. */
void write_stored(struct zero_job *job, int error, const struct zi_text *text);
