/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `zctl jobs` share. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

struct zctl_context;

/* "12", or where steps are in force that are not committed, "12 (15)". */
struct zi_text jobs_step(const json_t *job);
/* durability = power: the disk that its commit waits for. @is_late_alone: beyond deadline_s. */
void jobs_print_flush(const json_t *job, bool is_late_alone);
/* Sum of one key over the planes a job holds. */
uint64_t jobs_held_bytes(const json_t *job, const char *key);
/* The name of its strategy; "hybrid": zero3 whose shards are repeated. "" before the job began. */
const char *jobs_strategy(const json_t *job);
/* What "logical" and "held" mean, in two lines under a table. */
void jobs_print_legend(void);
/* Of all planes and ranks, as the strategy says. */
uint64_t jobs_logical_bytes(const json_t *job);
/* A table: what each rank would hold by itself, as its strategy says, and beside it what this node
 * really holds for all of them. */
void jobs_print_bytes(const struct zctl_context *context, const json_t *job);
/* All there is to know. */
void jobs_print_detail(const struct zctl_context *context, const json_t *job);
/* @job: as answered to `jobs JOB collectives`. */
void zctl_print_collectives(const struct zctl_context *context, const json_t *job);
