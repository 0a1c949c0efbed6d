/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a job before they know of each other: each tells through the store which ranks it
 * has, until every rank is somewhere. Floor 3, of zinf-net. Owner: the operations' thread.
 *
 * Keys of the store: rank/R, by the node that has rank R; the first to set it has it, for as long
 * as it lives. met (store.h), by all when everybody is there.
 */
#pragma once

#include "daemon/worker/net.h"
#include "daemon/worker/store_client.h"

struct meet_result {
	uint32_t node_count, node;   /* this one */
	uint32_t run;                /* the store's */
	uint8_t nodes[ZI_WORLD_MAX]; /* (world_size,) in the order of nodes' first ranks */
};

/**
 * meet_all() - who is where
 * @meet: this node's ranks
 * @ret_client: holds them, until store_client_close()
 *
 * A store of the job's former run is waited out. Return: 0; -ETIMEDOUT ranks did not come, or
 * nobody serves the store; -EEXIST another node has a rank of this one's, or the store is another
 * job's for some seconds; all with @text.
 */
int meet_all(const struct net_meet *meet, struct zi_text *text, struct meet_result *ret_result,
             struct store_client **ret_client);
