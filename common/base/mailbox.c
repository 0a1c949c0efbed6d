/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mailbox. Floor 0. Posted work is a stack that any thread pushes on with one compare-and-swap,
 * and that the owner takes whole with one exchange and turns round: nobody pops a single node, so
 * there is no ABA. What was turned round waits in the backlog, which the owner alone touches, so
 * that it can be worked off in bounded batches.
 */
#include "common/base/mailbox.h"

#include <stddef.h>

#include "common/base/assert.h"
#include "common/base/loop.h"

/* Empty. */
void zi_mailbox_init(struct zi_mailbox *mailbox)
{
	atomic_init(&mailbox->posted, NULL);
	mailbox->backlog = NULL;
	mailbox->backlog_end = &mailbox->backlog;
}

/* Any thread. @post belongs to the mailbox until it is popped. */
void zi_mailbox_push(struct zi_mailbox *mailbox, struct zi_post *post)
{
	struct zi_post *head = atomic_load_explicit(&mailbox->posted, memory_order_relaxed);

	do {
		post->next = head;
		/* Release: pairs with the acquire in zi_mailbox_collect(). */
	} while (!atomic_compare_exchange_weak_explicit(
		&mailbox->posted, &head, post, memory_order_release, memory_order_relaxed));
}

/* Owner thread only. Posts of one thread keep their order. */
void zi_mailbox_collect(struct zi_mailbox *mailbox)
{
	struct zi_post *newest;
	struct zi_post *oldest = NULL;

	/* While there is nothing, a shared read leaves the cache line to the producers. */
	if (!zi_mailbox_has_news(mailbox))
		return;
	/* Acquire: pairs with the release in zi_mailbox_push(). */
	newest = atomic_exchange_explicit(&mailbox->posted, NULL, memory_order_acquire);
	assert(newest); /* We alone take. */
	for (struct zi_post *post = newest, *next; post; post = next) {
		next = post->next;
		post->next = oldest;
		oldest = post;
	}
	*mailbox->backlog_end = oldest;
	mailbox->backlog_end = &newest->next;
}

/* Owner thread only. Return: a post that is the caller's now, or NULL. */
struct zi_post *zi_mailbox_pop(struct zi_mailbox *mailbox)
{
	struct zi_post *post = mailbox->backlog;

	if (!post)
		return NULL;
	mailbox->backlog = post->next;
	if (!mailbox->backlog)
		mailbox->backlog_end = &mailbox->backlog;
	post->next = NULL;
	return post;
}

/* Owner thread only. */
bool zi_mailbox_has_backlog(const struct zi_mailbox *mailbox)
{
	return mailbox->backlog;
}

/* Owner thread only. */
bool zi_mailbox_has_news(const struct zi_mailbox *mailbox)
{
	return atomic_load_explicit(&mailbox->posted, memory_order_relaxed);
}
