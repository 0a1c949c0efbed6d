/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of an incarnation: their memory, and their end; see collectives.h. Floor 5, shard
 * thread. */
#include "daemon/zero/collectives/collectives.h"

#include <string.h>

#include "common/base/err.h"
#include "common/wire/far.h"
#include "daemon/coll/coll.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/collectives/far.h"
#include "daemon/zero/job/job.h"

/* See collectives.h. */
bool collectives_is_building(const struct zero_job *job)
{
	const struct zero_collectives *collectives = &job->collectives;

	/* All may have come, and wait until what a former incarnation asked for is made. */
	return collectives->is_building && (collectives->generation == job->group.generation ||
	                                    gather_is_full(job, ZERO_GATHER_COLL_OPEN));
}

/* See collectives.h. */
bool collectives_is_on(const struct zero_job *job)
{
	return job->collectives.coll || collectives_is_building(job);
}

/* See collectives.h. */
void collectives_rank_gone(struct zero_rank *rank, const struct zi_text *text)
{
	struct coll *coll = rank->job->collectives.coll;

	named_rank_gone(rank, text);
	/* Boards of groups that end by this are kept for those that come. */
	if (coll)
		(void)coll_rank_gone(coll, rank->number, text);
}

/* See collectives.h. */
void collectives_break(struct zero_job *job, int error, const struct zi_text *text)
{
	if (job->collectives.coll)
		coll_break_all(job->collectives.coll, error, text);
}

/* See collectives.h. */
void collectives_drop(struct zero_job *job)
{
	struct zero_collectives *collectives = &job->collectives;

	/* The device thread has the arenas: built() comes back to this. */
	if (collectives->is_building && !collectives->is_joining)
		return;
	collectives->is_building = collectives->is_joining = false;
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++)
		collectives->fars[i] = far_free(collectives->fars[i]);
	collectives->making = far_free(collectives->making);
	collectives->coll = coll_free(collectives->coll);
	collectives->verdicts = tier_segment_unref(collectives->verdicts);
	collectives->arenas = tier_segment_unref(collectives->arenas);
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++)
		collectives->boards[i] = tier_segment_unref(collectives->boards[i]);
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++)
		collectives->slabs[i] = tier_segment_unref(collectives->slabs[i]);
	if (!job->across)
		meeting_over(job);
	collectives->group_count = 0;
	collectives->named = (struct named){ 0 };
	collectives->arena_bytes = 0;
}

/* See collectives.h. */
uint64_t collectives_held_bytes(const struct zero_job *job)
{
	const struct zero_collectives *collectives = &job->collectives;
	uint64_t bytes = 0;

	if (collectives->verdicts)
		bytes += collectives->verdicts->bytes;
	if (collectives->arenas)
		bytes += collectives->arenas->bytes;
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++)
		if (collectives->boards[i])
			bytes += collectives->boards[i]->bytes;
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++)
		if (collectives->slabs[i])
			bytes += collectives->slabs[i]->bytes;
	return bytes;
}

/* See collectives.h. Return: 0; -ENOSPC, -EDQUOT with figures; -ENOMEM. */
int collectives_slab(struct zero_job *job, uint32_t group, struct zi_text *text)
{
	struct tier_segment **slab = &job->collectives.slabs[group];

	if (*slab) {
		const struct zi_region *region = &(*slab)->region;
		uint64_t mail_bytes = zi_far_mail_bytes(region->bytes);

		/* What counts on from call to call; slots are written before they are read. */
		memset(region->base, 0, ZI_FAR_WORKER_BYTES);
		memset((char *)region->base + region->bytes - mail_bytes, 0, mail_bytes);
		return 0;
	}
	return err_trace(
		tier_segment_new(job->cpu_tier, &job->account->account, "zinf-slab",
	                         group == ZI_GROUP_WORLD ? ZI_FAR_SLAB_BYTES : ZI_FAR_GROUP_BYTES,
	                         TIER_PAGES_SMALL, text, slab));
}

/* See collectives.h. Return: 0; -ENOSPC, -EDQUOT with figures; -ENOMEM. */
int collectives_board(struct zero_job *job, uint32_t group, struct zi_text *text)
{
	struct tier_segment **board = &job->collectives.boards[group];
	/* Where it spans nodes somebody is elsewhere, and the worker has two parts. */
	uint32_t parts = job->group.world_size + job_spans_nodes(job);

	if (*board) {
		memset((*board)->region.base, 0, (*board)->region.bytes);
		return 0;
	}
	return err_trace(tier_segment_new(job->cpu_tier, &job->account->account, "zinf-board",
	                                  zi_board_bytes(parts), TIER_PAGES_SMALL, text, board));
}
