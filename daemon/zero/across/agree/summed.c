/* SPDX-License-Identifier: Apache-2.0 */
/* All nodes have their sums; see summed.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/summed.h"

#include <math.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/step/step.h"

/* What follows from what all have had in their hands. */
struct summed_vote {
	uint64_t step;
	double norm;
	uint32_t will_skip, reserved;
};

/* Documented in the header, as are the others. */
bool summed_is_due(const struct zero_job *job)
{
	return job->across && !job_is_nvme(job) && !job->step.is_settling;
}

static void summed(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct summed_vote first, other;
	struct zi_text why;
	uint32_t odd;

	(void)text; /* Its ranks have heard why. */
	if (error || !job->step.is_asked || job->step.phase != ZERO_STEP_STEPPING) {
		job_settle(job); /* It is in doubt: step_abort() has kept it. */
		return;
	}
	job->step.is_asked = false;
	odd = round_odd_one(round, across_node_count(job));
	if (odd < across_node_count(job)) {
		/* All nodes see that, and none makes it. */
		memcpy(&first, round->votes[0].data, sizeof(first));
		memcpy(&other, round->votes[odd].data, sizeof(other));
		zi_text_set(&why,
		            "step %llu has norm %.17g in %.60s, but norm %.17g (of step %llu) in "
		            "%.60s",
		            (unsigned long long)first.step, first.norm, across_name(job, 0).chars,
		            other.norm, (unsigned long long)other.step,
		            across_name(job, odd).chars);
		group_break(job, err_origin(-EPROTO), UINT32_MAX, &why);
	} else {
		step_update(job);
	}
	job_settle(job);
}

void summed_ask(struct zero_job *job)
{
	const struct zero_step *step = &job->step;
	struct summed_vote words;
	struct round_vote vote = { .data_bytes = sizeof(words) };

	assert(step->phase == ZERO_STEP_STEPPING);
	memset(&words, 0, sizeof(words)); /* All of it is sent. */
	words.step = step->stats.step;
	words.norm = isfinite(step->norm) ? step->norm : -1; /* Of several NaNs one. */
	words.will_skip = step->will_skip;
	memcpy(vote.data, &words, sizeof(words));
	job->step.is_asked = true;
	across_vote(job, ROUND_SUMMED, &vote, summed);
}

bool summed_say_late(const struct zero_job *job, struct zi_text *ret_text)
{
	const struct across *across = job->across;
	uint64_t number, silent;

	if (!across || !job->step.is_asked)
		return false;
	silent = rounds_silent(&across->rounds, &number);
	if (!silent)
		return false;
	zi_text_set(ret_text, "%.160s has not reported that its reduced gradients are complete",
	            across_name(job, (uint32_t)__builtin_ctzll(silent)).chars);
	return true;
}
