/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three roads of an error (docs/STYLE.md): 0 is done; a positive value is a condition listed in
 * the callee's header, for the immediate caller alone; a negative errno travels upward unchanged.
 * The wrappers cost nothing on success and leave a trace (file, line, value) of a failure in a
 * thread-local ring that logging and tests can read. Floor 0, any thread.
 */
#pragma once

#include <errno.h>

#include "common/base/assert.h"

/* I raise this error. @r is a negative errno. */
#define err_origin(r) zi_err_origin((r), __FILE__, __LINE__, __func__)
/* I pass on what a callee returned: 0 or a negative errno. */
#define err_trace(r) zi_err_pass((r), __FILE__, __LINE__, __func__)
/* As err_trace, and a condition that nobody handled becomes -ENOTRECOVERABLE. */
#define err_fold(r) zi_err_fold((r), __FILE__, __LINE__, __func__)

int zi_err_origin(int r, const char *file, int line, const char *function);
int zi_err_trace(int r, const char *file, int line, const char *function);
int zi_err_fold(int r, const char *file, int line, const char *function);

/* Success is no call. */
static inline int zi_err_pass(int r, const char *file, int line, const char *function)
{
	return r ? zi_err_trace(r, file, line, function) : 0;
}

/* Text of the newest failure in this thread: "file:line function -ENOSPC <- …", "" if none. */
const char *zi_err_backtrace(void);
/* "ENOSPC" for 28 or -28; "E?" for what is unknown. */
const char *zi_err_name(int error);
