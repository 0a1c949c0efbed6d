/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own stdout or stderr, which the supervisor must never wait for: what a slow reader does not
 * take is kept here, up to a limit, and whoever fills it waits for room. Owner: the supervisor's
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "common/base/loop.h"

/* Several of the longest lines. */
#define LAUNCH_SINK_BYTES (256u << 10)
/* Of it, for the supervisor's own sentences: there is always room for them. */
#define LAUNCH_SINK_RESERVE_BYTES (8u << 10)

struct launch_sink;
typedef void (*launch_sink_fn)(struct launch_sink *sink);

struct launch_sink {
	struct zi_loop *loop;
	struct zi_source source; /* while it is not writable */
	int fd;
	bool is_own_fd; /* opened here: it does not block */
	bool is_file;   /* takes everything */
	bool is_socket;
	bool is_broken;          /* nobody reads: what is put is dropped */
	launch_sink_fn has_room; /* called after it had none, or when it is empty */
	void *arg;
	size_t begin, end; /* of what is kept */
	char bytes[LAUNCH_SINK_BYTES];
};

/* Whether two descriptors are one file: then one sink must serve both, or lines would mix. */
bool launch_sink_is_same(int fd, int other_fd);
void launch_sink_init(struct launch_sink *sink, struct zi_loop *loop, int fd);
void launch_sink_deinit(struct launch_sink *sink);
/* How many bytes may be put, the reserve not counted. */
size_t launch_sink_room(const struct launch_sink *sink);
/* There must be room, or in the reserve. Bytes are written by launch_sink_flush(). */
void launch_sink_put(struct launch_sink *sink, const void *bytes, size_t count);
void launch_sink_flush(struct launch_sink *sink);
bool launch_sink_is_empty(const struct launch_sink *sink);
