/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completions: the text of a failure into its slot, the CQE into the ring, and the client woken
 * when it sleeps. Floor 6, shard thread.
 *
 * The client's doorbell is the read end of a pipe with 8-byte tokens, which polls and reads like an
 * eventfd. It is not an eventfd, because descriptors passed over a socket share their open file:
 * a client could clear O_NONBLOCK on it, fill the counter, and so block this thread, hence
 * everyone, in write(). The write end of a pipe is ours alone, and a full pipe is an -EAGAIN that
 * may be ignored: the client has enough to wake up from.
 */
#include "daemon/session/complete.h"

#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/session/reaper.h"
#include "daemon/session/sess.h"

/* Text slots are used round-robin: a client that is ZI_TEXT_SLOTS failures behind reads the text of
 * a later one. They are for people. Return: 1 + slot. */
static uint32_t sess_put_text(struct sess *session, const struct zi_text *text)
{
	uint32_t slot = session->text_next++ % ZI_TEXT_SLOTS;
	size_t text_bytes;
	char *target = (char *)session->downlink->region.base +
	               zi_downlink_text_offset(session->cq.entries) +
	               (uint64_t)slot * ZI_ERROR_TEXT_BYTES;

	static_assert(sizeof(text->chars) == ZI_ERROR_TEXT_BYTES, "a text fits a slot");
	/* The words alone: what lies behind them in @text is memory of the daemon. */
	text_bytes = strnlen(text->chars, ZI_ERROR_TEXT_BYTES - 1);
	memcpy(target, text->chars, text_bytes);
	memset(target + text_bytes, 0, ZI_ERROR_TEXT_BYTES - text_bytes);
	return slot + 1;
}

/**
 * sess_complete() - one completion
 * @session: attached
 * @sqe: user_data of the request; args[0] to [2]: its values when it succeeded
 * @result: 0 or -errno
 * @text: why it failed; NULL or empty: nothing to say
 *
 * The client is woken at the end of the poller's turn, once for all of its completions.
 */
void sess_complete(struct sess *session, const struct zi_sqe *sqe, int result,
                   const struct zi_text *text)
{
	struct zi_cqe cqe = { .user_data = sqe->user_data, .result = result };
	int r;

	assert(result <= 0);
	if (result < 0 && text && text->chars[0])
		cqe.text_index = sess_put_text(session, text);
	if (!result) { /* Checked to be zero where there is no value. */
		cqe.values[0] = sqe->args[0];
		cqe.values[1] = sqe->args[1];
		cqe.values[2] = sqe->args[2];
	}
	r = zi_ring_push(&session->cq, &cqe);
	if (r) /* Credit says there is room: the client has moved its head back. */
		sess_doom(session, false, "process %d broke the protocol: its cq_head lies",
		          session->pid);
	session->is_wake_due = true;
}

/* Fails only with a full pipe (it wakes up anyhow) or a closed one (its end comes by the socket,
 * and main ignores SIGPIPE). */
static void sess_ring_doorbell(struct sess *session)
{
	static const uint64_t token = 1;
	ssize_t written = write(session->client_doorbell_fd, &token, sizeof(token));

	(void)written;
}

/* Wakes the client if it sleeps on its completion ring. */
void sess_wake(struct sess *session)
{
	session->is_wake_due = false;
	if (zi_ring_must_wake(&session->cq))
		sess_ring_doorbell(session);
}

/* As sess_wake(), whether or not it seems to sleep. */
void sess_wake_always(struct sess *session)
{
	session->is_wake_due = false;
	sess_ring_doorbell(session);
}
