/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control thread's half of the sessions: the listening socket, credentials, and the table in
 * which all sessions live. Floor 6, control thread.
 *
 * Bounds: attached sessions by limits.sessions, connections that are not attached by
 * SESS_WAITING_MAX. A flood of connections pushes out those that have been silent longest, so one
 * that says HELLO at once is always heard.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/session/sess.h"

/* Connections taken in one turn: others' messages have their turn in between. */
#define CONTROL_ACCEPTS_PER_TURN 16u
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; not in Debian 12's headers */
#endif

/* A slot without a session. */
static void sess_clear(struct sess_control *control, struct sess *session)
{
	*session = (struct sess){
		.control = control,
		.socket_fd = -1,
		.pidfd = -1,
		.doorbell_fd = -1,
		.client_doorbell_fd = -1,
		.reply_fd = -1,
	};
	zi_list_init(&session->waiting_link);
}

/**
 * sess_control_new() - a control half without sessions
 * @options: copied; what it points to outlives the control
 * @ret_control: the caller's
 *
 * Return: 0, -ENOMEM, -EMFILE.
 */
int sess_control_new(const struct sess_control_options *options, struct sess_control **ret_control)
{
	_cleanup_(sess_control_freep) struct sess_control *control = NULL;

	control = calloc(1, sizeof(*control));
	if (!control)
		return err_origin(-ENOMEM);
	control->loop = options->loop;
	control->shard_loop = options->shard_loop;
	control->shard = options->shard;
	control->limits = *options->limits;
	control->facts = options->facts;
	control->listen_fd = -1;
	control->spare_fd = -1;
	control->started_ns = zi_clock_now_ns();
	control->slot_count = control->limits.sessions_max + SESS_WAITING_MAX;
	zi_list_init(&control->waiting);
	control->sessions = calloc(control->slot_count, sizeof(struct sess));
	control->message = aligned_alloc(64, ZI_MESSAGE_BYTES_MAX);
	if (!control->sessions || !control->message)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < control->slot_count; i++)
		sess_clear(control, &control->sessions[i]);
	control->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (control->spare_fd < 0)
		return err_origin(-errno);
	*ret_control = zi_steal(control);
	return 0;
}

/* NULL-safe, half-built ones too. Every session has come back (sess_control_stop()). */
struct sess_control *sess_control_free(struct sess_control *control)
{
	if (!control)
		return NULL;
	assert(!control->used_count);
	zi_loop_remove(&control->listen_source);
	control->listen_fd = zi_close(control->listen_fd);
	control->spare_fd = zi_close(control->spare_fd);
	free(control->message);
	free(control->sessions);
	free(control);
	return NULL;
}

/* Return: sessions handed to the shard and not come back. Context: control thread. */
uint32_t sess_control_session_count(const struct sess_control *control)
{
	return control->attached_count;
}

static struct sess *sess_find_free(struct sess_control *control)
{
	for (uint32_t i = 0; i < control->slot_count; i++)
		if (!control->sessions[i].is_used)
			return &control->sessions[i];
	return NULL;
}

/* Who is at the other end. A pid may be used again between connect() and here, where the kernel has
 * no SO_PEERPIDFD: then the pidfd must belong to a process of the same uid, and the socket must not
 * have hung up, which it does when the process that made it is gone. */
static int sess_identify(struct sess *session)
{
	struct ucred credentials;
	socklen_t bytes = sizeof(credentials);
	struct stat status;
	char path[32];
	char byte;
	int r;

	if (getsockopt(session->socket_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes))
		return err_origin(-errno);
	session->pid = credentials.pid;
	session->uid = credentials.uid;
	bytes = sizeof(session->pidfd);
	if (!getsockopt(session->socket_fd, SOL_SOCKET, SO_PEERPIDFD, &session->pidfd, &bytes))
		return 0;
	session->pidfd = -1;
	if (errno != ENOPROTOOPT)
		return err_origin(-errno);
	r = zi_pidfd_open(session->pid, &session->pidfd);
	if (r)
		return err_trace(r);
	(void)snprintf(path, sizeof(path), "/proc/%d", session->pid); /* Fits. */
	if (stat(path, &status) || (status.st_uid != session->uid && status.st_uid != 0))
		return err_origin(-ESRCH);
	if (recv(session->socket_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		return err_origin(-ESRCH);
	return 0;
}

/* A connection that no slot can be found for hears why, if it listens. */
static void sess_turn_away(struct sess_control *control, int fd)
{
	struct zi_error_message message = { .error = -EMFILE };

	zi_message_init(&message.header, ZI_MESSAGE_ERROR, sizeof(message), 0);
	zi_text_set(&message.text, "%u connections are being served: try again",
	            control->used_count);
	(void)zi_message_send(fd, &message.header, NULL, 0); /* It is closed next. */
}

/**
 * sess_control_adopt() - take in a connection
 * @fd: connected seqpacket socket; the control's, also on failure
 *
 * Return: 0; -EMFILE no slot; -ESRCH the peer is gone; an errno of its credentials.
 */
int sess_control_adopt(struct sess_control *control, int fd)
{
	struct sess *session = sess_find_free(control);
	int r;

	if (!session && !zi_list_is_empty(&control->waiting)) {
		sess_drop(container_of(control->waiting.next, struct sess, waiting_link));
		session = sess_find_free(control);
	}
	if (!session) {
		sess_turn_away(control, fd);
		(void)zi_close(fd); /* Always -1. */
		return err_origin(-EMFILE);
	}
	sess_set_state(session, SESS_CONNECTED);
	session->is_used = true;
	control->used_count++;
	session->socket_fd = fd;
	session->id = ++control->next_id;
	r = zi_fd_set_nonblock(fd, true);
	if (!r)
		r = sess_identify(session);
	if (!r)
		r = zi_loop_add(control->loop, &session->socket_source, fd, EPOLLIN | EPOLLRDHUP,
		                sess_greet_ready);
	if (r) {
		sess_drop(session);
		return err_trace(r);
	}
	sess_wait_on(session);
	return 0;
}

/* No descriptors are left: the connection would stay in the backlog, and this thread would spin on
 * it. One descriptor is kept to take it with, and to close it. */
static void sess_refuse_with_spare(struct sess_control *control)
{
	int fd;

	control->spare_fd = zi_close(control->spare_fd);
	fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		sess_turn_away(control, fd);
	(void)zi_close(fd); /* Always -1. */
	control->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void sess_listen_ready(struct zi_source *source, uint32_t epoll_events)
{
	struct sess_control *control = container_of(source, struct sess_control, listen_source);

	(void)epoll_events; /* A listening socket has one event that matters. */
	for (uint32_t i = 0; i < CONTROL_ACCEPTS_PER_TURN; i++) {
		int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		int r;

		if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
			sess_refuse_with_spare(control);
			continue;
		}
		if (fd < 0)
			return; /* EAGAIN, or a connection that is gone already. */
		r = sess_control_adopt(control, fd);
		if (r && zi_log_limit_pass(&control->log_limit, 4, ZI_NS_PER_S))
			(void)log_warning_errno(r, "Taking in a connection failed");
	}
}

/**
 * sess_control_listen() - accept connections from now on
 * @listen_fd: listening, non-blocking; the control's, also on failure
 *
 * Return: 0, or an errno of the loop.
 */
int sess_control_listen(struct sess_control *control, int listen_fd)
{
	assert(control->listen_fd < 0);
	control->listen_fd = listen_fd;
	return err_trace(zi_loop_add(control->loop, &control->listen_source, listen_fd, EPOLLIN,
	                             sess_listen_ready));
}

static void sess_check_stopped(struct sess_control *control)
{
	void (*stopped)(void *arg) = control->stopped;

	if (!control->is_stopping || control->used_count || !stopped)
		return;
	control->stopped = NULL;
	stopped(control->stopped_arg);
}

/**
 * sess_control_stop() - take in nobody else
 * @done: runs once, possibly before this returns, when no session is left
 */
void sess_control_stop(struct sess_control *control, void (*done)(void *arg), void *arg)
{
	assert(!control->is_stopping);
	control->is_stopping = true;
	control->stopped = done;
	control->stopped_arg = arg;
	zi_loop_remove(&control->listen_source);
	control->listen_fd = zi_close(control->listen_fd);
	for (uint32_t i = 0; i < control->slot_count; i++) {
		struct sess *session = &control->sessions[i];

		/* Attached ones end in the shard, questions that are out come back by themselves.
		 * */
		if (session->is_used && !session->is_counted && !session->is_asked)
			sess_drop(session);
	}
	sess_check_stopped(control);
}

/* Frees the slot of a session that neither the shard nor a post knows. */
void sess_drop(struct sess *session)
{
	struct sess_control *control = session->control;

	assert(!session->is_asked);
	zi_loop_disarm(&session->timer);
	zi_list_remove(&session->waiting_link);
	zi_loop_remove(&session->socket_source);
	session->socket_fd = zi_close(session->socket_fd);
	session->pidfd = zi_close(session->pidfd);
	sess_export_drop(session);
	sess_import_drop(session);
	free(session->reply);
	json_decref(session->inquiry.answer);
	sess_set_state(session, SESS_FREE);
	sess_clear(control, session);
	assert(control->used_count > 0);
	control->used_count--;
	sess_check_stopped(control);
}

static void sess_come_back(struct zi_post *post)
{
	struct sess *session = container_of(post, struct sess, post);
	struct sess_control *control = session->control;

	assert(session->state == SESS_LEAVING);
	assert(control->attached_count > 0);
	control->attached_count--;
	if (control->facts->changed)
		control->facts->changed(control->facts->changed_arg, control->attached_count);
	sess_drop(session);
}

/**
 * sess_control_take_back() - a session is over
 * @session: LEAVING, in no loop of the shard; the control's from here on
 *
 * Context: shard thread.
 */
void sess_control_take_back(struct sess *session)
{
	assert(session->state == SESS_LEAVING);
	zi_loop_post(session->control->loop, &session->post, sess_come_back);
}
