/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other nodes of a job, as its commits ask them (step/votes.h): each question is answered by a
 * post of the loop, or waits until the test answers it.
 */
#pragma once

#include "daemon/zero/job/materialize.h"
#include "daemon/zero/step/votes.h"
#include "tests/unit/zero/node.h"

#define BALLOTS 4u

enum ballot_question { BALLOT_NONE, BALLOT_PREPARED, BALLOT_COMMITTED, BALLOT_RESUME };

struct ballot {
	struct zero_job *job; /* NULL: free */
	struct zi_post post;
	enum ballot_question asked;
	uint32_t counts[BALLOT_RESUME + 1];
	/* before it is asked */
	uint32_t held;                 /* bits: questions that wait for ballot_answer() */
	int errors[BALLOT_RESUME + 1]; /* what the others say */
	bool is_back;                  /* RESUME: the former commit stays */
};

static struct ballot ballots[BALLOTS];

static inline struct ballot *ballot_of(const struct zero_job *job)
{
	for (uint32_t i = 0; i < BALLOTS; i++)
		if (ballots[i].job == job)
			return &ballots[i];
	cr_assert(false, "a job that nobody gave votes is asked");
	return NULL;
}

static inline void ballot_answer(struct ballot *ballot)
{
	enum ballot_question asked = ballot->asked;
	int error = ballot->errors[asked];
	struct zero_job *job = ballot->job;
	struct zi_text text;

	zi_text_set(&text, "another node died");
	ballot->asked = BALLOT_NONE;
	cr_assert_neq(asked, BALLOT_NONE);
	if (asked == BALLOT_PREPARED)
		commit_prepared(job, error, &text);
	else if (asked == BALLOT_COMMITTED)
		step_committed(job, error, &text);
	else if (error)
		materialize_settled(job, error, &text);
	else if (former_is_open(job))
		former_settle(job, ballot->is_back);
	else
		materialize_settled(job, 0, NULL);
}

static inline void ballot_posted(struct zi_post *post)
{
	ballot_answer(container_of(post, struct ballot, post));
}

static inline void ballot_ask(struct zero_job *job, enum ballot_question question)
{
	struct ballot *ballot = ballot_of(job);

	cr_assert_eq(ballot->asked, BALLOT_NONE, "one question at a time");
	ballot->asked = question;
	ballot->counts[question]++;
	if (!(ballot->held >> question & 1))
		zi_loop_post(job->zero->options.loop, &ballot->post, ballot_posted);
}

static inline void ballot_prepared(struct zero_job *job)
{
	ballot_ask(job, BALLOT_PREPARED);
}

static inline void ballot_committed(struct zero_job *job)
{
	ballot_ask(job, BALLOT_COMMITTED);
}

static inline void ballot_resume(struct zero_job *job)
{
	ballot_ask(job, BALLOT_RESUME);
}

static const struct zero_votes ballot_votes = { ballot_prepared, ballot_committed, ballot_resume };

/* From now on its commits ask. Return: its ballot, to which nobody says anything but yes. */
static inline struct ballot *ballot_give(struct zero_job *job)
{
	struct ballot *ballot = ballots;

	cr_assert_not_null(job);
	while (ballot->job && ballot->job != job)
		ballot++;
	cr_assert_lt(ballot - ballots, BALLOTS);
	*ballot = (struct ballot){ .job = job };
	job->votes = &ballot_votes;
	return ballot;
}

/* Jobs are gone with their node. */
static inline void ballots_forget(void)
{
	memset(ballots, 0, sizeof(ballots));
}

static inline void ballot_await(struct node *node, const struct ballot *ballot,
                                enum ballot_question question)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);

	while (ballot->asked != question) {
		node_rest(node);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "nobody is asked");
	}
}
