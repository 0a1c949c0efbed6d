/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend that injects faults over a real one: for tests, and by hand. Floor 2, owner thread
 * only. The specification is KEY=VALUE,…; blocks are counted from 1, each direction for itself.
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
 *   KIND=DIRECTION@WHEN    rules, up to eight: faulty_rule.h
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
#include "nvme/backend.h"
#include "nvme/faulty_damage.h"
#include "nvme/faulty_spec.h"

#define FAULTY_NAME_BYTES 48u

/* What was decided about a block in flight. */
struct fault {
	uint32_t whole_bytes;  /* before it was made short */
	uint64_t offset_bytes; /* before it was misplaced */
	int32_t result;        /* reported instead of the truth, where is_injected */
	bool is_injected;
	bool is_flipped;
	bool is_held;    /* the inner backend is done with it */
	bool is_torn;    /* short, but reported as whole */
	uint64_t due_ns; /* 0: at once */
};

struct faulty {
	struct nvme_backend backend; /* first */
	struct nvme_backend *inner;
	struct nvme_faulty_spec spec;
	char name[FAULTY_NAME_BYTES];
	int epoll_fd; /* readable when one of the next three is */
	int event_fd; /* results that never reached the inner backend */
	int timer_fd; /* the earliest stalled block */
	uint64_t random;
	uint64_t reads_count, writes_count, written_bytes;
	uint64_t free_ns;     /* bytes_per_s: when the path is done with what it was given */
	struct zi_list held;  /* done, but not yet told */
	struct fault *faults; /* by block index */
	void *sector;         /* (ZI_STORE_ALIGN_BYTES,) for damage at rest */
};

static struct faulty *faulty_of(const struct nvme_backend *backend)
{
	return container_of((struct nvme_backend *)backend, struct faulty, backend);
}

/* splitmix64 (Steele, Lea, Flood 2014): one addition of state, any seed is good. */
static uint64_t faulty_random(struct faulty *faulty)
{
	uint64_t z = faulty->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* ---- life ---- */

static void faulty_free(struct nvme_backend *backend)
{
	struct faulty *faulty = faulty_of(backend);

	assert(zi_list_is_empty(&faulty->held));
	faulty->inner = nvme_backend_free(faulty->inner);
	faulty->timer_fd = zi_close(faulty->timer_fd);
	faulty->event_fd = zi_close(faulty->event_fd);
	faulty->epoll_fd = zi_close(faulty->epoll_fd);
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
	faulty->random = faulty->spec.seed;
	(void)snprintf(faulty->name, sizeof(faulty->name), "faulty over %s (injecting)",
	               faulty->inner->ops->name(faulty->inner)); /* Cut is as good. */
	*ret_backend = zi_steal(backend);
	return 0;
}

static const char *faulty_name(const struct nvme_backend *backend)
{
	return faulty_of(backend)->name;
}

static int faulty_fd(const struct nvme_backend *backend)
{
	return faulty_of(backend)->epoll_fd;
}

/* ---- deciding ---- */

static bool faulty_is_nth(uint64_t every, uint64_t count)
{
	return every && count % every == 0;
}

static bool is_from(uint64_t first, uint64_t count)
{
	return first && count >= first;
}

/* Its count is later reported a little lower half of the time: not even the granularity may be
 * relied on. */
static void faulty_shorten(struct faulty *faulty, struct nvme_block *block)
{
	block->bytes = nvme_faulty_short_bytes(block, faulty_random(faulty));
}

static void faulty_inject(struct fault *fault, int32_t result)
{
	fault->is_injected = true;
	fault->result = result;
}

static void faulty_decide_read(struct faulty *faulty, struct nvme_block *block, struct fault *fault)
{
	const struct nvme_faulty_spec *spec = &faulty->spec;
	uint64_t count = ++faulty->reads_count;

	if (count == spec->read_eio_at || is_from(spec->read_eio_from, count))
		faulty_inject(fault, -(int32_t)spec->error);
	else if (count == spec->overlong_at)
		faulty_inject(fault, (int32_t)block->bytes + 1);
	else if (faulty_is_nth(spec->read_short_every, count))
		faulty_shorten(faulty, block);
	fault->is_flipped = count == spec->bitflip_at;
}

static void faulty_decide_write(struct faulty *faulty, struct nvme_block *block,
                                struct fault *fault)
{
	const struct nvme_faulty_spec *spec = &faulty->spec;
	uint64_t count = ++faulty->writes_count;

	if (count == spec->write_eio_at || is_from(spec->write_eio_from, count))
		faulty_inject(fault, -(int32_t)spec->error);
	else if (count == spec->write_lost_at)
		faulty_inject(fault, (int32_t)block->bytes);
	else if (spec->has_enospc_after_bytes &&
	         faulty->written_bytes + block->bytes > spec->enospc_after_bytes)
		faulty_inject(fault, -ENOSPC);
	else if (faulty_is_nth(spec->write_short_every, count))
		faulty_shorten(faulty, block);
	if (!fault->is_injected)
		faulty->written_bytes += block->bytes;
}

static void faulty_tear(struct faulty *faulty, struct nvme_block *block, struct fault *fault)
{
	uint32_t kept_bytes = nvme_faulty_torn_bytes(block, faulty_random(faulty));

	if (!kept_bytes) {
		faulty_inject(fault, (int32_t)block->bytes);
		return;
	}
	block->bytes = kept_bytes;
	fault->is_torn = true;
}

static void faulty_apply(struct faulty *faulty, const struct nvme_faulty_rule *rule,
                         struct nvme_block *block, struct fault *fault)
{
	switch (rule->kind) {
	case NVME_FAULTY_ERROR:
		faulty_inject(fault, -rule->error);
		break;
	case NVME_FAULTY_SHORT:
		faulty_shorten(faulty, block);
		break;
	case NVME_FAULTY_LOST:
		faulty_inject(fault, (int32_t)block->bytes);
		break;
	case NVME_FAULTY_TORN:
		faulty_tear(faulty, block, fault);
		break;
	case NVME_FAULTY_FLIP:
		fault->is_flipped = true;
		break;
	case NVME_FAULTY_MISPLACE:
		block->offset_bytes = nvme_faulty_other_offset(block, faulty_random(faulty));
		break;
	case NVME_FAULTY_STALL:
		fault->due_ns = zi_clock_now_ns() + faulty->spec.stall_ms * ZI_NS_PER_MS;
		break;
	case NVME_FAULTY_KILL:
		(void)raise(SIGKILL);
		break;
	case NVME_FAULTY_NONE:
	case _NVME_FAULTY_COUNT:
	default:
		assert(false);
	}
}

/* The first rule that fires decides; the others count all the same. */
static void faulty_decide_by_rule(struct faulty *faulty, struct nvme_block *block,
                                  struct fault *fault)
{
	const struct nvme_faulty_rule *fired = NULL;

	for (uint32_t i = 0; i < faulty->spec.rule_count; i++) {
		struct nvme_faulty_rule *rule = &faulty->spec.rules[i];

		if (nvme_faulty_rule_fires(rule, block, faulty_random(faulty)) && !fired)
			fired = rule;
	}
	if (fired && !fault->is_injected)
		faulty_apply(faulty, fired, block, fault);
}

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

static bool faulty_is_meant(const struct faulty *faulty, const struct nvme_block *block)
{
	return !faulty->spec.path[0] || !strcmp(faulty->spec.path, block->io->store->name);
}

static void faulty_prepare(struct nvme_backend *backend, struct nvme_block *block)
{
	struct faulty *faulty = faulty_of(backend);
	struct fault *fault = &faulty->faults[block->index];
	uint64_t count;

	*fault = (struct fault){ .whole_bytes = block->bytes, .offset_bytes = block->offset_bytes };
	if (!faulty_is_meant(faulty, block)) {
		faulty->inner->ops->prepare(faulty->inner, block);
		return;
	}
	if (block->direction == NVME_READ)
		faulty_decide_read(faulty, block, fault);
	else
		faulty_decide_write(faulty, block, fault);
	if (faulty->spec.rule_count)
		faulty_decide_by_rule(faulty, block, fault);
	count = faulty->reads_count + faulty->writes_count;
	if (!fault->is_injected && faulty_is_nth(faulty->spec.eagain_every, count))
		faulty_inject(fault, -EAGAIN);
	if (count == faulty->spec.stall_at)
		fault->due_ns = zi_clock_now_ns() + faulty->spec.stall_ms * ZI_NS_PER_MS;
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

	if (block->result > 0 && fault->is_flipped && block->direction == NVME_WRITE)
		/* A disk that does not let itself be damaged is no failure of the write. */
		(void)nvme_faulty_flip_at_rest(block->fd, faulty->sector, block->offset_bytes,
		                               (uint64_t)block->result, faulty_random(faulty));
	else if (block->result > 0 && fault->is_flipped)
		block->buffer[faulty_random(faulty) % (uint32_t)block->result] ^= 1;
	if (fault->is_torn && block->result >= 0)
		block->result = (int32_t)fault->whole_bytes;
	/* Short: odd counts, too, as long as something is left of them. */
	else if (block->bytes < fault->whole_bytes &&
	         block->result > (int32_t)ZI_STORE_ALIGN_BYTES && faulty_random(faulty) % 2)
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
	struct faulty *faulty = faulty_of(backend);

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
		uint32_t other = (uint32_t)(faulty_random(faulty) % i);
		struct nvme_block *block = blocks[i - 1];

		blocks[i - 1] = blocks[other];
		blocks[other] = block;
	}
}

static uint32_t faulty_reap(struct nvme_backend *backend, struct nvme_block **ret_blocks,
                            uint32_t capacity_count)
{
	struct faulty *faulty = faulty_of(backend);
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
	struct pollfd event = { .fd = faulty_of(backend)->epoll_fd, .events = POLLIN };

	faulty_submit(backend);
	(void)poll(&event, 1, -1); /* -EINTR: the engine looks, and waits again. */
}

/* What never reached the inner backend comes back soon anyway; what is stalled stays so, like a
 * block that a device does not give back. */
static void faulty_cancel(struct nvme_backend *backend, struct nvme_block *block)
{
	struct faulty *faulty = faulty_of(backend);

	if (!faulty->faults[block->index].is_held)
		faulty->inner->ops->cancel(faulty->inner, block);
}

static void faulty_wake(struct nvme_backend *backend)
{
	(void)eventfd_write(faulty_of(backend)->event_fd, 1); /* Fails only at 2^64 - 1. */
}

static int faulty_register_file(struct nvme_backend *backend, uint32_t slot, int fd)
{
	struct nvme_backend *inner = faulty_of(backend)->inner;

	if (!inner->ops->register_file)
		return err_origin(-EOPNOTSUPP);
	return err_trace(inner->ops->register_file(inner, slot, fd));
}

static int faulty_register_buffer(struct nvme_backend *backend, uint32_t slot, void *base,
                                  uint64_t bytes)
{
	struct nvme_backend *inner = faulty_of(backend)->inner;

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
	.register_file = faulty_register_file,
	.register_buffer = faulty_register_buffer,
};
