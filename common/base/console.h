/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard output that may be closed or full, for programs that print what a user asked for: an
 * answer that is lost is no success. Floor 0; the process's only thread, or its last one.
 */
#pragma once

/* The reader of standard output has gone: an end without a message. */
#define ZI_CONSOLE_E_CLOSED 1

void zi_console_open(void);
int zi_console_flush(void);
