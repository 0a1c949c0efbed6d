/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a job before they know of each other: each tells through the store which ranks it
 * has, until every rank is somewhere. Floor 3, of zinf-net. Owner: the operations' thread.
 *
 * Key of the store: rank/R, by the node that has rank R; the first to set it has it.
 */
#pragma once

#include "daemon/worker/net.h"

struct meet_result {
	uint32_t node_count, node;   /* this one */
	uint8_t nodes[ZI_WORLD_MAX]; /* (world_size,) in the order of nodes' first ranks */
};

/**
 * meet_all() - who is where
 * @meet: this node's ranks
 *
 * A store of the job's former run is waited out. Return: 0; -ETIMEDOUT ranks did not come, or
 * nobody serves the store; -EEXIST another node has a rank of this one's; all with @text.
 */
int meet_all(const struct net_meet *meet, struct zi_text *text, struct meet_result *ret_result);
