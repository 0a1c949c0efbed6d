/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend over io_uring. Floor 2, owner thread only.
 *
 * The ring is made disabled and enabled by the first submit: SINGLE_ISSUER ties it to the thread
 * that enables it, so an engine may be made and given its stores and buffers by a thread that sets
 * things up, and belongs to the one that first uses it.
 *
 * DEFER_TASKRUN: completions become visible only when the owner enters the kernel for events; the
 * eventfd is signalled when there is a reason to. Why no wake-up is lost: the kernel signals when
 * it adds work to an empty list, so work that finds the list filled was announced by its
 * predecessor; reap() reads the eventfd *before* it has the kernel run the list, so what was
 * announced before is run, and what comes after is announced anew.
 *
 * Blocks of stores that are polled have a ring of their own (IOPOLL): their device raises no
 * interrupt and nothing signals the eventfd; entering the kernel finds what is done. While some of
 * them are in flight the eventfd stays signalled, so the owner's loop turns without sleeping, looks
 * at each turn and serves everything else in between; with none in flight it sleeps as always.
 */
#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "nvme/backend.h"

struct uring {
	struct nvme_backend backend; /* first */
	struct io_uring ring;
	int event_fd;
	bool has_ring;
	struct io_uring poll_ring; /* with has_poll_ring */
	bool has_poll_ring;
	uint32_t polled_count; /* blocks prepared on poll_ring that reap() has not returned */
	bool is_enabled;       /* the owner thread is known */
	bool has_waited;       /* since the last reap: the kernel was entered for events just now */
	bool has_files;        /* the table of registered files exists */
	bool has_buffers;
	uint32_t depth;
	struct nvme_block **blocks; /* (depth,) by index, once they were prepared */
};

/* user_data of a cancellation; no block's, whose index is below NVME_DEPTH_MAX. */
#define URING_CANCELLING UINT64_MAX

static struct uring *uring_of(struct nvme_backend *backend)
{
	return container_of(backend, struct uring, backend);
}

/* From the newest kernel's best to what 5.10 can. SUBMIT_ALL: one bad request holds up no other. */
static int uring_queue_init(struct io_uring *ring, uint32_t depth, unsigned extra)
{
	static const unsigned variants[] = {
		IORING_SETUP_R_DISABLED | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER |
			IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_R_DISABLED | IORING_SETUP_SUBMIT_ALL,
		IORING_SETUP_R_DISABLED,
	};
	int r = -EINVAL;

	for (unsigned i = 0; r == -EINVAL && i < ZI_COUNT_OF(variants); i++) {
		struct io_uring_params params = { .flags = variants[i] | extra };

		r = io_uring_queue_init_params(depth, ring, &params);
	}
	return r;
}

static void uring_free(struct nvme_backend *backend)
{
	struct uring *uring = uring_of(backend);

	/* In the owner thread, or in one without an engine of its own: liburing also gives back the
	 * slot of the registered ring in the *calling* thread's table. */
	if (uring->has_ring)
		io_uring_queue_exit(&uring->ring);
	if (uring->has_poll_ring)
		io_uring_queue_exit(&uring->poll_ring);
	uring->event_fd = zi_close(uring->event_fd);
	free(uring->blocks);
	free(uring);
}

/* What cannot be had is not polled: can_poll() tells. The tables are the same in both rings. */
static void uring_init_poll(struct uring *uring, const struct nvme_backend_options *options)
{
	struct io_uring *ring = &uring->poll_ring;

	uring->has_poll_ring = !uring_queue_init(ring, options->depth, IORING_SETUP_IOPOLL);
	if (!uring->has_poll_ring)
		return;
	uring->has_files &= !io_uring_register_files_sparse(ring, options->file_slots_count);
	uring->has_buffers &= !io_uring_register_buffers_sparse(ring, options->buffer_slots_count);
}

static int uring_new(const struct nvme_backend_options *options, struct zi_text *text,
                     struct nvme_backend **ret_backend)
{
	_cleanup_(nvme_backend_freep) struct nvme_backend *backend = NULL;
	struct uring *uring = calloc(1, sizeof(*uring));
	int r;

	if (!uring)
		return err_origin(-ENOMEM);
	uring->event_fd = -1;
	uring->backend.ops = &nvme_backend_uring;
	uring->depth = options->depth;
	backend = &uring->backend;
	uring->blocks = calloc(options->depth, sizeof(struct nvme_block *));
	if (!uring->blocks)
		return err_origin(-ENOMEM);
	uring->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (uring->event_fd < 0)
		return err_origin(zi_text_error(text, -errno, "no eventfd: %s", strerror(errno)));
	/* Twice: each block may be there together with its cancellation. */
	r = uring_queue_init(&uring->ring, 2 * options->depth, 0);
	if (r)
		return err_origin(zi_text_error(text, r, "io_uring of depth %u is refused: %s",
		                                options->depth, strerror(-r)));
	uring->has_ring = true;
	r = io_uring_register_eventfd(&uring->ring, uring->event_fd);
	if (r)
		return err_origin(
			zi_text_error(text, r, "io_uring takes no eventfd: %s", strerror(-r)));
	/* Faster where the kernel has them (5.19); plain descriptors and addresses work anyway. */
	uring->has_files = !io_uring_register_files_sparse(&uring->ring, options->file_slots_count);
	uring->has_buffers =
		!io_uring_register_buffers_sparse(&uring->ring, options->buffer_slots_count);
	if (options->has_poll)
		uring_init_poll(uring, options);
	*ret_backend = zi_steal(backend);
	return 0;
}

static const char *uring_name(const struct nvme_backend *backend)
{
	(void)backend;
	return "io_uring";
}

static int uring_fd(const struct nvme_backend *backend)
{
	return container_of((struct nvme_backend *)backend, struct uring, backend)->event_fd;
}

static bool uring_can_poll(const struct nvme_backend *backend)
{
	return container_of((struct nvme_backend *)backend, struct uring, backend)->has_poll_ring;
}

static void uring_enable_ring(struct io_uring *ring)
{
	int r;

	/* By hand: Debian's liburing 2.3 declares io_uring_enable_rings(), but exports none. */
	r = (int)syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL,
	                 0);
	assert(r == 0); /* Fails only on a ring that is enabled. */
	(void)r;
	/* Saves looking up the descriptor in each call; older kernels and full tables refuse. */
	(void)io_uring_register_ring_fd(ring);
}

/* Makes the calling thread the owner. */
static void uring_enable(struct uring *uring)
{
	if (uring->is_enabled)
		return;
	uring_enable_ring(&uring->ring);
	if (uring->has_poll_ring)
		uring_enable_ring(&uring->poll_ring);
	uring->is_enabled = true;
	/* The kernel's threads, at first 4 per CPU for all stores: one that does not answer must
	 * not take them from the others. Before 5.15 it stays at that. */
	(void)io_uring_register_iowq_max_workers(&uring->ring, (unsigned[2]){ uring->depth, 0 });
}

static uint64_t uring_name_of(const struct nvme_block *block)
{
	return (uint64_t)block->generation << 32 | block->index;
}

static void uring_prepare(struct nvme_backend *backend, struct nvme_block *block)
{
	struct uring *uring = uring_of(backend);
	bool is_polled = block->is_polled && uring->has_poll_ring;
	struct io_uring_sqe *sqe = io_uring_get_sqe(is_polled ? &uring->poll_ring : &uring->ring);
	bool is_fixed = block->buffer_slot != NVME_SLOT_NONE;
	int fd = block->file_slot != NVME_SLOT_NONE ? block->file_slot : block->fd;

	/* The ring has more entries than the engine has blocks. */
	assert(sqe);
	if (block->direction == NVME_READ && is_fixed)
		io_uring_prep_read_fixed(sqe, fd, block->buffer, block->bytes, block->offset_bytes,
		                         block->buffer_slot);
	else if (block->direction == NVME_READ)
		io_uring_prep_read(sqe, fd, block->buffer, block->bytes, block->offset_bytes);
	else if (is_fixed)
		io_uring_prep_write_fixed(sqe, fd, block->buffer, block->bytes, block->offset_bytes,
		                          block->buffer_slot);
	else
		io_uring_prep_write(sqe, fd, block->buffer, block->bytes, block->offset_bytes);
	if (block->file_slot != NVME_SLOT_NONE)
		sqe->flags |= IOSQE_FIXED_FILE;
	if (block->is_blocking)
		sqe->flags |= IOSQE_ASYNC; /* Begun by a thread of the kernel, not by ours. */
	/* Named by its use: a cancellation that comes late hits no later one. */
	block->generation++;
	block->is_polled = is_polled;
	uring->polled_count += is_polled;
	uring->blocks[block->index] = block;
	io_uring_sqe_set_data64(sqe, uring_name_of(block));
}

/* @r: of an io_uring_enter(). What is short of memory or interrupted is tried again from the loop,
 * which the eventfd makes come back at once; anything else is misuse, by a foreign thread most
 * of all. */
static void uring_check_enter(struct uring *uring, int r)
{
	if (r >= 0)
		return;
	assert(r == -EINTR || r == -EAGAIN || r == -EBUSY || r == -ENOMEM);
	(void)eventfd_write(uring->event_fd, 1); /* Fails only at 2^64 - 1. */
}

/* While polled blocks are in flight the owner comes back at once. */
static void uring_keep_turning(struct uring *uring)
{
	if (uring->polled_count)
		(void)eventfd_write(uring->event_fd, 1); /* Fails only at 2^64 - 1. */
}

static void uring_submit(struct nvme_backend *backend)
{
	struct uring *uring = uring_of(backend);

	uring_enable(uring);
	if (uring->has_poll_ring && io_uring_sq_ready(&uring->poll_ring)) {
		uring_check_enter(uring, io_uring_submit(&uring->poll_ring));
		uring_keep_turning(uring);
	}
	if (io_uring_sq_ready(&uring->ring))
		uring_check_enter(uring, io_uring_submit(&uring->ring));
}

/* What a device already works on the kernel does not give back: it comes when it is done. What
 * waits for a worker thread, as on FUSE, comes back with -ECANCELED. A ring that polls takes no
 * cancellations: its blocks are with the device in any case. */
static void uring_cancel(struct nvme_backend *backend, struct nvme_block *block)
{
	struct uring *uring = uring_of(backend);
	struct io_uring_sqe *sqe;

	if (block->is_polled)
		return;
	sqe = io_uring_get_sqe(&uring->ring);
	if (!sqe) { /* Full of what the kernel has not taken for want of memory. */
		uring_submit(backend);
		sqe = io_uring_get_sqe(&uring->ring);
	}
	if (!sqe)
		return;
	io_uring_prep_cancel64(sqe, uring_name_of(block), 0);
	io_uring_sqe_set_data64(sqe, URING_CANCELLING);
	uring_submit(backend);
}

static void uring_wake(struct nvme_backend *backend)
{
	(void)eventfd_write(uring_of(backend)->event_fd, 1); /* Fails only at 2^64 - 1. */
}

/* Whether the kernel holds completions back until it is entered. */
static bool uring_has_work(const struct uring *uring)
{
	return IO_URING_READ_ONCE(*uring->ring.sq.kflags) &
	       (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

/* What a ring has finished, behind the @count blocks that there are. Return: the new count. */
static uint32_t uring_collect(struct uring *uring, struct io_uring *ring,
                              struct nvme_block **ret_blocks, uint32_t count,
                              uint32_t capacity_count)
{
	struct io_uring_cqe *cqe;
	uint32_t seen_count = 0;
	unsigned head;

	io_uring_for_each_cqe(ring, head, cqe)
	{
		struct nvme_block *block;

		seen_count++;
		if (cqe->user_data == URING_CANCELLING)
			continue; /* Whether it hit shows in the block's own result. */
		assert(count < capacity_count);
		block = uring->blocks[(uint32_t)cqe->user_data];
		assert(cqe->user_data == uring_name_of(block));
		block->result = cqe->res;
		ret_blocks[count++] = block;
	}
	io_uring_cq_advance(ring, seen_count);
	(void)capacity_count;
	return count;
}

/* After a wait the eventfd is left as it is: what it announced is here, and one idle turn of a loop
 * costs less than reading it each time. */
static uint32_t uring_reap(struct nvme_backend *backend, struct nvme_block **ret_blocks,
                           uint32_t capacity_count)
{
	struct uring *uring = uring_of(backend);
	bool is_signalled = false;
	eventfd_t signals_count;
	uint32_t polled_count = 0;
	uint32_t count;

	if (!uring->is_enabled)
		return 0;
	if (!uring->has_waited)
		is_signalled = eventfd_read(uring->event_fd, &signals_count) == 0;
	uring->has_waited = false;
	if (uring->polled_count) {
		uring_check_enter(uring, io_uring_get_events(&uring->poll_ring));
		polled_count =
			uring_collect(uring, &uring->poll_ring, ret_blocks, 0, capacity_count);
		assert(polled_count <= uring->polled_count);
		uring->polled_count -= polled_count;
		uring_keep_turning(uring);
	}
	if (is_signalled || uring_has_work(uring))
		uring_check_enter(uring, io_uring_get_events(&uring->ring));
	count = uring_collect(uring, &uring->ring, ret_blocks, polled_count, capacity_count);
	return count;
}

/* With polled blocks in flight it comes back at once: whoever waits is who polls. */
static void uring_wait(struct nvme_backend *backend)
{
	struct uring *uring = uring_of(backend);

	uring_enable(uring);
	if (uring->polled_count) {
		uring_submit(backend);
		return;
	}
	uring_check_enter(uring, io_uring_submit_and_wait(&uring->ring, 1));
	uring->has_waited = true;
}

static int uring_register_file(struct nvme_backend *backend, uint32_t slot, int fd)
{
	struct uring *uring = uring_of(backend);
	int none = -1;
	int r;

	if (!uring->has_files)
		return err_origin(-EOPNOTSUPP);
	r = io_uring_register_files_update(&uring->ring, slot, &fd, 1);
	if (r < 0 || !uring->has_poll_ring)
		return r < 0 ? err_origin(r) : 0;
	r = io_uring_register_files_update(&uring->poll_ring, slot, &fd, 1);
	if (r < 0) /* In both or in none. An empty slot is no error. */
		(void)io_uring_register_files_update(&uring->ring, slot, &none, 1);
	return r < 0 ? err_origin(r) : 0;
}

/* Old users of the slot may be in flight: the kernel drops its pages when they are done. */
static int uring_register_buffer(struct nvme_backend *backend, uint32_t slot, void *base,
                                 uint64_t bytes)
{
	struct uring *uring = uring_of(backend);
	struct iovec piece = { .iov_base = base, .iov_len = bytes };
	struct iovec none = { .iov_len = 0 };
	__u64 tag = 0;
	int r;

	if (!uring->has_buffers)
		return err_origin(-EOPNOTSUPP);
	r = io_uring_register_buffers_update_tag(&uring->ring, slot, &piece, &tag, 1);
	if (r < 0 || !uring->has_poll_ring)
		return r < 0 ? err_origin(r) : 0;
	r = io_uring_register_buffers_update_tag(&uring->poll_ring, slot, &piece, &tag, 1);
	if (r < 0)
		(void)io_uring_register_buffers_update_tag(&uring->ring, slot, &none, &tag, 1);
	return r < 0 ? err_origin(r) : 0;
}

const struct nvme_backend_ops nvme_backend_uring = {
	.new = uring_new,
	.free = uring_free,
	.name = uring_name,
	.fd = uring_fd,
	.can_poll = uring_can_poll,
	.prepare = uring_prepare,
	.submit = uring_submit,
	.reap = uring_reap,
	.wait = uring_wait,
	.cancel = uring_cancel,
	.wake = uring_wake,
	.register_file = uring_register_file,
	.register_buffer = uring_register_buffer,
};
