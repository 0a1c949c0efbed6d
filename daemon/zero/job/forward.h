/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that use parameters and train nothing (zi_training_is_forward_only()). Floor 5, shard
 * thread.
 *
 * A start of a job is forward only, or the job itself: then it was made by such a start, and has
 * parameters and no optimizer state, ever (job->is_stateless). A job that trains is used so as it
 * stands, and nothing of it changes.
 */
#pragma once

#include "common/base/text.h"
#include "common/base/types.h"

struct catalog_job;
struct zero_job;
struct zi_job_training;

/* A call that such a rank does not make. Return: 0; -EPERM, naming it. */
int forward_call_check(const struct zero_job *job, uint16_t opcode, struct zi_text *text);
/* May ranks that attach so come to the stored job, if there is one? Return: 0; -EINVAL. */
int forward_start_check(const struct zero_job *job, const struct zi_job_training *training,
                        struct zi_text *text);
/* What the group asks for is the job's from now on, but for what says of state what it is: that is
 * the stored job's, where nobody asks for it. */
void forward_take_config(struct zero_job *job);
/* Of a job, or a snapshot, as the catalog has it. */
bool forward_is_stateless(const struct catalog_job *record);
/* So that it is seen there again. */
void forward_put(bool is_stateless, struct catalog_job *record);
