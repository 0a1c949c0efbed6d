/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Talking with the other nodes of a job for its daemon: entries go both ways, and what is pulled
 * moves straight between slabs; see daemon/worker/talk.h, and talk_link.h for what travels. Floor
 * 3, of zinf-net. Owner: the operations' thread, but for the inbox, which control fills.
 *
 * It never decides anything, and waits for one thing alone: that somebody rings. Deadlines are the
 * daemons'.
 */
#pragma once

#include "daemon/worker/net.h"
#include "daemon/worker/net/nodes.h"
#include "daemon/worker/net/talk_link.h"

/* Entries from the daemon, of each other node in their order. */
struct talk_inbox {
	uint32_t rung;  /* what the talking thread waits for: by control, and by links */
	uint64_t nodes; /* writer: control; bits: for whom there was something */
	struct {
		uint32_t put;   /* writer: control */
		uint32_t taken; /* writer: the talking thread */
		struct talk_entry entries[TALK_QUEUE];
	} peers[SUBTREE_NODES_MAX];
};

/* Control: Return: 0; -EPROTO there is no such place or kind, or no place is free: no daemon does
 * that. */
int talk_inbox_put(struct talk_inbox *inbox, const struct talk_entry *entries, uint32_t count);

struct talk_options {
	struct nodes *nodes;
	uint32_t node, node_count;
	struct talk_slab slabs[NET_SLABS_MAX]; /* those without memory are not there */
	struct talk_inbox *inbox;
	/* 1: the end; who stores it wakes who waits on it. */
	const uint32_t *stop;
	/* Something for the daemon; may wait until that takes it. */
	void (*tell)(void *arg, const struct net_talk_batch *batch);
	void *arg;
};

/* Until the end; nothing then writes to the slabs or reads them any more. @ret_suspect: the node
 * that it is about, or NET_CULPRIT_NONE. Return: always an error, with @text. */
int talk_run(const struct talk_options *options, struct zi_text *text, uint32_t *ret_suspect);
