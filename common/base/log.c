/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging. Floor 0, any thread: a message is put together on the stack and leaves by one write(),
 * so lines of several threads never mix. It is one line, whatever a client put into its names:
 * control characters become '?', for a forged line in the journal would pass for ours.
 */
#include "common/base/log.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"

/* A journal line may be longer; ours are a sentence and some key=value fields. */
#define LOG_LINE_BYTES 1024u

static _Atomic int log_level = ZI_LOG_INFO;
static pthread_once_t log_once = PTHREAD_ONCE_INIT;
static bool log_is_journal; /* written once, under log_once */

/* systemd sets JOURNAL_STREAM to "device:inode" of the socket it gave us. Comparing says whether
 * stderr is still that socket: the variable is inherited by children that redirect. */
static void log_detect_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device;
	unsigned long long inode;
	struct stat status;

	if (!stream || sscanf(stream, "%llu:%llu", &device, &inode) != 2)
		return;
	if (fstat(STDERR_FILENO, &status))
		return;
	log_is_journal = status.st_dev == device && status.st_ino == inode;
}

static const char *log_word(enum zi_log_level level)
{
	switch (level) {
	case ZI_LOG_ERROR:
		return "error: ";
	case ZI_LOG_WARNING:
		return "warning: ";
	case ZI_LOG_DEBUG:
		return "debug: ";
	case ZI_LOG_INFO:
		break;
	}
	return "";
}

/* snprintf() without the surprise of a length that was not written. */
static size_t log_clamp(size_t used_bytes, int written)
{
	if (written < 0)
		return used_bytes;
	used_bytes += (size_t)written;
	return used_bytes < LOG_LINE_BYTES ? used_bytes : LOG_LINE_BYTES - 1;
}

__attribute__((format(printf, 3, 0))) static void log_write(enum zi_log_level level, int error,
                                                            const char *format, va_list args)
{
	char line[LOG_LINE_BYTES];
	size_t head_bytes;
	size_t used_bytes;
	ssize_t written;

	(void)pthread_once(&log_once, log_detect_journal); /* Cannot fail: both are valid. */
	if (log_is_journal)
		head_bytes = log_clamp(0, snprintf(line, sizeof(line), "<%d>", level));
	else
		head_bytes = log_clamp(0, snprintf(line, sizeof(line), "%s", log_word(level)));
	used_bytes = log_clamp(
		head_bytes, vsnprintf(line + head_bytes, sizeof(line) - head_bytes, format, args));
	if (error)
		used_bytes = log_clamp(used_bytes,
		                       snprintf(line + used_bytes, sizeof(line) - used_bytes,
		                                ": %s (%s)", strerrordesc_np(error) ?: "unknown",
		                                zi_err_name(error)));
	for (size_t i = head_bytes; i < used_bytes; i++) {
		unsigned char byte = (unsigned char)line[i];

		if (byte < ' ' || byte == 0x7f)
			line[i] = '?';
	}
	line[used_bytes++] = '\n'; /* In place of the NUL. */
	do {
		written = write(STDERR_FILENO, line, used_bytes);
	} while (written < 0 && errno == EINTR);
	/* Nobody is left to tell when stderr fails. */
}

/* Messages above @level (less urgent) are dropped. Default: info. Any thread. */
void zi_log_set_level(enum zi_log_level level)
{
	atomic_store_explicit(&log_level, level, memory_order_relaxed);
}

/* Return: the level set last. Any thread. */
enum zi_log_level zi_log_level(void)
{
	return (enum zi_log_level)atomic_load_explicit(&log_level, memory_order_relaxed);
}

/* Writes one line to stderr if @level is wanted. errno is kept. Any thread. */
void zi_log(enum zi_log_level level, const char *format, ...)
{
	int saved_errno = errno;
	va_list args;

	if (level > zi_log_level())
		return;
	va_start(args, format);
	log_write(level, 0, format, args);
	va_end(args);
	errno = saved_errno;
}

/*
 * As zi_log(), with the text and symbol of @error (an errno of either sign) at the end.
 * Return: @error as a negative errno, also when the level is not wanted.
 */
int zi_log_errno(enum zi_log_level level, int error, const char *format, ...)
{
	int saved_errno = errno;
	va_list args;

	assert(error != INT_MIN);
	error = abs(error);
	if (level > zi_log_level())
		return -error;
	va_start(args, format);
	log_write(level, error, format, args);
	va_end(args);
	errno = saved_errno;
	return -error;
}

/*
 * Spends one token of the bucket. @limit belongs to one thread. @burst: at least 1 message passes
 * at once; @interval_ns: each such time gives one back.
 * Return: whether the message may be written.
 */
bool zi_log_limit_pass(struct zi_log_limit *limit, uint32_t burst, uint64_t interval_ns)
{
	uint64_t now_ns = zi_clock_now_ns();
	uint64_t regained_count;

	assert(burst > 0);
	assert(interval_ns > 0);
	regained_count = (now_ns - limit->refilled_ns) / interval_ns;
	if (regained_count >= limit->used_count) {
		limit->used_count = 0;
		limit->refilled_ns = now_ns;
	} else {
		limit->used_count -= (uint32_t)regained_count;
		limit->refilled_ns += regained_count * interval_ns;
	}
	if (limit->used_count >= burst) {
		limit->suppressed_count++;
		return false;
	}
	limit->used_count++;
	if (limit->suppressed_count) {
		log_warning("%llu messages of this kind were suppressed",
		            (unsigned long long)limit->suppressed_count);
		limit->suppressed_count = 0;
	}
	return true;
}
