/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ATTACH: rings, doorbells and a place in a job; and what every client is told in its downlink.
 * Floor 6, shard thread.
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/session/sess.h"

/* One small region, charged to the uid, with no huge pages: a ring is 80 KiB. */
static int sess_make_region(struct sess_shard *shard, struct sess *session, const char *name,
                            uint64_t bytes, struct zi_text *text, struct tier_segment **ret_segment)
{
	struct tier_account *account = zero_account(shard->zero, session->uid);

	if (!account)
		return err_origin(-ENOMEM);
	return err_trace(tier_segment_new(shard->ring_tier, account, name, bytes, TIER_PAGES_SMALL,
	                                  text, ret_segment));
}

static int sess_make_rings(struct sess_shard *shard, struct sess *session, struct zi_text *text)
{
	uint32_t entries = shard->limits.ring_entries;
	struct zi_downlink_header *downlink;
	int r;

	r = sess_make_region(shard, session, "zinf-uplink", zi_uplink_bytes(entries), text,
	                     &session->uplink);
	if (r)
		return err_trace(r);
	r = sess_make_region(shard, session, "zinf-downlink", zi_downlink_bytes(entries), text,
	                     &session->downlink);
	if (r)
		return err_trace(r);
	downlink = session->downlink->region.base;
	downlink->magic = ZI_DOWNLINK_MAGIC;
	downlink->version = ZI_REGION_VERSION;
	downlink->entries = entries;
	zi_ring_sq_consumer(&session->sq, session->uplink->region.base, downlink, entries);
	zi_ring_cq_producer(&session->cq, session->uplink->region.base, downlink, entries);
	return 0;
}

/* @ret_fds: read end for the client, write end for us; neither ever blocks anybody. */
static int sess_make_doorbells(struct sess *session, int *ret_read_fd)
{
	int pipe_fds[2];

	session->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (session->doorbell_fd < 0)
		return err_origin(-errno);
	if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK))
		return err_origin(-errno);
	session->client_doorbell_fd = pipe_fds[1];
	*ret_read_fd = pipe_fds[0];
	return 0;
}

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

/* From here on the process holds the memory, until it is gone. */
static int sess_send_attached(struct sess_shard *shard, struct sess *session,
                              uint64_t incarnation_number, int client_fd)
{
	struct zi_attached message = {
		.session_id = session->id,
		.ring_entries = session->sq.entries,
		.uplink_bytes = session->uplink->region.bytes,
		.downlink_bytes = session->downlink->region.bytes,
		.incarnation_number = incarnation_number,
	};
	int downlink_fd;
	int r;

	r = tier_segment_readonly_fd(session->downlink, &downlink_fd);
	if (!r)
		r = tier_holders_add(shard->holders, session->pid, session->pidfd, session->uplink);
	if (!r)
		r = tier_holders_add(shard->holders, session->pid, session->pidfd,
		                     session->downlink);
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
		.pidfd = session->pidfd,
		.rank = session->attach.rank,
		.world_size = session->attach.world_size,
		.takeover = session->attach.flags & ZI_ATTACH_TAKEOVER,
		.config = session->attach.config,
		.timeout_ns = session->attach.timeout_ms * ZI_NS_PER_MS,
		.broken = sess_broken,
		.broken_arg = session,
	};

	return err_trace(
		zero_attach(shard->zero, &attach, text, &session->rank, ret_incarnation_number));
}

/* Everything but becoming visible to the poller; undone by the caller. */
static int sess_attach_parts(struct sess_shard *shard, struct sess *session, struct zi_text *text)
{
	_cleanup_(zi_closep) int client_fd = -1;
	uint64_t incarnation_number;
	int r;

	r = sess_make_rings(shard, session, text);
	if (r)
		return err_trace(r);
	r = sess_make_doorbells(session, &client_fd);
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
		sess_detach_memory(session);
		if (!text->chars[0])
			zi_text_set(text, "attaching failed in the daemon: %s", zi_err_name(r));
		return err_trace(r);
	}
	sess_set_state(session, SESS_ATTACHED);
	session->ref_count = 1;
	session->polled_index = shard->polled_count;
	shard->polled[shard->polled_count++] = session;
	sess_publish_spin(shard);
	log_debug("Attached session=%llu pid=%d uid=%u job=%s rank=%u/%u",
	          (unsigned long long)session->id, session->pid, session->uid, session->attach.job,
	          session->attach.rank, session->attach.world_size);
	return 0;
}

/* Rings and doorbells; what the process still maps stays with its holder. */
void sess_detach_memory(struct sess *session)
{
	session->client_doorbell_fd = zi_close(session->client_doorbell_fd);
	session->doorbell_fd = zi_close(session->doorbell_fd);
	session->downlink = tier_segment_unref(session->downlink);
	session->uplink = tier_segment_unref(session->uplink);
}

/* Tells clients how long they may spin: while all of them and this thread have a CPU each. */
void sess_publish_spin(struct sess_shard *shard)
{
	uint32_t spin_us = shard->polled_count + 1 <= shard->cpu_count
	                           ? (uint32_t)(shard->limits.spin_ns / ZI_NS_PER_US)
	                           : 0;

	for (uint32_t i = 0; i < shard->polled_count; i++) {
		struct zi_downlink_header *downlink = shard->polled[i]->downlink->region.base;

		zi_line_store(&downlink->spin_us, spin_us);
	}
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
	if (zi_message_send(session->socket_fd, &notice.header, NULL, 0) &&
	    session->state == SESS_ATTACHED)
		sess_doom(session, false, "process %d does not read its socket", session->pid);
	sess_wake_always(session);
}
