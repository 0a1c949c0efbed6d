/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State on NVMe: where names are not enough to go on by, what each node has is pulled by all; all
 * choose alike, and say so before anything is done by it; see heal.h. Floor 5, shard thread.
 */
#pragma once

#include "common/base/text.h"

struct across;
struct commit_name;
struct round;
struct zero_job;

/* All nodes have voted: ends in materialize_settled(), or in former_settle(). */
void learn_start(struct zero_job *job, const struct round *round);
/* So, where each has @commit in its place, as all have said. */
void learn_nothing(struct zero_job *job, const struct round *round,
                   const struct commit_name *commit);
/* Something that others pulled has gone; */
void learn_served(struct across *across);
/* nothing more goes. The job may end with this. */
void learn_over(struct across *across, int error, const struct zi_text *text);
