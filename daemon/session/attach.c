/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ATTACH: rings, doorbells and a place in a job; and what a client is told when its group is over.
 * Floor 6, shard thread.
 */
#include "daemon/session/attach.h"

#include <sys/epoll.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/session/complete.h"
#include "daemon/session/reaper.h"
#include "daemon/session/request.h"
#include "daemon/session/request_answer.h"
#include "daemon/session/rings.h"
#include "daemon/session/sess.h"

/* Nothing to do: the poller looks at every ring before the loop sleeps again. */
static void sess_doorbell_ready(struct zi_source *source, uint32_t epoll_events)
{
	(void)source;
	(void)epoll_events;
}

static int sess_watch(struct sess_shard *shard, struct sess *session)
{
	int r;

	r = zi_loop_add(shard->loop, &session->socket_source, session->socket_fd,
	                EPOLLIN | EPOLLRDHUP, sess_socket_ready);
	if (!r)
		r = zi_loop_add(shard->loop, &session->pidfd_source, session->pidfd, EPOLLIN,
		                sess_pidfd_ready);
	/* Edge-triggered and never read, which saves a system call per wake-up: each write of the
	 * client is an edge. The counter is the client's to play with: one that reads it or fills
	 * it (its own writes block then) loses wake-ups of its own requests, and nobody else's. */
	if (!r)
		r = zi_loop_add(shard->loop, &session->doorbell_source, session->doorbell_fd,
		                EPOLLIN | EPOLLET, sess_doorbell_ready);
	return err_trace(r);
}

static void sess_unwatch(struct sess *session)
{
	zi_loop_remove(&session->socket_source);
	zi_loop_remove(&session->pidfd_source);
	zi_loop_remove(&session->doorbell_source);
}

static int sess_send_attached(struct sess_shard *shard, struct sess *session,
                              uint64_t incarnation_number, int client_fd)
{
	struct zi_attached message = {
		.session_id = session->id,
		.ring_entries = session->sq.entries,
		.coll_timeout_ms = session->features & ZI_FEATURE_COLL_ABORT
		                           ? shard->limits.coll_timeout_ms
		                           : 0,
		.uplink_bytes = session->uplink->region.bytes,
		.downlink_bytes = session->downlink->region.bytes,
		.incarnation_number = incarnation_number,
		.lost_step =
			session->features & ZI_FEATURE_LOST ? zero_lost_step(session->rank) : 0,
	};
	_cleanup_(zi_closep) int downlink_fd = -1;
	int r;

	r = tier_segment_readonly_fd(session->downlink, &downlink_fd);
	if (r)
		return err_trace(r);
	zi_message_init(&message.header, ZI_MESSAGE_ATTACHED, sizeof(message),
	                session->attach.header.sequence);
	return err_trace(zi_message_send(
		session->socket_fd, &message.header,
		(int[]){ session->uplink->region.fd, downlink_fd, session->doorbell_fd, client_fd },
		4));
}

static int sess_join(struct sess_shard *shard, struct sess *session, struct zi_text *text,
                     uint64_t *ret_incarnation_number)
{
	const struct zero_attach attach = {
		.job = session->attach.job,
		.incarnation = session->attach.incarnation,
		.uid = session->uid,
		.pid = session->pid,
		.rank = session->attach.rank,
		.world_size = session->attach.world_size,
		.local_size = session->attach.local_world_size ? session->attach.local_world_size
		                                               : session->attach.world_size,
		.takeover = session->attach.flags & ZI_ATTACH_TAKEOVER,
		.must_exist = session->attach.flags & ZI_ATTACH_MUST_EXIST,
		.config = session->attach.config,
		.training = session->training,
		.timeout_ns = session->attach.timeout_ms * ZI_NS_PER_MS,
		.broken = sess_broken,
		.broken_arg = session,
	};

	int r;

	r = zero_attach(shard->zero, &attach, text, &session->rank, ret_incarnation_number);
	if (r == -EBUSY && sess_reap_gone(shard, attach.job))
		r = zero_attach(shard->zero, &attach, text, &session->rank, ret_incarnation_number);
	return err_trace(r);
}

/* Everything but becoming visible to the poller; undone by the caller. */
static int sess_attach_parts(struct sess_shard *shard, struct sess *session, struct zi_text *text)
{
	_cleanup_(zi_closep) int client_fd = -1;
	uint64_t incarnation_number;
	int r;

	r = sess_rings_make(shard, session, text);
	if (r)
		return err_trace(r);
	r = sess_rings_make_doorbells(session, &client_fd);
	if (!r)
		r = sess_watch(shard, session);
	if (!r) /* Last of what can fail on our side: others see it when it fails after this. */
		r = sess_join(shard, session, text, &incarnation_number);
	if (!r)
		r = sess_send_attached(shard, session, incarnation_number, client_fd);
	return err_trace(r);
}

/**
 * sess_attach() - make a session of a connection
 * @session: MOVING; its ATTACH is checked and lies in session->attach
 * @text: of a refusal
 *
 * Return: 0, ATTACHED was sent; or the errno of zero_attach(), -ENOSPC and -EDQUOT for the rings,
 * -EMFILE; nothing is left of the attempt then. Context: shard thread.
 */
int sess_attach(struct sess_shard *shard, struct sess *session, struct zi_text *text)
{
	int r;

	assert(shard->polled_count < shard->limits.sessions_max);
	r = sess_attach_parts(shard, session, text);
	if (r) {
		sess_unwatch(session);
		if (session->rank)
			zero_rank_leave(zi_steal(session->rank), true, "its attach failed");
		sess_rings_free(session);
		if (!text->chars[0])
			zi_text_set(text, "attaching failed in the daemon: %s", zi_err_name(r));
		return err_trace(r);
	}
	sess_set_state(session, SESS_ATTACHED);
	session->ref_count = 1;
	session->polled_index = shard->polled_count;
	shard->polled[shard->polled_count++] = session;
	sess_rings_publish_spin(shard);
	log_debug("Attached session=%llu pid=%d uid=%u job=%s rank=%u/%u",
	          (unsigned long long)session->id, session->pid, session->uid, session->attach.job,
	          session->attach.rank, session->attach.world_size);
	return 0;
}

/**
 * sess_broken() - the group of a session's rank is over (zero_broken_fn)
 * @arg: the session
 * @error: -errno
 * @culprit: rank that caused it, UINT32_MAX: the daemon
 * @text: for people
 *
 * Pending operations have been completed before. Context: shard thread, inside zero.
 */
void sess_broken(void *arg, int error, uint32_t culprit, const struct zi_text *text)
{
	struct sess *session = arg;
	struct zi_notice notice = { .error = error, .rank = culprit };
	struct zi_downlink_header *downlink;

	assert(error < 0);
	if (session->broken || !session->downlink)
		return;
	session->broken = error;
	session->broken_text = *text;
	/* The words alone: what lies behind them in @text is this thread's stack. */
	zi_text_set(&notice.text, "%s", text->chars);
	downlink = session->downlink->region.base;
	zi_line_store(&downlink->broken, (uint32_t)-error);
	zi_message_init(&notice.header, ZI_MESSAGE_NOTICE, sizeof(notice), 0);
	sess_sent(session, zi_message_send(session->socket_fd, &notice.header, NULL, 0));
	sess_wake_always(session);
}
