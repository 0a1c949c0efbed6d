/* SPDX-License-Identifier: Apache-2.0 */
/* What goes to the catalog. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/catalog/catalog.h"
#include "daemon/zero/zero.h"

struct zero_job;
struct zero_marks;

#define ZERO_BLOBS 3u
struct zero_blob {
	void *bytes; /* (ZI_BLOB_BYTES,) */
	uint64_t byte_count;
};

/* Step, powers, blobs, and the extents that are replaced. Ends in step_end(). */
void commit_submit(struct zero_job *job);
/* Writes what is in memory alone, and commits; ends in step_end(). @is_unasked: with the blobs of
 * the newest step. -ENOSPC: nothing has begun. */
int commit_start(struct zero_job *job, bool is_unasked, struct zi_text *text);
/* The WRITE pipeline's end. */
void commit_written(struct zero_job *job, int error, const struct zi_text *text);
void request_submit(struct zero_job *job, enum catalog_request_kind kind, catalog_request_fn done);
/* job->record is all of a commit, which nobody votes about any more, on paths @members: the one in
 * force stays beside it. */
void whole_submit(struct zero_job *job, uint32_t members, catalog_request_fn done);
/* Of two commits that the catalog has the one of @stays stays. */
void step_back_submit(struct zero_job *job, const struct zero_marks *stays,
                      catalog_request_fn done);
/* The first thing of every @done: the request is no longer in flight, and when the catalog broke in
 * it, zero is frozen. */
void request_end(struct zero_job *job);
/* The same for a request that is not a job's. */
void request_look(struct zero *zero, const struct catalog_request *request);
/* 0, or why nothing that ends in the catalog may begin. */
int frozen_check(const struct zero *zero, struct zi_text *text);
/* The same for what somebody asks for anew, which a daemon that stops does not begin either. */
int change_check(const struct zero *zero, struct zi_text *text);
/* Of the step or commit to come. */
uint32_t blob_next(const struct zero_job *job);
void blob_keep(struct zero_job *job, uint32_t rank, const void *bytes, uint64_t byte_count);
