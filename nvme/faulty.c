/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend that injects faults over a real one: for tests, and by hand. Floor 2, owner thread
 * only, but for flushes (faulty_flush.c). The specification is KEY=VALUE,…; blocks are counted from
 * 1, each direction for itself.
 *
 *   over=NAME              the backend beneath: auto (default), io_uring, threads
 *   path=NAME              of this store's blocks alone; the others pass through, uncounted
 *   seed=N                 of the positions and lengths that are left to chance
 *   error=ERRNO            what injected errors say: EIO (default), ENODATA, EREMOTEIO …
 *   read_eio_at=N          the N-th read fails, nothing moves; likewise write_eio_at
 *   read_eio_from=N        the N-th read fails, and all after it; likewise write_eio_from
 *   write_lost_at=N        the N-th write reports success and writes nothing
 *   read_short_every=N     each N-th read moves only a part; likewise write_short_every
 *   eagain_every=N         each N-th block answers EAGAIN, nothing moves
 *   overlong_at=N          the N-th read claims more bytes than it was asked for
 *   bitflip_at=N           one bit of what the N-th read returns is wrong
 *   enospc_after_bytes=N   writes fail with ENOSPC once N bytes went out
 *   stall_at=N,stall_ms=M  the N-th block, of either direction, comes back M ms later (10000)
 *   bytes_per_s=N          no more than that, both directions together: a path that is throttled
 *   KIND=DIRECTION@WHEN    rules, up to eight, also about flushes: faulty_rule.h
 *   reorder=1              what finishes together comes back in another order
 *
 * A block's fate is decided when it is prepared: the same requests in the same order meet the same
 * faults, however fast the disk is (but for what is left to chance after reordering).
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "nvme/faulty_damage.h"
#include "nvme/faulty_private.h"

/* See faulty_private.h. */
struct faulty *nvme_faulty_of(const struct nvme_backend *backend)
{
	return container_of((struct nvme_backend *)backend, struct faulty, backend);
}

/* ---- life ---- */

static void faulty_free(struct nvme_backend *backend)
{
	struct faulty *faulty = nvme_faulty_of(backend);

	assert(zi_list_is_empty(&faulty->held));
	faulty->inner = nvme_backend_free(faulty->inner);
	faulty->timer_fd = zi_close(faulty->timer_fd);
	faulty->event_fd = zi_close(faulty->event_fd);
	faulty->epoll_fd = zi_close(faulty->epoll_fd);
	(void)pthread_mutex_destroy(&faulty->flush_lock);
	free(faulty->sector);
	free(faulty->faults);
	free(faulty);
}

static int faulty_watch(struct faulty *faulty, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return epoll_ctl(faulty->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? err_origin(-errno) : 0;
}

static int faulty_open_fds(struct faulty *faulty)
{
	int r;

	faulty->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	faulty->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	faulty->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (faulty->epoll_fd < 0 || faulty->event_fd < 0 || faulty->timer_fd < 0)
		return err_origin(-errno);
	r = faulty_watch(faulty, faulty->event_fd);
	if (!r)
		r = faulty_watch(faulty, faulty->timer_fd);
	if (!r)
		r = faulty_watch(faulty, faulty->inner->ops->fd(faulty->inner));
	return err_trace(r);
}

static int faulty_new(const struct nvme_backend_options *options, struct zi_text *text,
                      struct nvme_backend **ret_backend)
{
	_cleanup_(nvme_backend_freep) struct nvme_backend *backend = NULL;
	struct faulty *faulty = calloc(1, sizeof(*faulty));
	int r;

	if (!faulty)
		return err_origin(-ENOMEM);
	faulty->epoll_fd = faulty->event_fd = faulty->timer_fd = -1;
	faulty->backend.ops = &nvme_backend_faulty;
	zi_list_init(&faulty->held);
	(void)pthread_mutex_init(&faulty->flush_lock, NULL); /* glibc's never fails like this. */
	backend = &faulty->backend;
	r = nvme_faulty_parse(options->spec, text, &faulty->spec);
	if (r)
		return err_trace(r);
	faulty->faults = calloc(options->depth, sizeof(*faulty->faults));
	faulty->sector = aligned_alloc(ZI_STORE_ALIGN_BYTES, ZI_STORE_ALIGN_BYTES);
	if (!faulty->faults || !faulty->sector)
		return err_origin(-ENOMEM);
	r = nvme_backend_new(faulty->spec.over, options, text, &faulty->inner);
	if (r)
		return err_trace(r);
	r = faulty_open_fds(faulty);
	if (r)
		return err_trace(zi_text_error(text, r, "no descriptors: %s", strerror(-r)));
	faulty->random = faulty->flush_random = faulty->spec.seed;
	(void)snprintf(faulty->name, sizeof(faulty->name), "faulty over %s (injecting)",
	               faulty->inner->ops->name(faulty->inner)); /* Cut is as good. */
	*ret_backend = zi_steal(backend);
	return 0;
}

static const char *faulty_name(const struct nvme_backend *backend)
{
	return nvme_faulty_of(backend)->name;
}

static int faulty_fd(const struct nvme_backend *backend)
{
	return nvme_faulty_of(backend)->epoll_fd;
}

/* ---- going out ---- */

/* A slow path works off one block after the other. */
static void faulty_throttle(struct faulty *faulty, struct fault *fault)
{
	uint64_t bytes_per_s = faulty->spec.bytes_per_s;

	if (!bytes_per_s)
		return;
	faulty->free_ns = ZI_MAX(faulty->free_ns, zi_clock_now_ns());
	faulty->free_ns += fault->whole_bytes * ZI_NS_PER_S / bytes_per_s;
	fault->due_ns = ZI_MAX(fault->due_ns, faulty->free_ns);
}

/* See faulty_private.h. */
bool nvme_faulty_is_meant(const struct faulty *faulty, const struct nvme_store *store)
{
	return !faulty->spec.path[0] || !strcmp(faulty->spec.path, store->name);
}

static void faulty_prepare(struct nvme_backend *backend, struct nvme_block *block)
{
	struct faulty *faulty = nvme_faulty_of(backend);
	struct fault *fault = &faulty->faults[block->index];

	*fault = (struct fault){ .whole_bytes = block->bytes, .offset_bytes = block->offset_bytes };
	if (!nvme_faulty_is_meant(faulty, block->io->store)) {
		faulty->inner->ops->prepare(faulty->inner, block);
		return;
	}
	nvme_faulty_decide(faulty, block, fault);
	faulty_throttle(faulty, fault);
	if (!fault->is_injected) {
		faulty->inner->ops->prepare(faulty->inner, block);
		return;
	}
	fault->is_held = true;
	zi_list_push_back(&faulty->held, &block->link);
}

/* ---- coming back ---- */

/* A result of the inner backend, made what was decided. */
static void faulty_finish(struct faulty *faulty, struct nvme_block *block)
{
	struct fault *fault = &faulty->faults[block->index];

	if (fault->is_fatal)
		(void)raise(SIGKILL);
	if (block->result > 0 && fault->is_flipped && block->direction == NVME_WRITE)
		/* A disk that does not let itself be damaged is no failure of the write. */
		(void)nvme_faulty_flip_at_rest(block->fd, faulty->sector, block->offset_bytes,
		                               (uint64_t)block->result, nvme_faulty_random(faulty));
	else if (block->result > 0 && fault->is_flipped)
		block->buffer[nvme_faulty_random(faulty) % (uint32_t)block->result] ^= 1;
	if (fault->is_torn && block->result >= 0)
		block->result = (int32_t)fault->whole_bytes;
	/* Short: odd counts, too, as long as something is left of them. */
	else if (block->bytes < fault->whole_bytes &&
	         block->result > (int32_t)ZI_STORE_ALIGN_BYTES && nvme_faulty_random(faulty) % 2)
		block->result -= 100;
	fault->is_held = true;
	zi_list_push_back(&faulty->held, &block->link);
}

/* The next alarm: at the earliest block that is held back, none when there is none. */
static void faulty_set_timer(struct faulty *faulty)
{
	struct itimerspec alarm = { 0 };
	uint64_t earliest_ns = 0;
	int r;

	zi_list_for_each(link, &faulty->held) {
		const struct nvme_block *block = container_of(link, struct nvme_block, link);
		uint64_t due_ns = faulty->faults[block->index].due_ns;

		if (due_ns && (!earliest_ns || due_ns < earliest_ns))
			earliest_ns = due_ns;
	}
	alarm.it_value.tv_sec = (time_t)(earliest_ns / ZI_NS_PER_S);
	alarm.it_value.tv_nsec = (long)(earliest_ns % ZI_NS_PER_S);
	r = timerfd_settime(faulty->timer_fd, TFD_TIMER_ABSTIME, &alarm, NULL);
	assert(r == 0);
	(void)r;
}

static void faulty_submit(struct nvme_backend *backend)
{
	struct faulty *faulty = nvme_faulty_of(backend);

	faulty->inner->ops->submit(faulty->inner);
	faulty_set_timer(faulty);
	zi_list_for_each(link, &faulty->held) {
		if (faulty->faults[container_of(link, struct nvme_block, link)->index].due_ns)
			continue;                         /* The timer's. */
		(void)eventfd_write(faulty->event_fd, 1); /* Fails only at 2^64 - 1. */
		break;
	}
}

static void faulty_shuffle(struct faulty *faulty, struct nvme_block **blocks, uint32_t count)
{
	for (uint32_t i = count; i > 1; i--) {
		uint32_t other = (uint32_t)(nvme_faulty_random(faulty) % i);
		struct nvme_block *block = blocks[i - 1];

		blocks[i - 1] = blocks[other];
		blocks[other] = block;
	}
}

static uint32_t faulty_reap(struct nvme_backend *backend, struct nvme_block **ret_blocks,
                            uint32_t capacity_count)
{
	struct faulty *faulty = nvme_faulty_of(backend);
	uint64_t now_ns = zi_clock_now_ns();
	eventfd_t signals_count;
	uint32_t count;

	(void)eventfd_read(faulty->event_fd, &signals_count); /* -EAGAIN: nothing was announced. */
	count = faulty->inner->ops->reap(faulty->inner, ret_blocks, capacity_count);
	for (uint32_t i = 0; i < count; i++)
		faulty_finish(faulty, ret_blocks[i]);
	count = 0;
	zi_list_for_each_safe(link, &faulty->held) {
		struct nvme_block *block = container_of(link, struct nvme_block, link);
		const struct fault *fault = &faulty->faults[block->index];

		if (fault->due_ns > now_ns)
			continue;
		zi_list_remove(link);
		block->bytes = fault->whole_bytes;
		block->offset_bytes = fault->offset_bytes;
		if (fault->is_injected)
			block->result = fault->result;
		assert(count < capacity_count);
		ret_blocks[count++] = block;
	}
	faulty_set_timer(faulty);
	if (faulty->spec.is_reordering)
		faulty_shuffle(faulty, ret_blocks, count);
	return count;
}

static void faulty_wait(struct nvme_backend *backend)
{
	struct pollfd event = { .fd = nvme_faulty_of(backend)->epoll_fd, .events = POLLIN };

	faulty_submit(backend);
	(void)poll(&event, 1, -1); /* -EINTR: the engine looks, and waits again. */
}

/* What never reached the inner backend comes back soon anyway; what is stalled stays so, like a
 * block that a device does not give back. */
static void faulty_cancel(struct nvme_backend *backend, struct nvme_block *block)
{
	struct faulty *faulty = nvme_faulty_of(backend);

	if (!faulty->faults[block->index].is_held)
		faulty->inner->ops->cancel(faulty->inner, block);
}

static void faulty_wake(struct nvme_backend *backend)
{
	(void)eventfd_write(nvme_faulty_of(backend)->event_fd, 1); /* Fails only at 2^64 - 1. */
}

static int faulty_register_file(struct nvme_backend *backend, uint32_t slot, int fd)
{
	struct nvme_backend *inner = nvme_faulty_of(backend)->inner;

	if (!inner->ops->register_file)
		return err_origin(-EOPNOTSUPP);
	return err_trace(inner->ops->register_file(inner, slot, fd));
}

static int faulty_register_buffer(struct nvme_backend *backend, uint32_t slot, void *base,
                                  uint64_t bytes)
{
	struct nvme_backend *inner = nvme_faulty_of(backend)->inner;

	if (!inner->ops->register_buffer)
		return err_origin(-EOPNOTSUPP);
	return err_trace(inner->ops->register_buffer(inner, slot, base, bytes));
}

const struct nvme_backend_ops nvme_backend_faulty = {
	.new = faulty_new,
	.free = faulty_free,
	.name = faulty_name,
	.fd = faulty_fd,
	.prepare = faulty_prepare,
	.submit = faulty_submit,
	.reap = faulty_reap,
	.wait = faulty_wait,
	.cancel = faulty_cancel,
	.wake = faulty_wake,
	.flush = nvme_faulty_flush,
	.register_file = faulty_register_file,
	.register_buffer = faulty_register_buffer,
};
