/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a rank (stream.h). */
#include "zctl/launch/stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"

/* A piece and what is put around it. */
#define PIECE_BYTES (LAUNCH_LINE_BYTES + LAUNCH_PREFIX_BYTES + 1)
/* Then it is the other ranks' turn. */
#define READS_MAX 16u

static_assert(LAUNCH_SINK_BYTES - LAUNCH_SINK_RESERVE_BYTES >= PIECE_BYTES,
              "an empty sink takes any line");

static void put(struct launch_stream *stream, size_t count, bool is_unended)
{
	launch_sink_put(stream->sink, stream->prefix, strlen(stream->prefix));
	launch_sink_put(stream->sink, stream->bytes + stream->begin, count);
	if (is_unended)
		launch_sink_put(stream->sink, "\n", 1);
	stream->begin += count;
}

/* Bytes of the first line, its end included; 0: there is no whole one yet. */
static size_t first_line(const struct launch_stream *stream)
{
	const char *bytes = stream->bytes + stream->begin;
	size_t count = stream->end - stream->begin;

	for (size_t i = 0; i < count; i++) {
		if (bytes[i] == '\n')
			return i + 1;
		/* What follows a '\r' must be known. */
		if (bytes[i] == '\r' && i + 1 < count && bytes[i + 1] != '\n' &&
		    bytes[i + 1] != '\r')
			return i + 1;
	}
	return 0;
}

/* Lines into the sink. Return: false when there was no room for all of them. */
static bool pass_lines(struct launch_stream *stream, bool is_end)
{
	if (!stream->sink)
		stream->begin = stream->end;
	while (stream->begin < stream->end) {
		size_t line = first_line(stream), count = stream->end - stream->begin;
		bool is_cut = !line && (is_end || count == sizeof(stream->bytes));

		if (!line && !is_cut)
			break;
		if (!stream->sink->is_broken && launch_sink_room(stream->sink) < PIECE_BYTES)
			launch_sink_flush(stream->sink);
		if (!stream->sink->is_broken && launch_sink_room(stream->sink) < PIECE_BYTES)
			return false;
		put(stream, is_cut ? count : line, is_cut);
	}
	memmove(stream->bytes, stream->bytes + stream->begin, stream->end - stream->begin);
	stream->end -= stream->begin;
	stream->begin = 0;
	if (stream->sink)
		launch_sink_flush(stream->sink);
	return true;
}

/* A log that cannot be written is given up, and told at the end: a full disk is no reason to hold
 * up the rank. */
static void log_bytes(struct launch_stream *stream, const char *bytes, size_t count)
{
	while (count && stream->log_fd >= 0) {
		ssize_t written = write(stream->log_fd, bytes, count);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0) {
			stream->log_error = -errno;
			stream->log_fd = zi_close(stream->log_fd);
			return;
		}
		bytes += written;
		count -= (size_t)written;
	}
}

static void pause_reading(struct launch_stream *stream)
{
	zi_loop_remove(&stream->source);
	stream->is_paused = true;
}

/* Return: whether the pipe may have more. */
static bool read_some(struct launch_stream *stream)
{
	char *end = stream->bytes + stream->end;
	ssize_t count;

	assert(stream->end < sizeof(stream->bytes));
	do
		count = read(stream->fd, end, sizeof(stream->bytes) - stream->end);
	while (count < 0 && errno == EINTR);
	if (count > 0) {
		log_bytes(stream, end, (size_t)count);
		stream->end += (size_t)count;
		return true;
	}
	if (count < 0 && errno == EAGAIN && !stream->is_last)
		return false;
	if (pass_lines(stream, true))
		launch_stream_stop(stream);
	else
		pause_reading(stream); /* It reads the end once more then. */
	return false;
}

/* Until there is nothing, or no room. */
static void take(struct launch_stream *stream)
{
	for (uint32_t i = 0; i < READS_MAX || stream->is_last; i++) {
		if (!pass_lines(stream, false)) {
			pause_reading(stream);
			return;
		}
		if (!read_some(stream))
			return;
	}
}

static void became_readable(struct zi_source *source, uint32_t epoll_events)
{
	(void)epoll_events; /* An end is found by reading. */
	take(container_of(source, struct launch_stream, source));
}

/* See stream.h. */
int launch_stream_start(struct launch_stream *stream, struct zi_loop *loop, int fd, int log_fd,
                        struct launch_sink *sink, uint32_t rank)
{
	stream->source = (struct zi_source){ 0 };
	stream->fd = fd;
	stream->log_fd = log_fd;
	stream->log_error = 0;
	stream->sink = sink;
	stream->is_paused = stream->is_last = false;
	stream->begin = stream->end = 0;
	(void)snprintf(stream->prefix, sizeof(stream->prefix), "[rank %u]: ", rank); /* Fits. */
	return err_trace(zi_loop_add(loop, &stream->source, fd, EPOLLIN, became_readable));
}

/* See stream.h. */
void launch_stream_resume(struct launch_stream *stream)
{
	struct zi_loop *loop = stream->sink ? stream->sink->loop : NULL;

	if (!stream->is_paused)
		return;
	stream->is_paused = false;
	if (zi_loop_add(loop, &stream->source, stream->fd, EPOLLIN, became_readable))
		launch_stream_stop(stream); /* No memory for an entry of epoll's. */
	else
		take(stream);
}

/* See stream.h. */
void launch_stream_finish(struct launch_stream *stream)
{
	stream->is_last = true;
	if (stream->fd >= 0 && !stream->is_paused)
		take(stream);
}

/* See stream.h. */
bool launch_stream_is_over(const struct launch_stream *stream)
{
	return stream->fd < 0;
}

/* See stream.h. */
void launch_stream_stop(struct launch_stream *stream)
{
	zi_loop_remove(&stream->source);
	stream->fd = zi_close(stream->fd);
	stream->log_fd = zi_close(stream->log_fd);
	stream->is_paused = false;
	stream->begin = stream->end = 0;
}
