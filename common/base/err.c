/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error traces. Floor 0, any thread: the trace is thread-local, so recording takes no lock and no
 * allocation. The first frames are kept and later ones only counted: where an error was raised
 * says more than through how many hands it went afterwards.
 */
#include "common/base/err.h"

#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Floors are eight, and a call chain passes two or three functions in each. */
#define ERR_FRAMES_MAX 16u
/* A frame prints in about 60 bytes; twice that for long names. */
#define ERR_TEXT_BYTES 2048u

struct err_frame {
	const char *file;
	const char *function;
	int line;
	int r;
};

struct err_ring {
	struct err_frame frames[ERR_FRAMES_MAX];
	uint32_t frames_count;
	uint32_t omitted_count;
	char text[ERR_TEXT_BYTES];
};

static __thread struct err_ring ring;

static void err_push(int r, const char *file, int line, const char *function)
{
	if (ring.frames_count == ERR_FRAMES_MAX) {
		ring.omitted_count++;
		return;
	}
	ring.frames[ring.frames_count++] = (struct err_frame){
		.file = file,
		.function = function,
		.line = line,
		.r = r,
	};
}

static void err_clear(void)
{
	ring.frames_count = 0;
	ring.omitted_count = 0;
}

/*
 * Begins a new trace with this frame. @file and @function are literals: they are kept.
 * Return: @r, which is a negative errno.
 */
int zi_err_origin(int r, const char *file, int line, const char *function)
{
	assert(r < 0);
	err_clear();
	err_push(r, file, line, function);
	return r;
}

/*
 * Adds a frame to the trace of @r. When the newest trace is of another value, its callee did not
 * say err_origin (a plain -errno): a new trace begins here rather than a false one.
 * Return: @r: 0, or a negative errno.
 */
int zi_err_trace(int r, const char *file, int line, const char *function)
{
	assert(r <= 0);
	if (!r)
		return 0;
	if (ring.frames_count && ring.frames[ring.frames_count - 1].r != r)
		err_clear();
	err_push(r, file, line, function);
	return r;
}

/*
 * As zi_err_trace(); a positive @r, a condition that the caller did not expect, begins a new trace.
 * Return: 0, @r when negative, -ENOTRECOVERABLE when positive.
 */
int zi_err_fold(int r, const char *file, int line, const char *function)
{
	if (r > 0)
		return zi_err_origin(-ENOTRECOVERABLE, file, line, function);
	return zi_err_trace(r, file, line, function);
}

/* Appends to ring.text at @used_bytes. Return: the new length, at most ERR_TEXT_BYTES - 1. */
__attribute__((format(printf, 2, 3))) static size_t err_append(size_t used_bytes,
                                                               const char *format, ...)
{
	va_list args;
	int written;

	assert(used_bytes < ERR_TEXT_BYTES);
	va_start(args, format);
	written = vsnprintf(ring.text + used_bytes, ERR_TEXT_BYTES - used_bytes, format, args);
	va_end(args);
	if (written < 0)
		return used_bytes;
	used_bytes += (size_t)written;
	return used_bytes < ERR_TEXT_BYTES ? used_bytes : ERR_TEXT_BYTES - 1;
}

/*
 * Return: "a.c:10 f -ENOSPC <- b.c:20 g -ENOSPC": f raised it, g passed it on. "" when this thread
 * never failed. Valid until the next call in this thread.
 */
const char *zi_err_backtrace(void)
{
	size_t used_bytes = 0;

	ring.text[0] = '\0';
	for (uint32_t i = 0; i < ring.frames_count; i++) {
		const struct err_frame *frame = &ring.frames[i];

		used_bytes = err_append(used_bytes, "%s%s:%d %s -%s", i ? " <- " : "", frame->file,
		                        frame->line, frame->function, zi_err_name(frame->r));
	}
	if (ring.omitted_count)
		(void)err_append(used_bytes, " <- %u more", ring.omitted_count);
	return ring.text;
}

/* @error: an errno of either sign. Return: its symbol, "E?" when there is none. */
const char *zi_err_name(int error)
{
	const char *name;

	if (error == INT_MIN)
		return "E?";
	name = strerrorname_np(error < 0 ? -error : error);
	return name ? name : "E?";
}
