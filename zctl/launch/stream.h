/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank writes to stdout or stderr: out of its pipe, into its log file as it comes, and by
 * whole lines, each behind a prefix, into a sink. Owner: the supervisor's thread.
 *
 * A line ends with '\n', or with '\r' that no '\n' follows (bars that are drawn over themselves);
 * bytes are passed on as they are. A line of more than LAUNCH_LINE_BYTES is cut into several, in
 * the sink alone; the last one need not have an end, and gets one there.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/loop.h"
#include "zctl/launch/sink.h"

#define LAUNCH_LINE_BYTES   (64u << 10)
#define LAUNCH_PREFIX_BYTES 24u

struct launch_stream {
	struct zi_source source;
	int fd;                   /* -1: over */
	int log_fd;               /* -1: none */
	int log_error;            /* why it was given up; 0: it was not */
	struct launch_sink *sink; /* NULL: not shown */
	bool is_paused;           /* no room in the sink */
	bool is_last;             /* nobody writes any more: an empty pipe is the end */
	char prefix[LAUNCH_PREFIX_BYTES];
	size_t begin, end; /* of what is not passed on */
	char bytes[LAUNCH_LINE_BYTES];
};

/* Takes both descriptors; @fd must not block. @sink: NULL: into the log alone. 0; -errno. */
int launch_stream_start(struct launch_stream *stream, struct zi_loop *loop, int fd, int log_fd,
                        struct launch_sink *sink, uint32_t rank);
/* When the sink has room again. */
void launch_stream_resume(struct launch_stream *stream);
/* Whoever wrote to it has gone: it is over as soon as what is in the pipe has been passed on. */
void launch_stream_finish(struct launch_stream *stream);
bool launch_stream_is_over(const struct launch_stream *stream);
/* Closes it, whatever there may be. Never started: nothing. */
void launch_stream_stop(struct launch_stream *stream);
