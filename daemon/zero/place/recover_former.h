/* SPDX-License-Identifier: Apache-2.0 */
/* The commit before the one in force, from the catalog. Floor 5, before the loop runs. */
#pragma once

struct catalog_job;
struct zero_job;

/* @job: recovered, and everything that is in force has claimed its space. What cannot be had any
 * more is left out. 0; -ENOMEM. */
int recover_former(struct zero_job *job, const struct catalog_job *stored);
