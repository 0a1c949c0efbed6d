/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that every rank makes; see gather.h. Floor 5, shard thread. */
#include "daemon/zero/job/gather.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/zero/grad/stall.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/step/step.h"

/* Each rank's n-th call is the others' n-th, also where it failed. */
static bool is_counted(enum zero_gather gather)
{
	return gather == ZERO_GATHER_COLL_OPEN || gather == ZERO_GATHER_COLL_GROUP;
}

/* Return: true when @op's rank comes to what has failed without it; the op is completed with that.
 */
static bool was_missed(struct zero_op *op, enum zero_gather gather)
{
	struct zero_missed *missed = &op->rank->job->group.missed[gather];

	if (!missed->counts[op->rank->number])
		return false;
	missed->counts[op->rank->number]--;
	op->text = missed->text;
	op_complete(op, missed->error);
	return true;
}

/* Documented in the header, as are the others. */
bool gather_join(struct zero_op *op, enum zero_gather gather)
{
	struct zero_rank *rank = op->rank;
	struct zero_job *job = rank->job;
	uint64_t bit = 1ull << rank->number;

	if (job->group.gather_masks[gather] & bit) {
		op_fail(op, -EALREADY, "%s was called before and has not ended yet",
		        op_name(op->opcode));
		return false;
	}
	if (was_missed(op, gather))
		return false;
	job->group.gather_masks[gather] |= bit;
	rank->gathered[gather] = op;
	op_wait(op);
	if (gather_is_full(job, gather))
		return true;
	stall_look(job); /* It stands still now. */
	return false;
}

int gather_refused(const struct zero_op *op, struct zi_text *text)
{
	if (!op->refusal)
		return 0;
	zi_text_set(text, "rank %u (pid %d) makes no call of %s: %s", op->rank->number,
	            op->rank->pid, op_name(op->opcode), op->reason);
	zi_utf8_clean(text->chars); /* A rank's word. It goes to logs and terminals. */
	return err_origin(op->refusal);
}

/* For those who have not come. Ranks of other nodes never do, here. */
static void keep(struct zero_job *job, enum zero_gather gather, int error,
                 const struct zi_text *text)
{
	struct zero_missed *missed = &job->group.missed[gather];
	uint64_t come_mask = job->group.gather_masks[gather];

	if (!come_mask)
		return; /* Nobody waits any more: the group broke. */
	for (uint32_t i = 0; i < job->group.world_size; i++)
		missed->counts[i] += !(come_mask >> i & 1);
	missed->error = error;
	missed->text = *text;
}

void gather_complete(struct zero_job *job, enum zero_gather gather, int result,
                     const struct zi_text *text)
{
	assert(!result || text || !is_counted(gather));
	if (result && is_counted(gather))
		keep(job, gather, result, text);
	if (result && gather == ZERO_GATHER_STEP)
		step_fail(job, job->group.gather_masks[gather], result, text);
	job->group.gather_masks[gather] = 0;
	job->group.agreed &= ~(1u << gather);
	job->group.held &= ~(1u << gather);
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		struct zero_rank *rank = job->group.ranks[i];
		struct zero_op *op = rank ? rank->gathered[gather] : NULL;

		if (!op)
			continue;
		if (result && text)
			op->text = *text;
		op_complete(op, result);
	}
}

void gather_forget_rank(struct zero_job *job, uint32_t rank)
{
	for (uint32_t i = 0; i < _ZERO_GATHER_COUNT; i++)
		job->group.missed[i].counts[rank] = 0;
}

void gather_forget(struct zero_job *job)
{
	memset(job->group.gather_masks, 0, sizeof(job->group.gather_masks));
	job->group.agreed = 0;
	job->group.held = 0;
	memset(job->group.missed, 0, sizeof(job->group.missed));
	job->group.discarded_mask = 0;
}
