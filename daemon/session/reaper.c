/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a session ends: by DETACH, by its socket, by its process, by a breach of the protocol. Floor
 * 6, shard thread.
 *
 * A session is over when its socket *or* its pidfd says so: a forked child may hold the socket
 * open, and a living process may close it. A process that is killed closes its socket first and is
 * gone a moment later; so a hang-up waits SESS_GONE_NS for the pidfd, in order to tell the others
 * which of the two it was.
 *
 * Its rank leaves at once. The session itself stays until every operation has come back (they write
 * completions into its memory), which ref_count counts; then, in a turn of its own so that nobody
 * up the stack holds a pointer, its rings are given back, and it goes to the control thread.
 */
#include "daemon/session/reaper.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/session/control.h"
#include "daemon/session/request_gpu.h"
#include "daemon/session/rings.h"
#include "daemon/session/sess.h"

/* Between the close of a dying process's socket and its end lies the rest of its exit: freeing
 * memory, mostly. A tenth of the second within which the others must know. */
#define SESS_GONE_NS (100 * ZI_NS_PER_MS)

static void sess_release(struct zi_post *post)
{
	struct sess *session = container_of(post, struct sess, post);

	assert(session->state == SESS_ENDING);
	assert(!session->inflight_count);
	assert(!session->is_requesting);
	sess_rings_free(session);
	assert(session->shard->ending_count > 0);
	session->shard->ending_count--;
	sess_set_state(session, SESS_LEAVING);
	sess_control_take_back(session);
}

/* One more reason for a session to stay. Context: shard thread. */
void sess_ref(struct sess *session)
{
	assert(session->ref_count > 0);
	session->ref_count++;
}

/* One less; after the last one the session goes, in a turn of its own. Context: shard thread. */
void sess_unref(struct sess *session)
{
	assert(session->ref_count > 0);
	if (--session->ref_count > 0)
		return;
	zi_loop_post(session->shard->loop, &session->post, sess_release);
}

static void sess_unpoll(struct sess *session)
{
	struct sess_shard *shard = session->shard;
	struct sess *last = shard->polled[--shard->polled_count];

	assert(session->polled_index <= shard->polled_count);
	assert(shard->polled[session->polled_index] == session);
	shard->polled[session->polled_index] = last;
	last->polled_index = session->polled_index;
	if (session->is_doomed) {
		assert(shard->doomed_count > 0);
		shard->doomed_count--;
	}
	shard->ending_count++;
}

/**
 * sess_end() - end an attached session now
 * @is_clean: it asked to leave, or the daemon wants it to
 * @reason: for the others of its group and the log
 *
 * Context: shard thread, at the top of a turn: zero_rank_leave() completes operations and calls the
 * others' broken callbacks, so it must not be called from inside zero (sess_doom()).
 */
void sess_end(struct sess *session, bool is_clean, const char *reason)
{
	sess_set_state(session, SESS_ENDING);
	sess_unpoll(session);
	zi_loop_remove(&session->socket_source);
	zi_loop_remove(&session->pidfd_source);
	zi_loop_remove(&session->doorbell_source);
	zi_loop_disarm(&session->timer);
	if (!is_clean && sess_uid_may_log(session->shard->uids, session->uid))
		log_warning("Session ended session=%llu uid=%u job=%s rank=%u: %s",
		            (unsigned long long)session->id, session->uid, session->attach.job,
		            session->attach.rank, reason);
	sess_gpu_end(session);
	if (session->rank)
		zero_rank_leave(zi_steal(session->rank), is_clean, reason);
	sess_rings_publish_spin(session->shard);
	sess_unref(session);
}

/**
 * sess_doom() - end an attached session at the end of the poller's turn
 * @format: the reason, as for sess_end()
 *
 * The first reason stands. Context: shard thread, anywhere.
 */
void sess_doom(struct sess *session, bool is_clean, const char *format, ...)
{
	va_list args;

	assert(session->state == SESS_ATTACHED);
	if (session->is_doomed)
		return;
	va_start(args, format);
	(void)vsnprintf(session->end_reason, sizeof(session->end_reason), format, args); /* Cut. */
	va_end(args);
	session->is_doomed = true;
	session->is_clean = is_clean;
	session->shard->doomed_count++;
}

/* Ending one may doom others, which come in the same sweep or the next turn. */
void sess_reap_doomed(struct sess_shard *shard)
{
	for (uint32_t i = shard->polled_count; i-- > 0;) {
		struct sess *session;

		if (i >= shard->polled_count)
			continue;
		session = shard->polled[i];
		if (!session->is_doomed)
			continue;
		if (!session->is_clean) /* It may still be listening; if not, no harm. */
			(void)sess_send_error(session, 0, -EPROTO, session->end_reason);
		sess_end(session, session->is_clean, session->end_reason);
	}
}

static bool sess_is_gone(const struct sess *session)
{
	struct pollfd poll_fd = { .fd = session->pidfd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) > 0;
}

static void sess_end_died(struct sess *session)
{
	char reason[128];
	int status = 0;

	if (zi_pidfd_status(session->pidfd, session->pid, &status))
		(void)snprintf(reason, sizeof(reason), "process %d died", session->pid); /* Fits. */
	else if (WIFSIGNALED(status))
		(void)snprintf(reason, sizeof(reason), "process %d was killed by signal %d (%s)",
		               session->pid, WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		(void)snprintf(reason, sizeof(reason),
		               "process %d exited with %d and did not detach", session->pid,
		               WEXITSTATUS(status)); /* Fits, as do the others. */
	sess_end(session, false, reason);
}

static void sess_gone_due(struct zi_timer *timer)
{
	struct sess *session = container_of(timer, struct sess, timer);
	char reason[96];

	if (sess_is_gone(session)) {
		sess_end_died(session);
		return;
	}
	(void)snprintf(reason, sizeof(reason), "process %d closed its socket without detaching",
	               session->pid); /* Fits. */
	sess_end(session, false, reason);
}

/**
 * sess_reap_gone() - end the sessions of a job whose processes are no more
 *
 * The loop tells of them too, but whoever was started after their end may come before: it must not
 * hear that they live. Return: how many there were. Context: as sess_end().
 */
uint32_t sess_reap_gone(struct sess_shard *shard, const char *job)
{
	uint32_t gone_count = 0;

	for (uint32_t i = shard->polled_count; i-- > 0;) {
		struct sess *session = shard->polled[i];

		if (strcmp(session->attach.job, job) != 0 || !sess_is_gone(session))
			continue;
		sess_end_died(session); /* The last one takes its place, which was looked at. */
		gone_count++;
	}
	return gone_count;
}

/* The pidfd is readable. */
void sess_pidfd_ready(struct zi_source *source, uint32_t epoll_events)
{
	struct sess *session = container_of(source, struct sess, pidfd_source);

	(void)epoll_events; /* A pidfd has one event. */
	sess_end_died(session);
}

/* The socket is at its end. */
void sess_hung_up(struct sess *session)
{
	struct sess_shard *shard = session->shard;

	zi_loop_remove(&session->socket_source);
	if (sess_is_gone(session)) {
		sess_end_died(session);
		return;
	}
	zi_loop_arm(shard->loop, &session->timer, zi_clock_deadline_ns(SESS_GONE_NS),
	            sess_gone_due);
}
