/* SPDX-License-Identifier: Apache-2.0 */
/* A call whose data are read in their members' processes; see read.h. Floor 2. */
#include "libclient/coll/node/read.h"

#include "libclient/coll/node/members.h"
#include "libclient/coll/node/move.h"

/*
 * Of two ways that were measured (docs/BENCHMARKS.md) staging is the faster one where one member
 * gives, or one takes: then both sides copy at the same time; and where memory is what takes the
 * time, unless ranks outnumber CPUs, as more than two may. Of an all_gather all members say the
 * same: what counts is equal on all.
 */
bool zi_node_is_read(const struct zi_node_group *group)
{
	const struct zi_node_run *run = &group->run;
	uint32_t members = group->meet.member_count;
	uint64_t bytes = run->source_bytes;

	switch (run->call.operation) {
	case ZI_COLL_ALL_GATHER:
		if (members > 2 || bytes > ZI_CMA_GATHER_MAX_BYTES)
			return false;
		break;
	case ZI_COLL_ALL_TO_ALL:
	case ZI_COLL_ALL_TO_ALLV:
		bytes /= members;
		if (members <= 2 && run->is_streaming)
			return false;
		break;
	default:
		return false;
	}
	return zi_cma_is_worth(group, run->call.source, bytes) && zi_cma_is_read_by_all(group);
}

void zi_node_read(struct zi_node_group *group)
{
	/* Comes with the step. */
	if (!zi_node_move_read(group))
		__atomic_store_n(&group->meet.members[group->meet.self].cma.unread, group->sequence,
		                 __ATOMIC_RELAXED);
}

bool zi_node_is_any_unread(const struct zi_node_group *group)
{
	for (uint32_t i = 0; i < group->meet.member_count; i++)
		if (zi_meet_load(&group->meet.members[i].cma.unread) == group->sequence)
			return true;
	return false;
}

void zi_node_get_to_know(struct zi_node_group *group)
{
	const struct zi_node_run *run = &group->run;

	for (uint32_t i = 0; i < group->meet.member_count; i++)
		if (i != group->meet.self && zi_node_has(run->outside_sources, i))
			(void)zi_cma_reads(group, i); /* It is posted. */
}
