/* SPDX-License-Identifier: Apache-2.0 */
/* How a rank ended, for people and for the exit code. */
#pragma once

#include <stdbool.h>

#include "common/base/text.h"
#include "zctl/launch/logs.h"
#include "zctl/launch/rank.h"

/* "rank 1 (pid 77) was killed by signal 9 (Killed) after 3.2 s". */
void launch_report_end(const struct launch_rank *rank, struct zi_text *text);
/* @error: as told of by launch_strays_end(). */
void launch_report_stray(pid_t pid, const char *name, int error, struct zi_text *text);
/* As shells have it: the code, or 128 + the signal. @status: of waitpid(). */
int launch_report_code(int status);
/* Whether of two that have ended the first is rather the cause: a signal comes from outside, and
 * EX_TEMPFAIL (75) is what a rank says that another one left alone. */
bool launch_report_is_worse(int status, int other_status);
/* What its program wrote into $TORCHELASTIC_ERROR_FILE: the message. Return: whether there is one.
 */
bool launch_report_error(const struct launch_logs *logs, uint32_t attempt, uint32_t rank,
                         struct zi_text *text);
