/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend over pread() and pwrite() on a few threads: for places where io_uring is refused
 * (containers, io_uring_disabled). Floor 2. The functions are the owner thread's.
 *
 * One mutex guards the two queues between the owner and the workers; this is the fall-back, and a
 * block of a megabyte is a hundred times its cost. Nothing is called under it. Workers announce a
 * finished block on an eventfd.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/thread.h"
#include "nvme/backend.h"

/* What a disk needs to be busy with large blocks, and no more: each is a thread of the node. */
#define THREADS_COUNT_MAX 4u
/* Plain descriptors, then each registered file. */
#define THREADS_CREWS_MAX (1 + NVME_ENGINE_STORES_MAX)

/* Where a block is; changes under the mutex. */
enum threads_stage { THREADS_PREPARED, THREADS_QUEUED, THREADS_TAKEN };

/* The workers of one file: a disk that does not answer holds up all of them, and nobody else's. */
struct threads_crew {
	struct threads *threads;
	uint32_t workers_count; /* 0: never used */
	struct zi_thread workers[THREADS_COUNT_MAX];
	pthread_cond_t has_work;
	struct zi_list queued; /* guarded by the mutex */
};

struct threads {
	struct nvme_backend backend; /* first */
	struct zi_list prepared;     /* owner thread only */
	int event_fd;
	uint32_t wanted_count; /* of a crew */
	struct threads_crew crews[THREADS_CREWS_MAX];

	pthread_mutex_t mutex; /* guards what follows; a leaf: nothing else is locked under it */
	struct zi_list finished;
	bool is_stopping;
};

static struct threads *threads_of(struct nvme_backend *backend)
{
	return container_of(backend, struct threads, backend);
}

static int32_t threads_transfer(const struct nvme_block *block)
{
	ssize_t r;

	do {
		if (block->direction == NVME_READ)
			r = pread(block->fd, block->buffer, block->bytes,
			          (off_t)block->offset_bytes);
		else
			r = pwrite(block->fd, block->buffer, block->bytes,
			           (off_t)block->offset_bytes);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : (int32_t)r;
}

/* The entry of a worker: until stopped, which happens only when nothing is in flight. */
static int threads_work(void *arg)
{
	struct threads_crew *crew = arg;
	struct threads *threads = crew->threads;

	pthread_mutex_lock(&threads->mutex);
	while (!threads->is_stopping) {
		struct zi_list *link = zi_list_pop_front(&crew->queued);
		struct nvme_block *block;

		if (!link) {
			pthread_cond_wait(&crew->has_work, &threads->mutex);
			continue;
		}
		block = container_of(link, struct nvme_block, link);
		block->stage = THREADS_TAKEN;
		pthread_mutex_unlock(&threads->mutex);
		block->result = threads_transfer(block);
		pthread_mutex_lock(&threads->mutex);
		zi_list_push_back(&threads->finished, &block->link);
		(void)eventfd_write(threads->event_fd, 1); /* Fails only at 2^64 - 1. */
	}
	pthread_mutex_unlock(&threads->mutex);
	return 0;
}

/* Its workers were told to stop. */
static void crew_deinit(struct threads_crew *crew)
{
	assert(zi_list_is_empty(&crew->queued));
	for (uint32_t i = 0; i < crew->workers_count; i++)
		(void)zi_thread_join(&crew->workers[i]); /* threads_work() cannot fail. */
	pthread_cond_destroy(&crew->has_work);
}

/* Starts what there is not of the crew with this index. Return: 0; -EAGAIN. */
static int crew_start(struct threads *threads, uint32_t index)
{
	struct threads_crew *crew = &threads->crews[index];

	while (crew->workers_count < threads->wanted_count) {
		char name[16];
		int r;

		(void)snprintf(name, sizeof(name), "nvme-%u.%u", (uint8_t)index,
		               (uint8_t)crew->workers_count);
		r = zi_thread_start(&crew->workers[crew->workers_count], name, threads_work, crew);
		if (r)
			return err_trace(r);
		crew->workers_count++;
	}
	return 0;
}

static void threads_free(struct nvme_backend *backend)
{
	struct threads *threads = threads_of(backend);

	assert(zi_list_is_empty(&threads->prepared));
	assert(zi_list_is_empty(&threads->finished));
	pthread_mutex_lock(&threads->mutex);
	threads->is_stopping = true;
	for (uint32_t i = 0; i < THREADS_CREWS_MAX; i++)
		pthread_cond_broadcast(&threads->crews[i].has_work);
	pthread_mutex_unlock(&threads->mutex);
	for (uint32_t i = 0; i < THREADS_CREWS_MAX; i++)
		crew_deinit(&threads->crews[i]);
	pthread_mutex_destroy(&threads->mutex);
	threads->event_fd = zi_close(threads->event_fd);
	free(threads);
}

static int threads_new(const struct nvme_backend_options *options, struct zi_text *text,
                       struct nvme_backend **ret_backend)
{
	_cleanup_(nvme_backend_freep) struct nvme_backend *backend = NULL;
	struct threads *threads = calloc(1, sizeof(*threads));
	int r;

	if (!threads)
		return err_origin(-ENOMEM);
	threads->event_fd = -1;
	threads->backend.ops = &nvme_backend_threads;
	zi_list_init(&threads->prepared);
	zi_list_init(&threads->finished);
	threads->wanted_count = ZI_MIN(options->depth, THREADS_COUNT_MAX);
	pthread_mutex_init(&threads->mutex, NULL); /* Neither fails on Linux. */
	for (uint32_t i = 0; i < THREADS_CREWS_MAX; i++) {
		threads->crews[i].threads = threads;
		zi_list_init(&threads->crews[i].queued);
		pthread_cond_init(&threads->crews[i].has_work, NULL);
	}
	backend = &threads->backend;
	threads->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (threads->event_fd < 0)
		return err_origin(zi_text_error(text, -errno, "no eventfd: %s", strerror(errno)));
	r = crew_start(threads, 0);
	if (r)
		return err_trace(
			zi_text_error(text, r, "I/O threads cannot start: %s", strerror(-r)));
	*ret_backend = zi_steal(backend);
	return 0;
}

static const char *threads_name(const struct nvme_backend *backend)
{
	(void)backend;
	return "threads";
}

static int threads_fd(const struct nvme_backend *backend)
{
	return container_of((struct nvme_backend *)backend, struct threads, backend)->event_fd;
}

static void threads_prepare(struct nvme_backend *backend, struct nvme_block *block)
{
	block->stage = THREADS_PREPARED;
	zi_list_push_back(&threads_of(backend)->prepared, &block->link);
}

/* Of a file that has no slot, or whose crew did not start: the first. */
static struct threads_crew *threads_crew_of(struct threads *threads, const struct nvme_block *block)
{
	return &threads->crews[block->file_slot == NVME_SLOT_NONE ? 0 : block->file_slot + 1];
}

/* A file gets workers of its own, before there is work. They stay when it is gone. */
static int threads_register_file(struct nvme_backend *backend, uint32_t slot, int fd)
{
	assert(slot < NVME_ENGINE_STORES_MAX);
	return fd < 0 ? 0 : err_trace(crew_start(threads_of(backend), slot + 1));
}

static void threads_submit(struct nvme_backend *backend)
{
	struct threads *threads = threads_of(backend);
	struct zi_list *link;

	if (zi_list_is_empty(&threads->prepared))
		return;
	pthread_mutex_lock(&threads->mutex);
	while ((link = zi_list_pop_front(&threads->prepared))) {
		struct nvme_block *block = container_of(link, struct nvme_block, link);
		struct threads_crew *crew = threads_crew_of(threads, block);

		block->stage = THREADS_QUEUED;
		zi_list_push_back(&crew->queued, link);
		pthread_cond_signal(&crew->has_work);
	}
	pthread_mutex_unlock(&threads->mutex);
}

/* A block that a worker has taken comes when the call returns. */
static void threads_cancel(struct nvme_backend *backend, struct nvme_block *block)
{
	struct threads *threads = threads_of(backend);

	pthread_mutex_lock(&threads->mutex);
	if (block->stage != THREADS_TAKEN) { /* In `prepared`, or in `queued`. */
		zi_list_remove(&block->link);
		block->stage = THREADS_TAKEN;
		block->result = -ECANCELED;
		zi_list_push_back(&threads->finished, &block->link);
		(void)eventfd_write(threads->event_fd, 1); /* Fails only at 2^64 - 1. */
	}
	pthread_mutex_unlock(&threads->mutex);
}

static void threads_wake(struct nvme_backend *backend)
{
	(void)eventfd_write(threads_of(backend)->event_fd, 1); /* Fails only at 2^64 - 1. */
}

static uint32_t threads_reap(struct nvme_backend *backend, struct nvme_block **ret_blocks,
                             uint32_t capacity_count)
{
	struct threads *threads = threads_of(backend);
	eventfd_t signals_count;
	uint32_t count = 0;
	struct zi_list *link;

	/* First the signal, then the list: what finishes in between is announced anew. */
	(void)eventfd_read(threads->event_fd, &signals_count); /* -EAGAIN: nothing was. */
	pthread_mutex_lock(&threads->mutex);
	while ((link = zi_list_pop_front(&threads->finished))) {
		assert(count < capacity_count);
		ret_blocks[count++] = container_of(link, struct nvme_block, link);
	}
	pthread_mutex_unlock(&threads->mutex);
	(void)capacity_count;
	return count;
}

static void threads_wait(struct nvme_backend *backend)
{
	struct pollfd event = { .fd = threads_of(backend)->event_fd, .events = POLLIN };

	threads_submit(backend);
	(void)poll(&event, 1, -1); /* -EINTR: the engine looks, and waits again. */
}

const struct nvme_backend_ops nvme_backend_threads = {
	.new = threads_new,
	.free = threads_free,
	.name = threads_name,
	.fd = threads_fd,
	.prepare = threads_prepare,
	.submit = threads_submit,
	.reap = threads_reap,
	.wait = threads_wait,
	.cancel = threads_cancel,
	.wake = threads_wake,
	.register_file = threads_register_file,
};
