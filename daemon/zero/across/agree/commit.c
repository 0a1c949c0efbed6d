/* SPDX-License-Identifier: Apache-2.0 */
/* Commits of a job of several nodes, by rounds; see commit.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/commit.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/rejoin.h"
#include "daemon/zero/across/bytes/blobs.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/job/materialize_check.h"
#include "daemon/zero/place/record.h"
#include "daemon/zero/step/doubt.h"

/* A commit's name, its step, and what else is alike on all nodes that make it. */
struct commit_words {
	uint64_t number, line;
	int64_t step;
	uint64_t update_count;
	double scale;
};
static_assert(sizeof(struct commit_words) <= TALK_DATA_BYTES, "one vote");

static void ask(struct zero_job *job, enum round_kind kind, const struct commit_words *name,
                round_done_fn done)
{
	struct round_vote vote = { .data_bytes = sizeof(*name) };

	memcpy(vote.data, name, sizeof(*name));
	across_vote(job, kind, &vote, done);
}

/* Nodes that make different commits: they have come different ways. Return: 0; -EINVAL, with
 * @ret_text, and the group is told. */
static int compare(struct zero_job *job, const struct round *round, struct zi_text *ret_text)
{
	uint32_t odd = round_odd_one(round, across_node_count(job));
	struct commit_words first, other = { 0 };

	if (odd == across_node_count(job))
		return 0;
	memcpy(&first, round->votes[0].data, sizeof(first));
	memcpy(&other, round->votes[odd].data, sizeof(other));
	zi_text_set(ret_text,
	            "%.50s makes commit %llu of step %lld (%016llx; update %llu, scale %g), but "
	            "%.50s commit %llu of step %lld (%016llx; update %llu, scale %g)",
	            across_name(job, odd).chars, (unsigned long long)other.number,
	            (long long)other.step, (unsigned long long)other.line,
	            (unsigned long long)other.update_count, other.scale, across_name(job, 0).chars,
	            (unsigned long long)first.number, (long long)first.step,
	            (unsigned long long)first.line, (unsigned long long)first.update_count,
	            first.scale);
	across_fail(job->across, -EINVAL, UINT32_MAX, ret_text);
	return err_origin(-EINVAL);
}

static void all_prepared(void *arg, const struct round *round, int error,
                         const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct zi_text why = text ? *text : (struct zi_text){ "" };

	commit_prepared(job, error ? error : compare(job, round, &why), &why);
}

/* The record has all that it is to have. */
static void complete(struct zero_job *job, int error, const struct zi_text *text)
{
	struct zero_scale scale = { 0 };
	struct commit_words name = { .number = job->record.number,
		                     .line = job->record.line,
		                     .step = job->record.step,
		                     .update_count = job->record.update_count };

	if (error) {
		commit_prepared(job, error, text);
		return;
	}
	job->record.blob_count = 0;
	record_put_blobs(job, job->step.blob_index, ZI_WORLD_MAX, &job->record, job->record_blobs);
	(void)scale_get(&job->record, &scale); /* It was put there by this node. */
	name.scale = scale.state.scale;
	ask(job, ROUND_PREPARED, &name, all_prepared);
}

/* What other nodes' ranks gave with it this one keeps, too. */
static void prepared(struct zero_job *job)
{
	blobs_pull(job, complete);
}

static void all_committed(void *arg, const struct round *round, int error,
                          const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct zi_text why = text ? *text : (struct zi_text){ "" };

	step_committed(job, error ? error : compare(job, round, &why), &why);
}

static void committed(struct zero_job *job)
{
	struct commit_words name = { .number = job->committed.number,
		                     .line = job->committed.line,
		                     .step = job->committed_step,
		                     .update_count = job->committed.update_count,
		                     .scale = job->committed.scale.state.scale };

	ask(job, ROUND_COMMITTED, &name, all_committed);
}

const struct zero_votes commit_votes = { prepared, committed, rejoin_ask };
