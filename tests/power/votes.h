/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that commit as those of several nodes do (daemon/zero/step/votes.h): each commit keeps the
 * former one until it was asked about twice. The other nodes say yes, a turn of the loop later.
 */
#pragma once

struct zero_job;

/* Of a job that is open. */
void votes_give(struct zero_job *job);
