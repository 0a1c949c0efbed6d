/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a daemon is without its sockets: catalog, one store, engine, zero, on a loop that the caller
 * turns. Started on a directory whatever is in it, with an answer instead of an assertion. One
 * thread, beside those of the parts.
 */
#pragma once

#include "daemon/zero/job/job.h"

struct node {
	struct zi_loop *loop;
	struct zi_post stop;
	struct catalog *catalog;
	struct nvme_store *store;
	struct nvme_engine *engine;
	struct zi_source engine_source;
	bool has_source, has_cpu, has_nvme;
	struct tier cpu, nvme;
	struct dev *device;
	struct tier_holders *holders;
	struct zero *zero;
};

/* Return: 0, or an errno with a sentence; then the node is stopped. */
int node_start(struct node *node, const char *directory, uint64_t store_bytes,
               struct zi_text *text);
/* One turn of the loop. */
void node_turn(struct node *node);
/* Until nothing is in flight. */
void node_settle(struct node *node);
/* Ranks have left. A half-started node is fine. */
void node_stop(struct node *node);
