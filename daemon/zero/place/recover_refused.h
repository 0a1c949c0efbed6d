/* SPDX-License-Identifier: Apache-2.0 */
/* The space of jobs and snapshots that were refused. Floor 5, before the loop runs. */
#pragma once

#include <stdint.h>

struct catalog_job;
struct zero;

/* @refused: (count,) jobs; snapshots are found by their refusal. */
int recover_keep_refused(struct zero *zero, struct catalog_job *const *refused, uint32_t count);
/* Their former commits, when those of sound jobs have claimed theirs. */
int recover_keep_refused_formers(struct zero *zero, struct catalog_job *const *refused,
                                 uint32_t count);
