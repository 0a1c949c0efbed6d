/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket: who connects, and with whose credentials. Floor 6, control thread. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/session/control.h"
#include "daemon/session/greet.h"
#include "daemon/session/sess.h"

/* Connections taken in one turn: others' messages have their turn in between. */
#define ACCEPTS_PER_TURN 16u
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; not in Debian 12's headers */
#endif

/* Who is at the other end. A pid may be used again between connect() and here, where the kernel has
 * no SO_PEERPIDFD: then the pidfd must belong to a process of the same uid, and the socket must not
 * have hung up, which it does when the process that made it is gone. */
static int sess_identify(struct sess *session)
{
	socklen_t bytes = sizeof(session->pidfd);
	struct stat status;
	char path[32];
	char byte;
	int r;

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
static void sess_turn_away(int fd, int error, const struct zi_text *text)
{
	struct zi_error_message message = { .error = error };

	zi_message_init(&message.header, ZI_MESSAGE_ERROR, sizeof(message), 0);
	zi_text_set(&message.text, "%s", text->chars);
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
	struct ucred credentials;
	socklen_t bytes = sizeof(credentials);
	struct sess *session;
	struct zi_text text;
	int r;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes)) {
		r = err_origin(-errno);
		(void)zi_close(fd); /* Always -1, as below. */
		return r;
	}
	r = sess_control_take_slot(control, credentials.uid, &text, &session);
	if (r) {
		sess_turn_away(fd, r, &text);
		(void)zi_close(fd);
		return err_trace(r);
	}
	session->pid = credentials.pid;
	session->socket_fd = fd;
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
	static const struct zi_text text = { "the daemon has no descriptor left: try again" };
	int fd;

	control->spare_fd = zi_close(control->spare_fd);
	fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		sess_turn_away(fd, -EMFILE, &text);
	(void)zi_close(fd); /* Always -1. */
	control->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void sess_listen_ready(struct zi_source *source, uint32_t epoll_events)
{
	struct sess_control *control = container_of(source, struct sess_control, listen_source);

	(void)epoll_events; /* A listening socket has one event that matters. */
	for (uint32_t i = 0; i < ACCEPTS_PER_TURN; i++) {
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
