/* SPDX-License-Identifier: Apache-2.0 */
/* See lanes.h. */
#include "tests/fuzz/lanes.h"

#include <errno.h>

#include "daemon/worker/net/gloo.h"
#include "daemon/worker/net/nodes.h"
#include "tests/fuzz/fuzz.h"

struct net_lane lanes[LANES_MAX];
static uint32_t lane_count;

void lanes_forget(void)
{
	lane_count = 0;
}

int net_lane_new(struct net_mesh *mesh, uint32_t peer, void *memory, uint64_t bytes,
                 struct net_lane **ret_lane)
{
	(void)mesh;
	if (!lanes_target.lane_max)
		return -ENOMEM;
	fuzz_check(lane_count < lanes_target.lane_max, "lanes");
	lanes[lane_count] = (struct net_lane){ .memory = memory, .bytes = bytes, .peer = peer };
	*ret_lane = &lanes[lane_count++];
	return 0;
}

struct net_lane *net_lane_free(struct net_lane *lane)
{
	(void)lane;
	return NULL;
}

int net_lane_send(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                  struct zi_text *text)
{
	(void)text;
	fuzz_check(bytes <= lane->bytes && offset_bytes <= lane->bytes - bytes, "sent");
	lanes_target.begin(lane, slot, offset_bytes, bytes, 1);
	return 0;
}

int net_lane_receive(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                     struct zi_text *text)
{
	(void)text;
	fuzz_check(bytes <= lane->bytes && offset_bytes <= lane->bytes - bytes, "received");
	lanes_target.begin(lane, slot, offset_bytes, bytes, 0);
	return 0;
}

int net_lane_wait_sent(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                       struct zi_text *text)
{
	return lanes_target.wait(lane, count, deadline_ns, 1, text);
}

int net_lane_wait_received(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                           struct zi_text *text)
{
	return lanes_target.wait(lane, count, deadline_ns, 0, text);
}

struct net_mesh *nodes_mesh(struct nodes *nodes)
{
	(void)nodes;
	return NULL;
}

const char *nodes_name(const struct nodes *nodes, uint32_t node)
{
	(void)nodes;
	fuzz_check(lanes_target.node_count && node < *lanes_target.node_count, "a node");
	return "node N (10.0.0.1, host)";
}
