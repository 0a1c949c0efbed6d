/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and state of a job, built when its ranks are there. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/zero.h"

struct zero;
struct zero_job;
struct zero_rank;

bool materialize_is_due(const struct zero_job *job);
/* Something of a former start of job @name has ended that a new one may have waited for. */
void materialize_look(struct zero *zero, const char *name);
/* The present group's memory is being made; a former one's may still be on its way to nobody. */
bool materialize_is_on(const struct zero_job *job);
/* Why it takes so long though all ranks have come, for people. */
const char *materialize_obstacle(const struct zero_job *job);
void materialize_start(struct zero_job *job);
/* The rank's configuration and layout are the stored job's, if there is one. -EINVAL with the
 * first difference; -EOPNOTSUPP. */
int materialize_check_stored(const struct zero_rank *rank, struct zi_text *text);
/* Which of a job's two commits is in force is known, or cannot be. */
void materialize_settled(struct zero_job *job, int error, const struct zi_text *text);
/* materialize_error is set, and nothing is in flight any more. */
void materialize_failed(struct zero_job *job);
/* materialize_build() has ended. */
void materialize_built(struct zero_job *job, int error, const struct zi_text *text);
/* The load pipeline has ended. */
void materialize_loaded(struct zero_job *job, int error, const struct zi_text *text);
