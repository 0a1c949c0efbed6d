/* SPDX-License-Identifier: Apache-2.0 */
/* Steps between two commits. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/catalog/catalog.h"
#include "daemon/zero/step/scale.h"
#include "daemon/zero/zero.h"

struct zero_job;

/* Of the committed step, to fall back to from one that is not. */
struct zero_marks {
	uint64_t update_count;
	double beta1_power, beta2_power;
	struct zero_scale scale;
	uint32_t blob_index;
	uint32_t world; /* whose blobs those are; job->world is that of the last materialise */
	uint64_t number, line; /* of the commit (catalog.h) */
	struct catalog_placement placement;
};

bool ahead_is_due(const struct zero_job *job, int64_t step);
void ahead_take(struct zero_job *job);
void ahead_mark(struct zero_job *job);
void ahead_drop(struct zero_job *job);
/* The job stands at a step that is committed, or at none (-1). */
void ahead_set(struct zero_job *job, int64_t step, const struct zero_marks *marks);
/* Commits what nobody else will. True when that has begun. */
bool ahead_commit(struct zero_job *job);
/* Return: 0; -EBUSY, with the steps that are not committed. */
int ahead_check_none(const struct zero_job *job, struct zi_text *text);
void ahead_lost(struct zero_job *job, const struct zi_text *why);
