/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --resume: from where a run goes on, said by the user, and refused where it is not so.
 *
 *   JOB/NAME   a snapshot: a new job begins with it, as with --load
 *   STEP       the job's own step of that number: it stands there, or is new and has a snapshot
 *              of it (step-N, auto-N)
 *   latest     the newest step that the job has committed: it has one
 *
 * Without the flag a run goes on where its job stands, and begins anew where there is none. A job
 * that stands elsewhere is never put back from here: what it committed later would be lost.
 * Ranks that are started again go on from where they were, whatever the flag says.
 */
#pragma once

#include "examples/gpt/args.h"

/* Reads the flag, fills in what follows. -EINVAL with the reason. */
int gpt_resume_check(struct gpt_args *args, struct gpt_problem *problem);
/* Before the model is materialized: the snapshot to begin with, if there is one. Return: 0; what
 * zinf_load() answered, with its sentence. Why one of a STEP cannot be begun with is kept in
 * @problem alone: whether it is needed is known behind materialize. */
int gpt_resume_load(const struct gpt_args *args, struct zinf *zinf, struct gpt_problem *problem);
/* After, with the same @problem: does the job stand where it was said to? Return: 0; -ENODATA,
 * -EINVAL. */
int gpt_resume_verify(const struct gpt_args *args, const struct zinf *zinf,
                      struct gpt_problem *problem);
/* The job that is attached to. */
const char *gpt_job_name(const struct gpt_args *args);
