/* SPDX-License-Identifier: Apache-2.0 */
/* What a service manager says and hears, without its library: sd_notify(3), the watchdog, and
 * sockets that it made for us. Floor 7, main thread; notify_send() from any. */
#pragma once

#include <stdint.h>

#include "common/base/text.h"

struct notify {
	int fd;               /* -1: nobody listens */
	uint64_t watchdog_ns; /* 0: none */
};

#define NOTIFY_INIT      \
	{                \
		.fd = -1 \
	}

/* Takes NOTIFY_SOCKET and WATCHDOG_* out of the environment. */
int notify_open(struct notify *notify, struct zi_text *text);
void notify_close(struct notify *notify);
/* "READY=1\nSTATUS=…". Nobody listening, or not now, is no error. */
void notify_send(const struct notify *notify, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The listening seqpacket socket passed by LISTEN_FDS; *ret_fd -1 when there is none. -EINVAL when
 * what was passed is something else, with @text. */
int notify_take_socket(struct zi_text *text, int *ret_fd);
