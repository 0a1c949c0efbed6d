/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parameters ranks have used in a step, of a job that looks for those without a gradient
 * (step/unused.h): when all ranks of all nodes have called step(), each node says which its own
 * have, in as many rounds as that takes; what is used by one is used. Floor 5, shard thread.
 */
#pragma once

#include <stdbool.h>

struct zero_job;

/* All ranks of all nodes have called step(): other nodes are asked, once. step_advance() comes from
 * the loop, or the step ends. No-op where there is nobody to ask, or nothing to know. */
void used_ask(struct zero_job *job);
bool used_is_known(const struct zero_job *job);
