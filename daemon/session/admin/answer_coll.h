/* SPDX-License-Identifier: Apache-2.0 */
/* The part of `jobs JOB collectives` that tells of groups. Floor 6, shard thread. */
#pragma once

#include <jansson.h>

struct zero_job_report;

/* An object, the caller's; null: they are not open. */
json_t *sess_answer_coll(const struct zero_job_report *report);
