/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why an epoch ended, in the store: the key EPOCH/abort, of which the first to set it has the last
 * word. Floor 3, of zinf-net. Any thread, each with a client of its own.
 *
 * Epoch 1 is that of all ranks. It may end before nodes have met: a node where collectives cannot
 * be opened says so there (meet.h), and with it the store is one in which nobody meets any more.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/worker/net.h"
#include "daemon/worker/store_client.h"

#define NODES_DONE_UNKNOWN UINT32_MAX

struct nodes_end {
	int32_t error;
	uint32_t culprit; /* NET_CULPRIT_NONE */
	/* Calls of a followed group that the node which says so has completed: what it sent for
	 * these is there or on its way. */
	uint32_t done;
	/* Before nodes had met: which opening failed, as net_meet counts them; else 0. */
	uint32_t opening;
	struct zi_text text;
};

/* What another node wrote as @key, checked: text and error are what they should be, and fit for a
 * terminal. Return: 0; -EPROTO it is no end. */
int nodes_end_take(const void *value, uint32_t bytes, const char *key, struct zi_text *text,
                   struct nodes_end *ret_end);
/* As @key has it. Return: 0, -ENOENT, -EPROTO, … */
int nodes_end_read(struct store_client *client, const char *key, uint64_t deadline_ns,
                   struct zi_text *text, struct nodes_end *ret_end);
/* The others are told, unless one stands: @ret_present. */
int nodes_end_tell(struct store_client *client, const char *key, const struct nodes_end *end,
                   uint64_t deadline_ns, struct zi_text *text, bool *ret_present);
