/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit thread: requests in, one after the other, in order of submission; completions out, by
 * a post to the loop of whoever submitted. Floor 2. A thread of its own because a commit syncs, and
 * a sync takes as long as the disk likes.
 */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/catalog/catalog_private.h"

/* Context: the request's loop. */
static void request_done(struct zi_post *post)
{
	struct catalog_request *request = container_of(post, struct catalog_request, post);

	request->done(request);
}

/* Sleeps until there is a request. Return: NULL when there is none and the catalog closes. */
static struct catalog_request *take(struct catalog *catalog)
{
	struct catalog_request *request;

	(void)pthread_mutex_lock(&catalog->lock); /* Fails only by misuse, here and below. */
	while (!catalog->queue && !catalog->is_stopping)
		(void)pthread_cond_wait(&catalog->wake, &catalog->lock);
	request = catalog->queue;
	if (request) {
		catalog->queue = request->next;
		if (!catalog->queue)
			catalog->queue_end = &catalog->queue;
		request->next = NULL;
	}
	(void)pthread_mutex_unlock(&catalog->lock);
	return request;
}

static int commit_main(void *arg)
{
	struct catalog *catalog = arg;
	struct catalog_request *request;

	while ((request = take(catalog))) {
		request->started_ns = zi_clock_now_ns();
		request->result = catalog_commit(catalog, request);
		request->is_uncertain = catalog->broken != 0;
		request->finished_ns = zi_clock_now_ns();
		if (request->result && !request->text.chars[0])
			zi_text_set(&request->text, "%s: %s", catalog->path,
			            strerror(-request->result));
		/* From here on the request is its owner's, who may free it at once. */
		zi_loop_post(request->loop, &request->post, request_done);
	}
	return 0;
}

/* Ends the start-up: the connection is the commit thread's from here on. Return: 0, -EAGAIN. */
int catalog_start(struct catalog *catalog)
{
	return err_trace(zi_thread_start(&catalog->thread, "commit", commit_main, catalog));
}

/*
 * Takes @request, which is its owner's again when `done` runs on @request->loop: exactly once, also
 * when the catalog is closed in between.
 * Context: any thread, after catalog_start(). The one mutex is held for a few instructions.
 */
void catalog_submit(struct catalog *catalog, struct catalog_request *request)
{
	assert(request->job);
	assert(request->done);
	assert(request->loop);
	request->next = NULL;
	request->result = 0;
	request->is_uncertain = false;
	request->text.chars[0] = '\0';
	request->started_ns = 0;
	request->finished_ns = 0;
	(void)pthread_mutex_lock(&catalog->lock);
	assert(catalog->thread.is_started);
	assert(!catalog->is_stopping);
	*catalog->queue_end = request;
	catalog->queue_end = &request->next;
	(void)pthread_cond_signal(&catalog->wake);
	(void)pthread_mutex_unlock(&catalog->lock);
}
