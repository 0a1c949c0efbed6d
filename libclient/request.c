/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket from the client's side: one request at a time and its reply, what the daemon
 * says unasked (NOTICE), and how a session ends. Floor 2.
 *
 * A session ends once: by NOTICE (the group broke), by the end of the socket (the daemon went
 * away), or by a breach of the protocol. zinf->over then is what every call returns, at once and
 * for ever. The socket is non-blocking; every wait has a deadline.
 *
 * The daemon takes one request at a time. The request of an interrupted call stays pending, and the
 * same request waits for its reply. That reply may come while another call looks at the socket: it
 * is then kept. Until the call was repeated nothing else is sent but DETACH.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "libclient/client.h"
#include "libclient/gpu/gpu.h"

/* FNV-1a, 64 bits (Fowler, Noll, Vo): offset basis and prime. */
#define REQUEST_DIGEST_BASIS 0xcbf29ce484222325ull
#define REQUEST_DIGEST_PRIME 0x100000001b3ull
/* The `broken` word and its NOTICE are written one right after the other. */
#define REQUEST_NOTICE_NS ZI_NS_PER_S
/* Messages that may lie on the socket unasked before they count as a flood. */
#define REQUEST_NOTICES_MAX 16u

/* The daemon waits for the others until timeout_ms and then names who did not come; we wait a
 * little longer, so that this answer still arrives. Over several nodes the daemon asks the other
 * nodes first, twice where two calls are late one after the other. */
uint64_t zi_client_deadline_ns(const struct zinf *zinf)
{
	uint64_t grace_ns = ZI_MIN(zinf->timeout_ns / 4, ZI_NS_PER_S);

	if (zinf->attach.local_world_size)
		grace_ns += 2 * ZI_NODE_ANSWER_NS;
	return zi_clock_deadline_ns(zinf->timeout_ns + grace_ns);
}

/**
 * zi_client_over() - the session ends, or has ended
 * @error: a negative errno; @text: why
 *
 * Return: the error of the first end, whose text becomes the text of this failure.
 */
int zi_client_over(struct zinf *zinf, int error, const struct zi_text *text)
{
	assert(error < 0);
	if (!zinf->over) {
		const uint64_t one = 1;

		zinf->over = error;
		zinf->over_text = *text;
		/* An eventfd that was 0 takes a 1; during attach there is none yet. */
		if (zinf->end_fd >= 0 && write(zinf->end_fd, &one, sizeof(one)) < 0)
			assert(errno == EAGAIN);
	}
	return err_origin(zi_client_tell(zinf, zinf->over, &zinf->over_text));
}

/* The peer does what no zinfd does. Return: -EPROTO, or how the session ended before. */
int zi_client_breach(struct zinf *zinf, const char *what)
{
	struct zi_text text;

	zi_text_set(&text, "zinfd at %s broke the protocol: %s", zinf->path, what);
	zinf->is_breached = true;
	return err_trace(zi_client_over(zinf, -EPROTO, &text));
}

static int end_gone(struct zinf *zinf)
{
	struct zi_text text;

	zi_text_set(&text,
	            "zinfd at %s went away; attach again: the job is at its last committed step",
	            zinf->path);
	return err_trace(zi_client_over(zinf, -ESTALE, &text));
}

static struct zi_message_header *buffer_of(struct zinf *zinf)
{
	return zinf->message;
}

/* Of a daemon that gives no words: something to look for at least. */
static struct zi_text words_of(const struct zinf *zinf, int error, const struct zi_text *told)
{
	struct zi_text text = *told;

	if (!text.chars[0])
		zi_text_set(&text, "zinfd at %s returned %s without a reason: see its log",
		            zinf->path, zi_err_name(error));
	return text;
}

/* A NOTICE, or an ERROR to no request of ours: the daemon ends the session, and says why. */
static int take_notice(struct zinf *zinf, const struct zi_message_header *message)
{
	const struct zi_notice *notice = (const struct zi_notice *)message;
	const struct zi_error_message *error = (const struct zi_error_message *)message;
	bool is_notice = message->type == ZI_MESSAGE_NOTICE;
	int told = is_notice ? notice->error : error->error;
	struct zi_text text;

	assert(is_notice || message->type == ZI_MESSAGE_ERROR);
	if (told >= 0)
		told = is_notice ? -EPIPE : -EPROTO;
	text = words_of(zinf, told, is_notice ? &notice->text : &error->text);
	return err_trace(zi_client_over(zinf, told, &text));
}

static void close_fds(int *fds, uint32_t fd_count)
{
	for (uint32_t i = 0; i < fd_count; i++)
		fds[i] = zi_close(fds[i]);
}

/* One packet into the buffer. 0; -EAGAIN none is there; otherwise the session is over. */
static int receive_one(struct zinf *zinf, int *fds, uint32_t *ret_fd_count)
{
	struct zi_text what = { "garbage on the socket" };
	int r = zi_message_receive(zinf->socket_fd, buffer_of(zinf), fds, ret_fd_count);

	if (r == -EAGAIN)
		return r;
	if (r == -EPROTO)
		return err_trace(zi_client_breach(zinf, what.chars));
	if (r)
		return err_trace(end_gone(zinf));
	r = zi_message_check(buffer_of(zinf), &what);
	if (!r)
		return 0;
	if (fds)
		close_fds(fds, *ret_fd_count);
	return err_trace(zi_client_breach(zinf, what.chars));
}

static void swap_buffers(struct zinf *zinf)
{
	void *message = zinf->message;

	zinf->message = zinf->pending.message;
	zinf->pending.message = message;
}

/* What was just received, with (@fd_count,) @fds, while a request is pending. Return: whether it is
 * the reply, which is kept; else its descriptors are closed. */
static bool keep_reply(struct zinf *zinf, int *fds, uint32_t fd_count)
{
	struct zi_client_pending *pending = &zinf->pending;

	if (buffer_of(zinf)->sequence != pending->sequence ||
	    buffer_of(zinf)->type == ZI_MESSAGE_NOTICE) {
		close_fds(fds, fd_count);
		return false;
	}
	memcpy(pending->fds, fds, fd_count * sizeof(*fds));
	pending->fd_count = fd_count;
	swap_buffers(zinf);
	pending->has_reply = true;
	return true;
}

/* The reply that was kept is what was just received. @fds: as in receive_one(). */
static void take_kept_reply(struct zinf *zinf, int *fds, uint32_t *ret_fd_count)
{
	struct zi_client_pending *pending = &zinf->pending;

	swap_buffers(zinf);
	pending->has_reply = false;
	if (fds)
		memcpy(fds, pending->fds, pending->fd_count * sizeof(*fds));
	else
		close_fds(pending->fds, pending->fd_count);
	*ret_fd_count = fds ? pending->fd_count : 0;
	pending->fd_count = 0;
}

/**
 * zi_client_read_notices() - take in what the daemon says unasked
 *
 * Replies that come after their request's deadline passed are dropped here.
 * Return: 0, or how the session ended. Never waits.
 */
int zi_client_read_notices(struct zinf *zinf)
{
	for (uint32_t i = 0; i < REQUEST_NOTICES_MAX; i++) {
		bool is_awaited = zinf->pending.is_open && !zinf->pending.has_reply;
		int fds[ZI_MESSAGE_FDS_MAX];
		uint32_t fd_count = 0;
		int r = receive_one(zinf, is_awaited ? fds : NULL, is_awaited ? &fd_count : NULL);

		if (r == -EAGAIN)
			return 0;
		if (r)
			return err_trace(r);
		if (is_awaited && keep_reply(zinf, fds, fd_count))
			continue;
		if (buffer_of(zinf)->type == ZI_MESSAGE_NOTICE ||
		    (buffer_of(zinf)->type == ZI_MESSAGE_ERROR && !buffer_of(zinf)->sequence))
			return err_trace(take_notice(zinf, buffer_of(zinf)));
		if (buffer_of(zinf)->sequence > zinf->sequence)
			return err_trace(zi_client_breach(zinf, "a reply to nothing"));
	}
	return err_trace(zi_client_breach(zinf, "a flood of messages"));
}

/* The socket has hung up: its last words, if any, say more than that. Return: how it ended. */
int zi_client_gone(struct zinf *zinf)
{
	int r = zi_client_read_notices(zinf);

	return r ? err_trace(r) : err_trace(end_gone(zinf));
}

/* 0: @events, or a hang-up that the next call will find. -ETIMEDOUT without a text; -EINTR with
 * one. */
static int wait_socket(struct zinf *zinf, short events, uint64_t deadline_ns)
{
	struct pollfd ready[2] = {
		{ .fd = zinf->socket_fd, .events = events },
		{ .fd = zi_client_interrupt_fd(zinf), .events = POLLIN },
	};
	int r;

	do {
		if (zi_client_take_interrupt(zinf))
			return err_trace(zi_client_interrupted(zinf));
		r = poll(ready, ZI_COUNT_OF(ready), zi_clock_poll_ms(deadline_ns));
	} while ((r < 0 && errno == EINTR) || (r > 0 && !ready[0].revents));
	if (r < 0)
		return err_origin(-errno);
	return r ? 0 : -ETIMEDOUT;
}

/* The `broken` word is set: its NOTICE is there, or about to be. */
static int take_broken(struct zinf *zinf, uint32_t error)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(REQUEST_NOTICE_NS);
	bool held = zinf->holds_interrupts;
	struct zi_text text;
	int r;

	zinf->holds_interrupts = true; /* It takes a second at most. */
	do
		r = zi_client_read_notices(zinf);
	while (!r && wait_socket(zinf, POLLIN, deadline_ns) == 0);
	zinf->holds_interrupts = held;
	if (r)
		return err_trace(r);
	if (error > INT16_MAX)
		return err_trace(zi_client_breach(zinf, "an invalid error"));
	zi_text_set(&text, "the group is over: %s; detach, then attach again",
	            strerror((int)error));
	return err_trace(zi_client_over(zinf, -(int)error, &text));
}

/* Return: 0 while there is a session; otherwise how it ended, with its text. */
int zi_client_check_session(struct zinf *zinf)
{
	uint32_t broken;

	if (zinf->over)
		return err_trace(zi_client_over(zinf, zinf->over, &zinf->over_text));
	broken = zi_line_load(&zinf->down->broken);
	return broken ? err_trace(take_broken(zinf, broken)) : 0;
}

/* Sends, waiting for room. Return: 0; -ETIMEDOUT, -EINTR: it is not sent; or how the session ended.
 * */
int zi_client_send(struct zinf *zinf, const struct zi_message_header *message, uint64_t deadline_ns)
{
	for (;;) {
		int r = zi_message_send(zinf->socket_fd, message, NULL, 0);

		if (!r)
			return 0;
		if (r != -EAGAIN)
			return err_trace(zi_client_gone(zinf));
		r = wait_socket(zinf, POLLOUT, deadline_ns);
		if (r == -EINTR)
			return err_trace(r);
		if (r)
			return zi_client_error(zinf, r, "zinfd at %s does not read its socket",
			                       zinf->path);
	}
}

/* A reply that is not what was asked for: an error to hand on, or nonsense. */
static int refuse_reply(struct zinf *zinf, enum zi_message_type wanted)
{
	const struct zi_error_message *error = (const struct zi_error_message *)buffer_of(zinf);
	struct zi_text what;

	if (error->header.type == ZI_MESSAGE_ERROR && error->error < 0) {
		what = words_of(zinf, error->error, &error->text);
		return err_origin(zi_client_tell(zinf, error->error, &what));
	}
	zi_text_set(&what, "%s where %s was expected", zi_message_name(error->header.type),
	            zi_message_name((uint16_t)wanted));
	return err_trace(zi_client_breach(zinf, what.chars));
}

/* Whether the message in the buffer answers an earlier request, whose deadline has passed. */
static bool is_stale(const struct zinf *zinf, const struct zi_message_header *message)
{
	return message->sequence && message->sequence < zinf->sequence;
}

/**
 * zi_client_receive() - the reply to the newest request
 * @type: that it should have
 * @ret_message: in the one buffer; valid until the next message
 * @fds: (ZI_MESSAGE_FDS_MAX,) of which (@fd_count,), or with ZI_CLIENT_FDS_ANY (zinf->fd_count,)
 * are the caller's on success; NULL when 0
 *
 * Return: 0; the errno of an ERROR, with its text; -ETIMEDOUT; -EINTR, and it may be called again;
 * or how the session ended.
 */
int zi_client_receive(struct zinf *zinf, enum zi_message_type type, uint64_t deadline_ns,
                      const struct zi_message_header **ret_message, int *fds, uint32_t fd_count)
{
	struct zi_message_header *message;

	for (;;) {
		uint32_t got_count = 0;
		int r = 0;

		if (zinf->pending.has_reply)
			take_kept_reply(zinf, fds, &got_count);
		else
			r = receive_one(zinf, fds, &got_count);
		message = buffer_of(zinf);
		if (r == -EAGAIN) {
			r = wait_socket(zinf, POLLIN, deadline_ns);
			if (r == -EINTR)
				return err_trace(r);
			if (r)
				return zi_client_error(zinf, r,
				                       "no answer from zinfd at %s within %llu ms",
				                       zinf->path, zinf->timeout_ns / ZI_NS_PER_MS);
			continue;
		}
		if (r)
			return err_trace(r);
		if (message->type == (uint16_t)type && message->sequence == zinf->sequence &&
		    (got_count == fd_count || fd_count == ZI_CLIENT_FDS_ANY)) {
			zinf->fd_count = got_count;
			*ret_message = message;
			return 0;
		}
		close_fds(fds, got_count);
		if (is_stale(zinf, message))
			continue;
		if (message->type == ZI_MESSAGE_NOTICE ||
		    (message->type == ZI_MESSAGE_ERROR && !message->sequence))
			return err_trace(take_notice(zinf, message));
		if (message->type == (uint16_t)type)
			return err_trace(zi_client_breach(
				zinf, "a reply out of order, or with other descriptors"));
		return err_trace(refuse_reply(zinf, type));
	}
}

/* ---- a request whose call was interrupted ---- */

/* The public call that sends @type. */
static const char *call_of(uint16_t type)
{
	switch (type) {
	case ZI_MESSAGE_MATERIALIZE:
		return "zinf_materialize()";
	case ZI_MESSAGE_GPU_OPEN:
		return "zinf_gpu_open()";
	case ZI_MESSAGE_LOAD:
		return "zinf_load()";
	case ZI_MESSAGE_SNAPSHOT:
		return "zinf_snapshot()";
	case ZI_MESSAGE_PARAM_WRITE_BEGIN:
		return "zinf_param_write_begin()";
	case ZI_MESSAGE_PARAM_WRITE_END:
		return "zinf_param_write_end()";
	case ZI_MESSAGE_STATE_OPEN:
	case ZI_MESSAGE_STATE_READ:
		return "zinf_state_read()";
	case ZI_MESSAGE_STATE_WRITE:
		return "zinf_state_write()";
	case ZI_MESSAGE_STATE_COUNT:
		return "zinf_update_count_set()";
	case ZI_MESSAGE_TENSOR_OPEN:
		return "zinf_tensor_open()";
	case ZI_MESSAGE_COLL_OPEN:
		return "zinf_coll_open()";
	case ZI_MESSAGE_COLL_GROUP:
		return "zinf_coll_group()";
	case ZI_MESSAGE_DESTROY:
		return "zinf_destroy_job()";
	default:
		return zi_message_name(type);
	}
}

/* Of the payload: only to find a call that is repeated with other arguments by mistake. */
static uint64_t digest_of(const struct zi_message_header *request, uint32_t bytes)
{
	const unsigned char *chars = (const unsigned char *)request;
	uint64_t digest = REQUEST_DIGEST_BASIS;

	for (uint32_t i = sizeof(*request); i < bytes; i++)
		digest = (digest ^ chars[i]) * REQUEST_DIGEST_PRIME;
	return digest;
}

/* See client.h. */
int zi_client_check_pending(struct zinf *zinf)
{
	if (!zinf->pending.is_open)
		return 0;
	return zi_client_error(zinf, -EBUSY,
	                       "%s was interrupted: repeat that call with the same arguments first",
	                       call_of(zinf->pending.type));
}

/* Sends @request, unless it is pending. */
static int begin_request(struct zinf *zinf, struct zi_message_header *request,
                         enum zi_message_type type, uint16_t flags, uint32_t bytes,
                         uint64_t deadline_ns)
{
	struct zi_client_pending *pending = &zinf->pending;
	uint64_t digest = digest_of(request, bytes) ^ flags;

	if (pending->is_open && pending->type == (uint16_t)type && pending->digest == digest) {
		assert(pending->sequence == zinf->sequence);
		return 0;
	}
	if (pending->is_open && type != ZI_MESSAGE_DETACH)
		return err_trace(zi_client_check_pending(zinf));
	zi_message_init(request, type, bytes, ++zinf->sequence);
	request->flags = flags;
	pending->type = (uint16_t)type;
	pending->sequence = zinf->sequence;
	pending->digest = digest;
	return err_trace(zi_client_send(zinf, request, deadline_ns));
}

/* Frees what came for a call that was never repeated. */
void zi_client_pending_deinit(struct zinf *zinf)
{
	close_fds(zinf->pending.fds, zinf->pending.fd_count);
	free(zinf->pending.message);
}

/**
 * zi_client_request() - one request and its reply
 * @request: (@bytes,) its header is filled here
 *
 * After -EINTR the same request is pending, and is called again.
 * See zi_client_receive() for the reply.
 */
int zi_client_request(struct zinf *zinf, struct zi_message_header *request,
                      enum zi_message_type type, uint32_t bytes, enum zi_message_type reply_type,
                      const struct zi_message_header **ret_reply, int *fds, uint32_t fd_count)
{
	return err_trace(zi_client_request_with(zinf, request, type, 0, bytes, reply_type,
	                                        ret_reply, fds, fd_count));
}

/* See client.h. */
int zi_client_request_with(struct zinf *zinf, struct zi_message_header *request,
                           enum zi_message_type type, uint16_t flags, uint32_t bytes,
                           enum zi_message_type reply_type,
                           const struct zi_message_header **ret_reply, int *fds, uint32_t fd_count)
{
	uint64_t deadline_ns;
	int r = 0;

	/* A wait on the socket looks for no copies. Between steps the daemon has all units. */
	if (zinf->gpu && type != ZI_MESSAGE_DETACH)
		r = zi_client_gpu_settle(zinf);
	deadline_ns = zi_client_deadline_ns(zinf);
	if (!r)
		r = begin_request(zinf, request, type, flags, bytes, deadline_ns);
	if (r)
		return err_trace(r);
	r = zi_client_receive(zinf, reply_type, deadline_ns, ret_reply, fds, fd_count);
	zinf->pending.is_open = r == -EINTR;
	return err_trace(r);
}
