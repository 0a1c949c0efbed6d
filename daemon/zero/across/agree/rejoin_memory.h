/* SPDX-License-Identifier: Apache-2.0 */
/* Where a job goes on that has its state in memory alone. Floor 5, shard thread. */
#pragma once

#include <stdint.h>

#include "common/base/text.h"

struct commit_name;
struct round;
struct zero_job;

/*
 * State in memory alone cannot go back, but for the first commit, before which there is nothing;
 * and need not where what is torn is the name of a commit alone, of one step. Return: 0; -ENODATA.
 */
int memory_rejoin(struct zero_job *job, const struct round *round, uint32_t node_count,
                  const struct commit_name *chosen, struct zi_text *ret_text);
/* No commit is on all nodes. Return: -ENODATA. */
int memory_rejoin_refuse(const struct zero_job *job, const struct round *round, uint32_t node_count,
                         struct zi_text *ret_text);
