/* SPDX-License-Identifier: Apache-2.0 */
/* Where a job goes on that has its state in memory alone. Floor 5, shard thread. */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "daemon/zero/across/agree/chosen.h"

struct round;
struct zero_job;

/*
 * State in memory alone cannot go back, but for the first commit, before which there is nothing;
 * and need not where what is torn is the name of a commit alone, of one step. @commit: the newest
 * that all have. Return: 0, with what this node is to say; -ENODATA.
 */
int memory_rejoin(const struct zero_job *job, const struct round *round, uint32_t node_count,
                  const struct commit_name *commit, struct chosen *ret_chosen,
                  struct zi_text *ret_text);
/* All have said so. */
void memory_take(struct zero_job *job, const struct chosen *chosen);
/* No commit is on all nodes. Return: -ENODATA. */
int memory_rejoin_refuse(const struct zero_job *job, const struct round *round, uint32_t node_count,
                         struct zi_text *ret_text);
