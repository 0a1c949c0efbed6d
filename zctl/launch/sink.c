/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A writer that does not wait (sink.h). O_NONBLOCK belongs to the open file, which we share with
 * the shell that started us: a terminal or pipe is therefore opened anew, through /proc. Where that
 * is forbidden, no more is written at a time than a pipe that is ready takes at once.
 */
#include "zctl/launch/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/fd.h"

/* See sink.h. */
bool launch_sink_is_same(int fd, int other_fd)
{
	struct stat status, other;

	return !fstat(fd, &status) && !fstat(other_fd, &other) && status.st_dev == other.st_dev &&
	       status.st_ino == other.st_ino;
}

/* See sink.h. */
void launch_sink_init(struct launch_sink *sink, struct zi_loop *loop, int fd)
{
	struct stat status;
	char path[32];

	*sink = (struct launch_sink){ .loop = loop, .fd = fd };
	if (fstat(fd, &status)) {
		sink->is_broken = true; /* closed by whoever started us */
		return;
	}
	sink->is_file = S_ISREG(status.st_mode) || S_ISBLK(status.st_mode);
	sink->is_socket = S_ISSOCK(status.st_mode);
	if (sink->is_file || sink->is_socket)
		return;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* Fits. */
	fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return;
	sink->fd = fd;
	sink->is_own_fd = true;
}

/* What is kept is dropped. */
void launch_sink_deinit(struct launch_sink *sink)
{
	zi_loop_remove(&sink->source);
	if (sink->is_own_fd)
		sink->fd = zi_close(sink->fd);
	sink->begin = sink->end = 0;
}

/* See sink.h. */
size_t launch_sink_room(const struct launch_sink *sink)
{
	size_t used = sink->end - sink->begin + LAUNCH_SINK_RESERVE_BYTES;

	return used < sizeof(sink->bytes) ? sizeof(sink->bytes) - used : 0;
}

/* See sink.h. */
bool launch_sink_is_empty(const struct launch_sink *sink)
{
	return sink->begin == sink->end;
}

/* See sink.h. */
void launch_sink_put(struct launch_sink *sink, const void *bytes, size_t count)
{
	if (sink->is_broken)
		return;
	if (count > sizeof(sink->bytes) - sink->end) {
		memmove(sink->bytes, sink->bytes + sink->begin, sink->end - sink->begin);
		sink->end -= sink->begin;
		sink->begin = 0;
	}
	/* Only sentences of ours can find the reserve used up, by others that nobody reads. */
	count = ZI_MIN(count, sizeof(sink->bytes) - sink->end);
	memcpy(sink->bytes + sink->end, bytes, count);
	sink->end += count;
}

/* As write(), without waiting: EAGAIN. */
static ssize_t write_some(const struct launch_sink *sink, const char *bytes, size_t count)
{
	struct pollfd ready = { .fd = sink->fd, .events = POLLOUT };

	if (sink->is_socket)
		return send(sink->fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sink->is_file || sink->is_own_fd)
		return write(sink->fd, bytes, count);
	if (poll(&ready, 1, 0) != 1) {
		errno = EAGAIN;
		return -1;
	}
	return write(sink->fd, bytes, ZI_MIN(count, (size_t)PIPE_BUF));
}

static void became_writable(struct zi_source *source, uint32_t epoll_events)
{
	struct launch_sink *sink = container_of(source, struct launch_sink, source);

	(void)epoll_events; /* An error is found by writing. */
	zi_loop_remove(&sink->source);
	launch_sink_flush(sink);
	if (sink->has_room && (launch_sink_room(sink) || launch_sink_is_empty(sink)))
		sink->has_room(sink);
}

/* Writes what can be written now; the rest as soon as it can. */
void launch_sink_flush(struct launch_sink *sink)
{
	while (sink->begin < sink->end && !sink->is_broken) {
		ssize_t count =
			write_some(sink, sink->bytes + sink->begin, sink->end - sink->begin);

		if (count >= 0) {
			sink->begin += (size_t)count;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno == EAGAIN &&
		    (sink->source.loop ||
		     !zi_loop_add(sink->loop, &sink->source, sink->fd, EPOLLOUT, became_writable)))
			return;
		/* The reader has gone, or the disk is full: that ends no training. */
		sink->is_broken = true;
	}
	sink->begin = sink->end = 0;
}
