/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a commit of a job of several nodes asks the others. Floor 5, shard thread.
 *
 *   written, flushed ─▶ prepared (all) ─▶ catalog, which keeps the former commit
 *     ─▶ committed (all) ─▶ the former one is released ─▶ the step ends, the next one may begin
 *
 * So a node that has the new commit has the former one as well until all have the new one: after a
 * death anywhere there is one of the two that all have (tests/model/commit.pml). Each question is
 * asked once for a commit, which waits, counted as in flight, until it is answered: always, and
 * never before the call returns. A job in one node has no votes, and waits for none.
 */
#pragma once

#include "common/base/text.h"

struct zero_job;

struct zero_votes {
	/* All of job->record is down here. Answered by commit_prepared(): an error, and the commit
	 * is none here. */
	void (*prepared)(struct zero_job *job);
	/* The catalog here has it. Answered by step_committed(): an error, and it is not known
	 * whether all have it. */
	void (*committed)(struct zero_job *job);
	/* Ranks have come to a job with two commits, or to one of several nodes. Answered by
	 * former_settle(), which says which of the two stays, or by materialize_settled(): with an
	 * error, or without one where there is but one. NULL: the newer one stays. */
	void (*resume)(struct zero_job *job);
};

void commit_prepared(struct zero_job *job, int error, const struct zi_text *text);
void step_committed(struct zero_job *job, int error, const struct zi_text *text);
