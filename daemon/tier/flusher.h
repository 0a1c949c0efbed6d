/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of a store that brings its data down to its medium ("flush-NAME"): a device that does
 * not answer holds up nobody but who waits for it. What is asked while one flush runs is served by
 * one more, whoever asked. Floor 4; shard thread.
 */
#pragma once

#include "common/base/loop.h"
#include "nvme/nvme.h"

struct tier_flusher;

/* Embedded in its owner, which leaves it alone until `done` ran. */
struct tier_flusher_wish {
	struct zi_loop *loop;
	void (*done)(struct zi_post *post); /* of `post`, on `loop` */
	int result;                         /* 0 or -errno */
	/* private */
	struct zi_post post;
	struct tier_flusher_wish *next; /* in the flusher's queue */
};

/* @name: of its store, which outlives it. -ENOMEM, -EAGAIN. */
int tier_flusher_new(const char *name, struct nvme_store *store, struct tier_flusher **ret_flusher);
/* Nothing is asked of it any more; waits for its thread. NULL is fine. Return: NULL. */
struct tier_flusher *tier_flusher_free(struct tier_flusher *flusher);
/* What was written to the store before this call is on its medium when @wish is done. */
void tier_flusher_ask(struct tier_flusher *flusher, struct tier_flusher_wish *wish);
