/* SPDX-License-Identifier: Apache-2.0 */
/* Flushes, a thread per store (flush.h). Floor 4; shard thread, but for flusher_main(). */
#include "daemon/tier/flush.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/thread.h"

struct tier_flusher {
	/* `lock` guards the queue and is_stopping, for a few instructions and with nothing called
	 * under it: a leaf in rank. One request per step of a job. */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct tier_flush_part *queue; /* newest first: all are served at once */
	bool is_stopping;
	struct zi_thread thread;
};

/* All that wait; sleeps until there is one. Return: NULL when there is none and the end has come.
 */
static struct tier_flush_part *take_all(struct tier_flusher *flusher)
{
	struct tier_flush_part *parts;

	(void)pthread_mutex_lock(&flusher->lock); /* Fails only by misuse, here and below. */
	while (!flusher->queue && !flusher->is_stopping)
		(void)pthread_cond_wait(&flusher->wake, &flusher->lock);
	parts = flusher->queue;
	flusher->queue = NULL;
	(void)pthread_mutex_unlock(&flusher->lock);
	return parts;
}

/* Context: shard thread. */
static void part_done(struct zi_post *post)
{
	struct tier_flush_part *part = container_of(post, struct tier_flush_part, post);
	struct tier_flush *flush = part->flush;
	struct tier_member *member = &flush->tier->members[part - flush->parts];

	/* What it did not bring to its medium, it may claim to have brought there the next time. */
	if (part->result)
		tier_member_fail(member, part->result, "flushing");
	if (part->result && !flush->result) {
		flush->result = part->result;
		flush->failed = member;
	}
	if (--flush->left_count == 0)
		flush->done(flush);
}

static int flusher_main(void *arg)
{
	struct tier_flusher *flusher = arg;
	struct tier_flush_part *parts;

	while ((parts = take_all(flusher))) {
		int r = nvme_store_flush(parts->store); /* Of all of them. */

		while (parts) {
			struct tier_flush_part *part = parts;

			parts = part->next;
			part->result = r;
			/* From here on it is its owner's. */
			zi_loop_post(part->flush->loop, &part->post, part_done);
		}
	}
	return 0;
}

/* See flush.h. */
int tier_flusher_new(const char *name, struct tier_flusher **ret_flusher)
{
	struct tier_flusher *flusher = calloc(1, sizeof(*flusher));
	char thread_name[16];
	int r;

	if (!flusher)
		return err_origin(-ENOMEM);
	(void)pthread_mutex_init(&flusher->lock, NULL); /* glibc's never fail like this. */
	(void)pthread_cond_init(&flusher->wake, NULL);
	(void)snprintf(thread_name, sizeof(thread_name), "flush-%.9s", name); /* Cut is as good. */
	r = zi_thread_start(&flusher->thread, thread_name, flusher_main, flusher);
	if (r) {
		(void)tier_flusher_free(flusher);
		return err_trace(r);
	}
	*ret_flusher = flusher;
	return 0;
}

/* See flush.h. */
struct tier_flusher *tier_flusher_free(struct tier_flusher *flusher)
{
	if (!flusher)
		return NULL;
	(void)pthread_mutex_lock(&flusher->lock);
	assert(!flusher->queue);
	flusher->is_stopping = true;
	(void)pthread_cond_signal(&flusher->wake);
	(void)pthread_mutex_unlock(&flusher->lock);
	(void)zi_thread_join(&flusher->thread); /* Its entry returns 0. */
	(void)pthread_cond_destroy(&flusher->wake);
	(void)pthread_mutex_destroy(&flusher->lock);
	free(flusher);
	return NULL;
}

static void ask(struct tier_flusher *flusher, struct tier_flush_part *part)
{
	(void)pthread_mutex_lock(&flusher->lock);
	assert(!flusher->is_stopping);
	part->next = flusher->queue;
	flusher->queue = part;
	(void)pthread_cond_signal(&flusher->wake);
	(void)pthread_mutex_unlock(&flusher->lock);
}

/**
 * tier_flush_submit() - bring what was written to some members to their media
 * @flush: tier, members, loop and done are filled
 *
 * Context: shard thread; `done` runs there.
 */
void tier_flush_submit(struct tier_flush *flush)
{
	assert(flush->members);
	assert(flush->done);
	flush->result = 0;
	flush->failed = NULL;
	/* Before the first of them can be done. */
	flush->left_count = (uint32_t)__builtin_popcount(flush->members);
	for (uint32_t i = 0; i < flush->tier->member_count; i++) {
		const struct tier_member *member = &flush->tier->members[i];
		struct tier_flush_part *part = &flush->parts[i];

		if (!(flush->members >> i & 1))
			continue;
		assert(member->flusher);
		*part = (struct tier_flush_part){ .flush = flush, .store = member->store };
		ask(member->flusher, part);
	}
}
