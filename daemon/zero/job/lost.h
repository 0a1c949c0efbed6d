/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs whose state was in the memory of a former daemon alone. The catalog keeps their rows, so
 * that their owner is told what was lost and at which step, until a job of that name is made anew
 * or the lost one is deleted. No rank attaches to them, and they hold nothing. Floor 5, shard
 * thread.
 */
#pragma once

#include <stdint.h>

struct zero;
struct zero_job;

/* @job, just recovered, stood at @step. The limit of jobs holds for lost ones as well: beyond it
 * the catalog forgets them. */
void lost_keep(struct zero_job *job, int64_t step);
/* NULL: no lost job of that name. */
struct zero_job *lost_find(struct zero *zero, const char *name);
/* It is a job like others from now on, which somebody deletes. */
void lost_take_back(struct zero_job *job);
/* A job of that name and @uid is about to be made or destroyed. The catalog, where names are
 * unique, forgets the lost job first. A lost job of another uid stays listed until the daemon
 * ends. */
void lost_end(struct zero *zero, const char *name, uint32_t uid);
