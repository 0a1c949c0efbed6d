/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of the worker of a group that spans nodes; see far_private.h. Floor 5, shard
 * thread. */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/collectives/far_private.h"
#include "daemon/zero/job/job.h"

static uint64_t left_ms(const struct far *far)
{
	uint64_t now_ns = zi_clock_now_ns();

	return far->deadline_ns > now_ns ? (far->deadline_ns - now_ns) / ZI_NS_PER_MS + 1 : 1;
}

/* Documented in far_private.h, as are the others. */
int far_ask_meet(struct far *far, int error, const struct zi_text *text)
{
	const struct zero_collectives *collectives = &far->job->collectives;
	const struct zero_meeting *meeting = &far->job->meeting;
	struct net_meet message = {
		.ranks = far->ranks ? far->ranks : meeting_here_mask(far->job),
		.world_size = far->job->group.world_size,
		.opening = 1 + meeting->failed_count,
		.failed = meeting->failed_count + (error != 0),
		.error = error ? error : meeting->failed_error,
		.timeout_ms = left_ms(far),
		.arena_bytes = collectives->arena_bytes,
		.asked_bytes = collectives->asked_bytes,
	};
	int r;

	message.text = error ? *text : meeting->failed_text;
	meeting_way(far->job, &message.way);
	r = net_worker_meet(far->worker, &far->request, &message);
	explicit_bzero(message.way.token, sizeof(message.way.token));
	return err_trace(r);
}

int far_ask_agree(struct far *far, int error, const struct zi_text *text)
{
	const struct zero_meeting *meeting = &far->job->meeting;
	struct net_agree message = {
		.node = meeting->node,
		.node_count = meeting->node_count,
		.epoch = far->epoch,
		.members = far->members,
		.world_size = far->job->group.world_size,
		.error = error,
		.timeout_ms = left_ms(far),
	};
	int r;

	meeting_way(far->job, &message.way);
	memcpy(message.nodes, meeting->nodes, sizeof(message.nodes));
	if (error)
		message.text = *text;
	r = net_worker_agree(far->worker, &far->request, &message);
	explicit_bzero(message.way.token, sizeof(message.way.token));
	return err_trace(r);
}

/* Nodes of a group are those of the job that have members, in the same order. */
static uint32_t node_in_group(const struct far *far, uint32_t node)
{
	uint64_t nodes = meeting_node_mask(far->job, far->members);

	return (uint32_t)__builtin_popcountll(nodes & ((1ull << node) - 1));
}

int far_ask_join(struct far *far)
{
	uint64_t nodes = meeting_node_mask(far->job, far->members);
	struct net_join message = {
		.node = node_in_group(far, far->job->meeting.node),
		.node_count = (uint32_t)__builtin_popcountll(nodes),
		.epoch = far->epoch,
		.timeout_ms = left_ms(far),
		.flags = NET_JOIN_AS_CLIENT, /* It is served since they met. */
	};
	int r;

	far->node = message.node;
	if (!(nodes & 1))
		message.flags |= NET_JOIN_STORE_ELSEWHERE;
	meeting_way(far->job, &message.way);
	r = net_worker_join(far->worker, &far->request, &message);
	explicit_bzero(message.way.token, sizeof(message.way.token));
	return err_trace(r);
}

int far_ask_map(struct far *far)
{
	const struct zero_collectives *collectives = &far->job->collectives;
	struct tier_segment *segments[] = {
		[NET_SLAB_DATA] = collectives->slabs[far->group],
		[NET_SLAB_BOARD] = collectives->boards[far->group],
		[NET_SLAB_VERDICTS] = collectives->verdicts,
		[NET_SLAB_ARENAS] = collectives->arenas,
	};
	const struct zi_region *region = &segments[far->slab]->region;

	assert(!far->mapped[far->slab]);
	far->mapped[far->slab] = tier_segment_ref(segments[far->slab]);
	return err_trace(
		net_worker_map(far->worker, &far->request, far->slab, region->fd, region->bytes));
}

int far_ask_follow(struct far *far)
{
	struct net_follow message = { .group = far->group };

	for (uint64_t left = far->members; left; left &= left - 1) {
		uint32_t rank = (uint32_t)__builtin_ctzll(left);

		message.ranks[message.member_count] = (uint8_t)rank;
		message.nodes[message.member_count++] =
			(uint8_t)node_in_group(far, far->job->meeting.nodes[rank]);
	}
	return err_trace(net_worker_follow(far->worker, &far->request, &message));
}
