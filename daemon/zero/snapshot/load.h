/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that begin with a snapshot. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/zero.h"
#include "daemon/zero/zero_private.h"

struct zero_layout;
struct zero_rank;

/* Types and optimizer are the snapshot's; of a job that @is_stateless the parameters' alone.
 * -EINVAL with the difference, or the snapshot has no state. */
int load_config_check(const struct zi_job_config *config, bool is_stateless,
                      const struct zero_snapshot *snapshot, struct zi_text *text);
/* The model is the snapshot's. @who: the one that is not, in words. -EINVAL with the first
 * difference. */
int load_model_check(const struct zero_layout *layout, const char *who,
                     const struct zero_snapshot *snapshot, struct zi_text *text);
bool load_is_due(const struct zero_job *job);
int load_check(const struct zero_rank *rank, struct zi_text *text);
int load_adopt(struct zero_job *job, struct zi_text *text);
void load_undo(struct zero_job *job);
void load_forget(struct zero_rank *rank);
