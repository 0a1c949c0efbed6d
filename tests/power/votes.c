/* SPDX-License-Identifier: Apache-2.0 */
/* Commits that ask other nodes, of which there are none (votes.h). */
#include "tests/power/votes.h"

#include <stdlib.h>

#include "daemon/zero/job/job.h"
#include "daemon/zero/step/votes.h"

/* On its way: one for each job whose commit is asked about. */
struct ballot {
	struct zero_job *job;
	bool is_committed; /* which of the two questions */
	struct zi_post post;
};

static void answer(struct zi_post *post)
{
	struct ballot *ballot = container_of(post, struct ballot, post);
	struct zero_job *job = ballot->job;
	bool is_committed = ballot->is_committed;

	free(ballot);
	if (is_committed)
		step_committed(job, 0, NULL);
	else
		commit_prepared(job, 0, NULL);
}

static void ask(struct zero_job *job, bool is_committed)
{
	struct ballot *ballot = calloc(1, sizeof(*ballot));

	if (!ballot)
		abort();
	ballot->job = job;
	ballot->is_committed = is_committed;
	zi_loop_post(job->zero->options.loop, &ballot->post, answer);
}

static void prepared(struct zero_job *job)
{
	ask(job, false);
}

static void committed(struct zero_job *job)
{
	ask(job, true);
}

void votes_give(struct zero_job *job)
{
	static const struct zero_votes votes = { .prepared = prepared, .committed = committed };

	job->votes = &votes;
}
