/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue behind zi_loop_post(): many producers, one consumer, intrusive, without locks. Floor 0,
 * part of the loop. zi_mailbox_push(): any thread; all else: the loop's owner.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

struct zi_post;

struct zi_mailbox {
	_Atomic(struct zi_post *) posted; /* writer: any thread; the newest first */
	struct zi_post *backlog;          /* writer: owner; the oldest first */
	struct zi_post **backlog_end;
};

void zi_mailbox_init(struct zi_mailbox *mailbox);
void zi_mailbox_push(struct zi_mailbox *mailbox, struct zi_post *post);
/* Moves what has been pushed until now behind what zi_mailbox_pop() gives out. */
void zi_mailbox_collect(struct zi_mailbox *mailbox);
/* The oldest post that was collected, NULL when there is none. */
struct zi_post *zi_mailbox_pop(struct zi_mailbox *mailbox);
/* Whether a collected post waits. */
bool zi_mailbox_has_backlog(const struct zi_mailbox *mailbox);
/* Whether a push has not been collected; relaxed: see the proof in loop.c. */
bool zi_mailbox_has_news(const struct zi_mailbox *mailbox);
