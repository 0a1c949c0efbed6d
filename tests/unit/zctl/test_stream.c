/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what zctl launch makes of a rank's bytes: lines however they are cut into reads, everything
 * in the log, a log that cannot be written given up. Method: a stream and a sink over pipes and a
 * loop of this thread; what is too slow to be sure of with processes.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "zctl/launch/stream.h"

static struct zi_loop *loop;
static struct launch_sink *sink;
static struct launch_stream *stream;
static int source_fd, shown_fd; /* the rank's end; the reader's */
static char shown[1 << 20];

static void start(void)
{
	int in[2], out[2];

	cr_assert_eq(pipe2(in, O_CLOEXEC | O_NONBLOCK), 0);
	cr_assert_eq(pipe2(out, O_CLOEXEC | O_NONBLOCK), 0);
	cr_assert_eq(zi_loop_new(&loop), 0);
	sink = calloc(1, sizeof(*sink));
	stream = calloc(1, sizeof(*stream));
	launch_sink_init(sink, loop, out[1]);
	cr_assert_eq(launch_stream_start(stream, loop, in[0], -1, sink, 3), 0);
	source_fd = in[1];
	shown_fd = out[0];
}

static void stop(void)
{
	launch_stream_stop(stream);
	launch_sink_deinit(sink);
	(void)zi_loop_free(loop);
	free(stream);
	free(sink);
}

TestSuite(stream, .init = start, .fini = stop, .timeout = 20);

/* The rank writes @text, and the stream is told. */
static void write_text(const char *text)
{
	cr_assert_eq(write(source_fd, text, strlen(text)), (ssize_t)strlen(text));
	stream->source.ready(&stream->source, 0);
}

static void end(void)
{
	source_fd = zi_close(source_fd);
	launch_stream_finish(stream);
}

static const char *read_shown(void)
{
	ssize_t count = read(shown_fd, shown, sizeof(shown) - 1);

	shown[count > 0 ? count : 0] = '\0';
	return shown;
}

Test(stream, a_line_is_shown_when_it_is_whole)
{
	write_text("be");
	cr_expect_str_eq(read_shown(), "");
	write_text("gin\nmore");
	cr_expect_str_eq(read_shown(), "[rank 3]: begin\n");
	write_text("\n\nlast");
	cr_expect_str_eq(read_shown(), "[rank 3]: more\n[rank 3]: \n");
	cr_expect_not(launch_stream_is_over(stream));
	end();
	cr_expect_str_eq(read_shown(), "[rank 3]: last\n");
	cr_expect(launch_stream_is_over(stream));
}

Test(stream, a_return_ends_a_line_when_no_newline_follows)
{
	write_text("10%\r");
	cr_expect_str_eq(read_shown(), "");
	write_text("\n20%\r");
	cr_expect_str_eq(read_shown(), "[rank 3]: 10%\r\n");
	write_text("30%\r\r\n");
	cr_expect_str_eq(read_shown(), "[rank 3]: 20%\r[rank 3]: 30%\r\r\n");
	write_text("40%\r");
	end();
	cr_expect_str_eq(read_shown(), "[rank 3]: 40%\r\n");
}

Test(stream, the_end_of_a_pipe_that_somebody_holds_open_is_told)
{
	/* A process of the rank's that is not to be found still has it. */
	write_text("words");
	launch_stream_finish(stream);
	cr_expect(launch_stream_is_over(stream));
	cr_expect_str_eq(read_shown(), "[rank 3]: words\n");
}

Test(stream, a_log_that_cannot_be_written_is_given_up)
{
	stream->log_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	cr_assert_geq(stream->log_fd, 0);
	write_text("first\n");
	cr_expect_eq(stream->log_fd, -1);
	cr_expect_eq(stream->log_error, -ENOSPC);
	write_text("second\n");
	cr_expect_str_eq(read_shown(), "[rank 3]: first\n[rank 3]: second\n");
	cr_expect_eq(stream->log_error, -ENOSPC);
}

Test(stream, what_is_not_shown_is_logged_as_it_comes)
{
	int ends[2];
	char logged[64];

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	stream->sink = NULL;
	stream->log_fd = ends[1];
	write_text("no end");
	cr_assert_eq(read(ends[0], logged, sizeof(logged)), 6);
	cr_expect_eq(memcmp(logged, "no end", 6), 0);
	end();
	cr_expect(launch_stream_is_over(stream));
	cr_expect_str_eq(read_shown(), "");
	(void)close(ends[0]);
}

Test(stream, a_sink_without_room_pauses_and_goes_on)
{
	static char line[1001];
	size_t written = 0, count = 0;

	memset(line, 'x', sizeof(line) - 2);
	line[sizeof(line) - 2] = '\n';
	while (!stream->is_paused) {
		ssize_t bytes = write(source_fd, line, sizeof(line) - 1);

		cr_assert(bytes == 1000);
		written++;
		stream->source.ready(&stream->source, 0);
	}
	/* The pipe of the reader, the sink but for its reserve and a line, and what was on its
	 * way. */
	cr_expect_gt(written * 1000, LAUNCH_SINK_BYTES / 2);
	source_fd = zi_close(source_fd);
	stream->is_last = true;
	while (!launch_stream_is_over(stream) || !launch_sink_is_empty(sink)) {
		for (const char *at = read_shown(); (at = strchr(at, '\n')); at++)
			count++;
		launch_sink_flush(sink);
		launch_stream_resume(stream);
	}
	for (const char *at = read_shown(); (at = strchr(at, '\n')); at++)
		count++;
	cr_expect_eq(count, written);
}

Test(stream, a_sink_that_nobody_reads_any_more_takes_everything)
{
	(void)signal(SIGPIPE, SIG_IGN);
	shown_fd = zi_close(shown_fd);
	for (int i = 0; i < 2000; i++)
		write_text("a line of a training that goes on\n");
	cr_expect(sink->is_broken);
	cr_expect_not(stream->is_paused);
	end();
	cr_expect(launch_stream_is_over(stream));
}

/* Far more than a pipe or socket takes is put, and read as it comes: nothing waits or is lost.
 * @ends: the reader's and the sink's. */
static void expect_all_passes(const int ends[2], bool is_reopened)
{
	static char bytes[100000], got[100000];
	size_t count = 0;

	launch_sink_deinit(sink);
	launch_sink_init(sink, loop, ends[1]);
	if (!is_reopened && sink->is_own_fd) {
		/* As where /proc is not to be had. */
		(void)zi_close(sink->fd);
		sink->fd = ends[1];
		sink->is_own_fd = false;
	}
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i * 7 % 251);
	cr_assert_geq(launch_sink_room(sink), sizeof(bytes));
	launch_sink_put(sink, bytes, sizeof(bytes));
	launch_sink_flush(sink);
	while (count < sizeof(got)) {
		ssize_t some = read(ends[0], got + count, sizeof(got) - count);

		cr_assert_gt(some, 0);
		count += (size_t)some;
		launch_sink_flush(sink);
	}
	cr_expect(launch_sink_is_empty(sink));
	cr_expect_not(sink->is_broken);
	cr_expect_eq(memcmp(bytes, got, sizeof(got)), 0);
	launch_sink_deinit(sink);
	(void)close(ends[0]);
	(void)close(ends[1]);
}

Test(stream, a_sink_never_waits_whatever_it_is)
{
	int ends[2];

	launch_stream_stop(stream);
	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	expect_all_passes(ends, true);
	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	expect_all_passes(ends, false);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	expect_all_passes(ends, false);
	cr_expect(launch_sink_is_same(shown_fd, shown_fd));
	cr_expect_not(launch_sink_is_same(shown_fd, source_fd));
}
