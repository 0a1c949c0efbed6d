/* SPDX-License-Identifier: Apache-2.0 */
/* Flushes of a store, on a thread of its own. Floor 4; shard thread, but for flusher_main(). */
#include "daemon/tier/flusher.h"

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
	struct tier_flusher_wish *queue; /* newest first: all are served at once */
	bool is_stopping;
	struct nvme_store *store;
	struct zi_thread thread;
};

/* All that wait; sleeps until there is one. Return: NULL when there is none and the end has come.
 */
static struct tier_flusher_wish *take_all(struct tier_flusher *flusher)
{
	struct tier_flusher_wish *wishes;

	(void)pthread_mutex_lock(&flusher->lock); /* Fails only by misuse, here and below. */
	while (!flusher->queue && !flusher->is_stopping)
		(void)pthread_cond_wait(&flusher->wake, &flusher->lock);
	wishes = flusher->queue;
	flusher->queue = NULL;
	(void)pthread_mutex_unlock(&flusher->lock);
	return wishes;
}

static int flusher_main(void *arg)
{
	struct tier_flusher *flusher = arg;
	struct tier_flusher_wish *wishes;

	while ((wishes = take_all(flusher))) {
		int r = nvme_store_flush(flusher->store); /* Of all of them. */

		while (wishes) {
			struct tier_flusher_wish *wish = wishes;

			wishes = wish->next;
			wish->result = r;
			/* From here on it is its owner's. */
			zi_loop_post(wish->loop, &wish->post, wish->done);
		}
	}
	return 0;
}

/* See flusher.h. */
int tier_flusher_new(const char *name, struct nvme_store *store, struct tier_flusher **ret_flusher)
{
	struct tier_flusher *flusher = calloc(1, sizeof(*flusher));
	char thread_name[16];
	int r;

	if (!flusher)
		return err_origin(-ENOMEM);
	flusher->store = store;
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

/* See flusher.h. */
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

/* See flusher.h. */
void tier_flusher_ask(struct tier_flusher *flusher, struct tier_flusher_wish *wish)
{
	(void)pthread_mutex_lock(&flusher->lock);
	assert(!flusher->is_stopping);
	wish->next = flusher->queue;
	flusher->queue = wish;
	(void)pthread_cond_signal(&flusher->wake);
	(void)pthread_mutex_unlock(&flusher->lock);
}
