/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flow: whose requests they are, its weight, and its queue at each store. Floor 2, owner thread.
 * It belongs to who made it, and lies in lists of the engine while something of it is queued, or
 * was until a moment ago. Who is served next is schedule.c's affair.
 */
#include <errno.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "nvme/engine.h"

/**
 * nvme_flow_new() - a flow that wants nothing yet
 * @weight: 1 to NVME_FLOW_WEIGHT_MAX; 0: the default
 * @ret_flow: the caller's; for one engine, which outlives it
 *
 * Return: 0; -EINVAL the weight; -ENOMEM.
 */
int nvme_flow_new(uint32_t weight, struct nvme_flow **ret_flow)
{
	_cleanup_(nvme_flow_freep) struct nvme_flow *flow = calloc(1, sizeof(*flow));
	int r;

	if (!flow)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < 2 * NVME_PORTS_COUNT; i++) {
		struct nvme_stream *stream = &flow->streams[i / 2][i % 2];

		zi_list_init(&stream->streams_link);
		zi_list_init(&stream->queue);
		stream->flow = flow;
	}
	r = nvme_flow_weigh(flow, weight);
	if (r)
		return err_trace(r);
	*ret_flow = zi_steal(flow);
	return 0;
}

/* NULL is fine. What is in flight of it may still be. Owner thread of its engine. */
struct nvme_flow *nvme_flow_free(struct nvme_flow *flow)
{
	if (!flow)
		return NULL;
	for (uint32_t i = 0; i < 2 * NVME_PORTS_COUNT; i++) {
		struct nvme_stream *stream = &flow->streams[i / 2][i % 2];

		assert(zi_list_is_empty(&stream->queue));
		zi_list_remove(&stream->streams_link);
	}
	free(flow);
	return NULL;
}

/* Return: 0; -EINVAL. */
int nvme_flow_weigh(struct nvme_flow *flow, uint32_t weight)
{
	if (weight > NVME_FLOW_WEIGHT_MAX)
		return err_origin(-EINVAL);
	flow->weight = weight ? weight : NVME_FLOW_WEIGHT_DEFAULT;
	return 0;
}

uint32_t nvme_flow_weight(const struct nvme_flow *flow)
{
	return flow->weight;
}

/* Return: bytes of blocks that went out; repeated ones once. */
uint64_t nvme_flow_bytes(const struct nvme_flow *flow, enum nvme_direction direction)
{
	return flow->bytes[direction];
}
