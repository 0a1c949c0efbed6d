/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging to stderr with journal priorities ("<3>…") when stderr is the journal, plain words
 * otherwise. Only sessions, main and tools log; lower floors return errors. log_*_errno() logs and
 * returns the error, so that `return log_error_errno(r, …)` is one line. What a client can cause is
 * logged behind zi_log_limit_pass(). Floor 0, any thread (one write per message).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum zi_log_level { ZI_LOG_ERROR = 3, ZI_LOG_WARNING = 4, ZI_LOG_INFO = 6, ZI_LOG_DEBUG = 7 };

void zi_log_set_level(enum zi_log_level level);
enum zi_log_level zi_log_level(void);
void zi_log(enum zi_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
int zi_log_errno(enum zi_log_level level, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define log_error(...)                zi_log(ZI_LOG_ERROR, __VA_ARGS__)
#define log_warning(...)              zi_log(ZI_LOG_WARNING, __VA_ARGS__)
#define log_info(...)                 zi_log(ZI_LOG_INFO, __VA_ARGS__)
#define log_debug(...)                zi_log(ZI_LOG_DEBUG, __VA_ARGS__)
#define log_error_errno(error, ...)   zi_log_errno(ZI_LOG_ERROR, (error), __VA_ARGS__)
#define log_warning_errno(error, ...) zi_log_errno(ZI_LOG_WARNING, (error), __VA_ARGS__)

/* A token bucket: at most @burst messages, refilled one per @interval_ns. Zero-initialise. */
struct zi_log_limit {
	uint64_t refilled_ns;
	uint32_t used_count;
	uint64_t suppressed_count;
};
/* True when this message may be written; writes a line about suppressed ones when it re-opens. */
bool zi_log_limit_pass(struct zi_log_limit *limit, uint32_t burst, uint64_t interval_ns);
