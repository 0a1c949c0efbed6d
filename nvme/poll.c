/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether completions of a store can be polled for (IOPOLL), and how large its blocks may be then.
 * Floor 2, start-up only.
 *
 * The kernel takes an IOPOLL ring for any O_DIRECT file, and then burns a core waiting for an
 * interrupt where the device has no poll queues; so the device is asked, through sysfs. A request
 * that it would have to split is worse: a polled one is never split (REQ_NOWAIT), but begun anew
 * by a thread of the kernel for ever (seen on Linux 6.1: 1 MiB on a device that takes 512 KiB never
 * ends). Blocks therefore stay below what the device takes in one piece. Where file systems cut
 * requests is theirs to know, so stores on them are not polled.
 */
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "nvme/nvme.h"

#define POLL_PAGE_BYTES 4096u
/* A drive answers within a thousandth of that. */
#define POLL_PROBE_NS (5 * ZI_NS_PER_S)

/* A figure of the device's queue; a partition's is its disk's. 0: there is none to read. */
static uint32_t poll_read(dev_t device, const char *name)
{
	static const char *const places[] = { "queue", "../queue" };

	for (size_t i = 0; i < ZI_COUNT_OF(places); i++) {
		char path[96];
		char answer[16];

		(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/%s", major(device),
		               minor(device), places[i], name); /* Fits. */
		if (!zi_read_text(path, answer, sizeof(answer)))
			return (uint32_t)strtoul(answer, NULL, 10);
	}
	return 0;
}

/* The largest power of two that is never split, whatever pages it lies on; 0: there is none. */
static uint32_t poll_block_bytes(dev_t device)
{
	uint32_t kib = poll_read(device, "max_sectors_kb");
	uint32_t pages_count = poll_read(device, "max_segments");
	uint64_t bytes = ZI_MIN((uint64_t)kib * 1024, (uint64_t)pages_count * POLL_PAGE_BYTES);
	uint32_t block_bytes = POLL_PAGE_BYTES;

	/* Boundaries that no request may cross: ours do. */
	if (poll_read(device, "chunk_sectors") || bytes < POLL_PAGE_BYTES)
		return 0;
	while (2ull * block_bytes <= bytes && block_bytes < (1u << 30))
		block_bytes *= 2;
	return block_bytes;
}

/* Return: the result of one read through @ring, -ETIMEDOUT when none comes. */
static int poll_probe_ring(struct io_uring *ring, int fd, void *page)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(POLL_PROBE_NS);
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe = NULL;
	int r;

	io_uring_prep_read(sqe, fd, page, POLL_PAGE_BYTES, 0);
	r = io_uring_submit(ring);
	while (r >= 0 && zi_clock_now_ns() < deadline_ns) {
		r = io_uring_get_events(ring);
		if (r == -EINTR || r == -EAGAIN)
			r = 0;
		if (r >= 0 && !io_uring_peek_cqe(ring, &cqe)) {
			r = cqe->res;
			io_uring_cqe_seen(ring, cqe);
			return r;
		}
	}
	return r < 0 ? r : -ETIMEDOUT;
}

/* One polled read of the superblock. Return: 0; what the kernel or the device said. */
static int poll_probe(int fd)
{
	struct io_uring_params params = { .flags = IORING_SETUP_IOPOLL };
	struct io_uring ring;
	/* Mapped: what a late device still writes hits pages of nobody else. */
	void *page = mmap(NULL, POLL_PAGE_BYTES, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	if (page == MAP_FAILED)
		return err_origin(-errno);
	r = io_uring_queue_init_params(1, &ring, &params);
	if (!r) {
		r = poll_probe_ring(&ring, fd, page);
		io_uring_queue_exit(&ring);
	}
	(void)munmap(page, POLL_PAGE_BYTES); /* Ours. */
	if (r >= 0 && r != (int)POLL_PAGE_BYTES)
		return err_origin(-EIO);
	return r < 0 ? err_origin(r) : 0;
}

/**
 * nvme_store_start_poll() - polls where it can work
 * @store: open, not in use yet; is_polled and poll_block_bytes are set
 * @text: why not, and what to do
 *
 * Return: 0; -EOPNOTSUPP; an errno of fstat(), or of the read that is tried.
 */
int nvme_store_start_poll(struct nvme_store *store, struct zi_text *text)
{
	struct stat status;
	uint32_t block_bytes;
	dev_t device;
	int r;

	if (fstat(store->fd, &status))
		return err_origin(-errno);
	device = status.st_rdev;
	if (!store->is_direct || !store->is_block_device)
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"store '%s' cannot be polled: it is %s; name a bare NVMe device or set "
			"iopoll = no",
			store->path,
			store->is_block_device ? "not read and written directly (O_DIRECT)"
					       : "a file"));
	if (poll_read(device, "io_poll") != 1)
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"store '%s' cannot be polled: its device %u:%u has no poll queues (for "
			"NVMe: module parameter nvme.poll_queues=N); set iopoll = no",
			store->path, major(device), minor(device)));
	block_bytes = poll_block_bytes(device);
	if (!block_bytes)
		return err_origin(zi_text_error(text, -EOPNOTSUPP,
		                                "store '%s' cannot be polled: its device %u:%u "
		                                "splits requests; set iopoll = no",
		                                store->path, major(device), minor(device)));
	r = poll_probe(store->fd);
	if (r)
		return err_trace(zi_text_error(text, r,
		                               "store '%s' cannot be polled: a first read says "
		                               "%s; set iopoll = no",
		                               store->path, strerror(-r)));
	store->poll_block_bytes = block_bytes;
	store->is_polled = true;
	return 0;
}
