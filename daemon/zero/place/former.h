/* SPDX-License-Identifier: Apache-2.0 */
/* The commit before the one in force. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/step/ahead.h"

struct zero_job;

struct zero_former {
	bool is_kept;   /* its extents and blobs are held: the job may still go back to it */
	bool is_stored; /* the catalog has rows of it, which may name what was released since */
	bool is_back;   /* former_settle(): it is what stays */
	bool is_named;  /* of state in memory alone, which is not kept: what it was before */
	int64_t step;   /* -1: there was no commit yet */
	struct zero_marks marks;
	bool is_stuck; /* its rows could not be dropped by former_tidy() */
};

/* What is committed is about to be replaced: with votes it is kept. */
void former_keep(struct zero_job *job);
/* Nobody can want it any more. No-op where none is kept. */
void former_release(struct zero_job *job);
/* Was the one that is kept divided otherwise among ranks and nodes than what is in force? */
bool former_is_elsewhere(const struct zero_job *job);
/* Is there one of which the catalog, or memory, is to be told whether it stays? */
bool former_is_open(const struct zero_job *job);
/* State in memory alone that not all nodes have: it begins anew, behind commit @number. */
void former_forget(struct zero_job *job, uint64_t number);
/* One of the two goes, from the catalog first: with @is_back the newer one. Nothing may be in
 * flight. Ends in materialize_settled(); after an error both stay as they were. */
void former_settle(struct zero_job *job, bool is_back);
/* A job at rest leaves no rows of what was released: a daemon that begins anew would hold it. True:
 * ranks that come wait for the catalog, and job_settle() is called then. */
bool former_tidy(struct zero_job *job);
