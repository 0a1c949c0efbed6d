/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a job before they know of each other: each tells through the store which ranks it
 * has, until every rank is somewhere, or until one of them says that it does not come. Floor 3, of
 * zinf-net. Owner: the operations' thread.
 *
 * Keys of the store: rank/R, by the node that has rank R; the first to set it has it, for as long
 * as it lives. met (store.h), by all when everybody is there. opening, by the node of rank 0: for
 * which of its openings the store is, and why the one before failed (end.h). 1/abort (end.h), by
 * who does not come, or could not: in a store where it stands nobody meets any more.
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
 * A store of the job's former run, or opening, is waited out. Return: 0; -ETIMEDOUT ranks did not
 * come, or nobody serves the store; -EEXIST another node has a rank of this one's, or the store is
 * another job's for some seconds; -EINVAL nodes differ; another node's error, which it told; all
 * with @text, and told.
 *
 * Where this opening has failed (@meet->failed) nobody is met: the others are told, those too who
 * come later, until the time is over. Return: always an error.
 */
int meet_all(const struct net_meet *meet, struct zi_text *text, struct meet_result *ret_result,
             struct store_client **ret_client);
