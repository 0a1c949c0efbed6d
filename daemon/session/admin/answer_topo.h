/* SPDX-License-Identifier: Apache-2.0 */
/* The answer to `topo`. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include <jansson.h>

struct sess_facts;
struct sess_shard;

/* NUMA nodes, GPUs, disks and tiers, and the node of each. */
json_t *sess_answer_topo(struct sess_shard *shard, const struct sess_facts *facts);
