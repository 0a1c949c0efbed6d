/* SPDX-License-Identifier: Apache-2.0 */
/* A job as its rows in the catalog have it. Floor 5, shard thread. */
#pragma once

#include <stdbool.h>

#include "daemon/catalog/catalog.h"

struct zero_job;

/* Extents, their checksums and blobs. The job's layout is built. @is_load: @stored is a snapshot's;
 * blobs of ranks that are not here, and what another node is to hold, are left out. Return: 0;
 * -ENOMEM; what job->refusal is then, with its text. */
int recover_state(struct zero_job *job, const struct catalog_job *stored, bool is_load);
/* All of a job that nobody uses: what @stored says, whose arrays change hands, and its charge. 0;
 * -ENOMEM; what job->refusal is then. */
int recover_take(struct zero_job *job, struct catalog_job *stored, bool is_load);
