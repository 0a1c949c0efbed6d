/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completions: taking them in, and waiting for them. Floor 2.
 *
 * Waiting looks at the ring for as long as the daemon says that spinning is good here (spin_us of
 * the downlink, 0 when processes outnumber CPUs), then arms the ring and sleeps on three
 * descriptors: the daemon's doorbell, the socket, which says that the session or the daemon has
 * ended, and the bell of interrupts.
 */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "libclient/client.h"
#include "libclient/gpu/gpu.h"

/* Looks at the ring between two looks at the clock: about 2 us, so that an empty request, which
 * takes less, never asks for the time. */
#define WAIT_LOOKS_PER_CLOCK 128u
/* The daemon's word is taken up to here: beyond, sleeping costs less than it burns. */
#define WAIT_SPIN_US_MAX 10000u
/* A doorbell is an eventfd (8 bytes are read) or a pipe; what is left only wakes us once more. */
#define WAIT_DRAIN_BYTES 4096u
/* The end of a copy of the GPU rings nothing: while copies are under way a sleep is this long. A
 * copy of 5 MB takes as long. */
#define WAIT_GPU_NS (100 * ZI_NS_PER_US)

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

/* The error text of a completion; the daemon's slots are reused, so it is copied now. */
static void copy_text(struct zinf *zinf, uint32_t text_index, struct zi_text *ret_text)
{
	const char *texts = (const char *)zinf->downlink + zi_downlink_text_offset(zinf->entries);

	static_assert(sizeof(ret_text->chars) == ZI_ERROR_TEXT_BYTES, "a slot is a text");
	memcpy(ret_text->chars, texts + (size_t)(text_index - 1) * ZI_ERROR_TEXT_BYTES,
	       ZI_ERROR_TEXT_BYTES);
	ret_text->chars[ZI_ERROR_TEXT_BYTES - 1] = '\0';
}

static void put_failure(struct zinf *zinf, struct zi_client_op *op, const struct zi_cqe *cqe)
{
	if (cqe->text_index)
		copy_text(zinf, cqe->text_index, &op->text);
	else
		zi_text_set(&op->text, "%s: %s", zi_opcode_name(op->opcode),
		            strerror(-cqe->result));
	if (!op->is_kept)
		return;
	struct zi_client_unit *unit = &zinf->units[op->unit];

	if (unit->kept_error) /* the first one explains the others */
		return;
	unit->kept_error = cqe->result;
	unit->kept_text = op->text;
}

static int take_completion(struct zinf *zinf, const struct zi_cqe *cqe)
{
	struct zi_client_op *op = zi_client_find(zinf, cqe->user_data);

	if (!op || op->state == ZI_CLIENT_OP_DONE || cqe->result > 0 ||
	    cqe->text_index > ZI_TEXT_SLOTS)
		return err_trace(zi_client_breach(zinf, "a completion of nothing"));
	op->result = cqe->result;
	op->value = cqe->values[0];
	op->value1 = cqe->values[1];
	op->value2 = cqe->values[2];
	if (cqe->result)
		put_failure(zinf, op, cqe);
	else if (op->opcode == ZI_OP_STEP || op->opcode == ZI_OP_COMMIT)
		op->stats = zinf->down->stats;
	if (op->is_kept || op->state == ZI_CLIENT_OP_ABANDONED)
		zi_client_op_free(zinf, op);
	else
		op->state = ZI_CLIENT_OP_DONE;
	if (op->state == ZI_CLIENT_OP_DONE)
		zi_client_ring_tickets(zinf);
	return 0;
}

/* Return: 0, or -EPROTO and the session is over. Never waits. */
int zi_client_reap(struct zinf *zinf)
{
	struct zi_cqe cqe;

	/* A daemon that broke the protocol is believed nothing more. */
	if (zinf->is_breached)
		return err_trace(zi_client_over(zinf, zinf->over, &zinf->over_text));
	/* At most as many completions as there can be, and as many looks: a daemon cannot hold us
	 * here. With ticket_fd.c the ring is left armed. */
	for (uint32_t i = 0; i <= 2 * zinf->entries; i++) {
		int r = zi_ring_pop(&zinf->cq, &cqe);

		if (r == ZI_RING_E_EMPTY && (zinf->ticket_fd < 0 || zi_ring_arm(&zinf->cq)))
			return 0;
		if (r == ZI_RING_E_EMPTY)
			continue;
		if (r)
			return err_trace(
				zi_client_breach(zinf, "the completion ring's tail is wrong"));
		r = take_completion(zinf, &cqe);
		if (r)
			return err_trace(r);
	}
	return 0;
}

/* Looks at the ring for a while, or until there is something. */
static void spin(struct zinf *zinf)
{
	uint64_t end_ns = 0;

	for (;;) {
		uint32_t spin_us = ZI_MIN(zi_line_load(&zinf->down->spin_us), WAIT_SPIN_US_MAX);

		if (!spin_us)
			return;
		for (uint32_t i = 0; i < WAIT_LOOKS_PER_CLOCK; i++) {
			if (zi_ring_has_work(&zinf->cq))
				return;
			relax();
		}
		if (!end_ns)
			end_ns = zi_clock_deadline_ns(spin_us * ZI_NS_PER_US);
		else if (zi_clock_now_ns() >= end_ns)
			return;
	}
}

/* The daemon's doorbell has rung. End of file: it has closed its end, as it does when it ends. */
static int drain(struct zinf *zinf)
{
	char bytes[WAIT_DRAIN_BYTES];
	ssize_t count;

	do
		count = read(zinf->wakeup_fd, bytes, sizeof(bytes));
	while (count < 0 && errno == EINTR);
	return count == 0 ? -ECONNRESET : 0;
}

void zi_client_drain_doorbell(struct zinf *zinf)
{
	struct pollfd ready = { .fd = zinf->wakeup_fd, .events = POLLIN };

	if (poll(&ready, 1, 0) > 0)
		(void)drain(zinf); /* An end shows on the socket. */
}

/* As poll(), and an end by WAIT_GPU_NS counts as an interruption. */
static int poll_briefly(struct pollfd *ready, nfds_t count, uint64_t deadline_ns)
{
	const struct timespec slice = { .tv_nsec = (long)WAIT_GPU_NS };
	int r = ppoll(ready, count, &slice, NULL);

	if (r || zi_clock_now_ns() >= deadline_ns)
		return r;
	errno = EINTR;
	return -1;
}

/* Sleeps until there is a completion, news on the socket, an interrupt, or @deadline_ns. 0: look
 * again; -EINTR; -ETIMEDOUT with @ret_is_late; or how the session ended (by a deadline of the
 * daemon's, too). */
static int sleep_once(struct zinf *zinf, uint64_t deadline_ns, bool *ret_is_late)
{
	struct pollfd ready[3] = {
		{ .fd = zinf->wakeup_fd, .events = POLLIN },
		{ .fd = zinf->socket_fd, .events = POLLIN },
		{ .fd = zi_client_interrupt_fd(zinf), .events = POLLIN },
	};
	int r;

	if (zi_client_take_interrupt(zinf))
		return err_trace(zi_client_interrupted(zinf));
	if (!zi_ring_arm(&zinf->cq))
		return 0;
	if (zinf->gpu && zi_client_gpu_is_busy(zinf))
		r = poll_briefly(ready, ZI_COUNT_OF(ready), deadline_ns);
	else
		r = poll(ready, ZI_COUNT_OF(ready), zi_clock_poll_ms(deadline_ns));
	if (zinf->ticket_fd < 0) /* see ticket_fd.c */
		zi_ring_disarm(&zinf->cq);
	if (r < 0 && errno == EINTR)
		return 0;
	if (r < 0)
		return err_origin(-errno);
	*ret_is_late = r == 0;
	if (!r)
		return -ETIMEDOUT;
	r = ready[0].revents ? drain(zinf) : 0;
	if (!ready[1].revents && !r)
		return 0;
	return err_trace(r ? zi_client_gone(zinf) : zi_client_read_notices(zinf));
}

/* The session has ended, or the GPU fails: what completed before has completed. */
static int look_last(struct zinf *zinf, zi_client_enough_fn is_enough, const void *arg, int error)
{
	if (zi_client_reap(zinf) == 0 && is_enough(zinf, arg))
		return 0;
	return err_trace(error);
}

/* Takes completions in until @is_enough says so. @timeout_ns 0: the session's, and the daemon's own
 * answer at its end. */
static int wait_until(struct zinf *zinf, zi_client_enough_fn is_enough, const void *arg,
                      bool is_spinning, uint64_t timeout_ns)
{
	uint64_t deadline_ns = timeout_ns ? zi_clock_deadline_ns(timeout_ns) : 0;

	for (;;) {
		bool is_late = false;
		int r;

		if (is_spinning)
			spin(zinf);
		r = zi_client_reap(zinf);
		if (r)
			return err_trace(r);
		if (zinf->gpu && !zinf->over)
			r = zi_client_gpu_look(zinf);
		if (r)
			return err_trace(look_last(zinf, is_enough, arg, r));
		if (is_enough(zinf, arg))
			return 0;
		r = zi_client_check_session(zinf);
		if (r)
			return err_trace(look_last(zinf, is_enough, arg, r));
		if (!deadline_ns)
			deadline_ns = zi_client_deadline_ns(zinf);
		r = sleep_once(zinf, deadline_ns, &is_late);
		if (r == -EINTR)
			return err_trace(r);
		if (is_late)
			return zi_client_error(
				zinf, r, "no completion from zinfd at %s within %llu ms",
				zinf->path,
				(timeout_ns ? timeout_ns : zinf->timeout_ns) / ZI_NS_PER_MS);
		if (r)
			return err_trace(look_last(zinf, is_enough, arg, r));
	}
}

static bool is_done(const struct zinf *zinf, const void *arg)
{
	const struct zi_client_op *op = arg;

	(void)zinf;
	return op->state == ZI_CLIENT_OP_DONE;
}

/* A free entry, or no hope of one: nothing but tickets that the caller keeps. */
static bool is_room(const struct zinf *zinf, const void *arg)
{
	(void)arg;
	if (zinf->free_count)
		return true;
	for (uint32_t i = 0; i < zinf->entries; i++)
		if (zinf->ops[i].state != ZI_CLIENT_OP_DONE)
			return false;
	return true;
}

static int take_result(struct zinf *zinf, const struct zi_client_op *op, bool *ret_is_done)
{
	*ret_is_done = true;
	if (op->result)
		(void)zi_client_tell(zinf, op->result, &op->text); /* It is told below. */
	return err_trace(op->result);
}

/**
 * zi_client_wait_op() - wait for one operation
 * @op: PENDING or DONE
 * @is_spinning: false for what takes long by nature (a step)
 * @ret_is_done: @op is DONE and the result is its own
 *
 * Return: the operation's result, with its text; or -EINTR, -ETIMEDOUT, or how the session ended,
 * and
 * @op stays as it is.
 */
int zi_client_wait_op(struct zinf *zinf, struct zi_client_op *op, bool is_spinning,
                      bool *ret_is_done)
{
	int r = wait_until(zinf, is_done, op, is_spinning, 0);

	return r ? err_trace(r) : take_result(zinf, op, ret_is_done);
}

/* zi_client_wait_op(), without spinning, for at most @timeout_ns, more than 0. */
int zi_client_wait_op_for(struct zinf *zinf, struct zi_client_op *op, uint64_t timeout_ns,
                          bool *ret_is_done)
{
	int r = wait_until(zinf, is_done, op, false, timeout_ns);

	return r ? err_trace(r) : take_result(zinf, op, ret_is_done);
}

/* Waits until an entry of the table is free, or none can become so. Return: 0; or as
 * zi_client_wait_op() when waiting itself failed. */
int zi_client_wait_any(struct zinf *zinf)
{
	return err_trace(wait_until(zinf, is_room, NULL, true, 0));
}

/* See client.h. */
int zi_client_wait_until(struct zinf *zinf, zi_client_enough_fn is_enough, const void *arg)
{
	return err_trace(wait_until(zinf, is_enough, arg, false, 0));
}
