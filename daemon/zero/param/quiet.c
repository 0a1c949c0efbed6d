/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing is brought while parameters change; see quiet.h. Floor 5, shard thread. */
#include "daemon/zero/param/quiet.h"

#include <string.h>

#include "common/base/assert.h"
#include "daemon/zero/across/agree/agree.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"

/* Neither units for the pool nor copies for ranks that write. */
static bool is_idle(const struct zero_job *job)
{
	for_each_rank_here(job, i) {
		const struct zero_rank *rank = job->group.ranks[i];

		if (rank && rank->write && rank->write->is_busy)
			return false;
	}
	return fetches_are_idle(&job->residency->fetches);
}

/* Documented in the header, as are the others. */
void quiet_agree(struct zero_job *job, enum zero_gather gather, const uint32_t words[2],
                 gather_go_fn go_on)
{
	if (!job->across || !job->residency) {
		agree_all(job, gather, words, go_on);
		return;
	}
	assert(!job->residency->quiet.is_waiting);
	job->residency->quiet =
		(struct quiet){ .is_waiting = true, .gather = gather, .go_on = go_on };
	if (words)
		memcpy(job->residency->quiet.words, words, sizeof(job->residency->quiet.words));
	quiet_look(job);
}

void quiet_look(struct zero_job *job)
{
	struct quiet *quiet = job->residency ? &job->residency->quiet : NULL;

	if (!quiet || !quiet->is_waiting || !is_idle(job))
		return;
	quiet->is_waiting = false;
	/* Its ranks may have gone meanwhile. */
	if (job->across && job->group.phase == ZERO_GROUP_LIVE &&
	    gather_is_full(job, quiet->gather))
		agree_all(job, quiet->gather, quiet->words, quiet->go_on);
}

bool quiet_expired(const struct zero_op *op, enum zero_gather gather)
{
	struct zero_job *job = op->rank->job;
	struct zi_text text, why = { "parameters are still being brought" };

	if (!job->residency || !job->residency->quiet.is_waiting ||
	    job->residency->quiet.gather != gather)
		return false;
	(void)fetches_say_late(job, UINT32_MAX, &why);
	zi_text_set(&text, "%s timed out: %s", op_name(op->opcode), why.chars);
	group_break(job, -ETIMEDOUT, UINT32_MAX, &text);
	return true;
}

bool quiet_is_on(const struct zero_job *job)
{
	if (!job->across)
		return false;
	return gather_is_full(job, ZERO_GATHER_WRITE_END) ||
	       (gather_is_full(job, ZERO_GATHER_STEP) && job->step.phase == ZERO_STEP_STEPPING);
}
