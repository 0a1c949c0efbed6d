/* SPDX-License-Identifier: Apache-2.0 */
/* Where rank 0 may listen: an address of this machine, and a port that nobody has. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

/*
 * @address: a name, or digits, IPv6 also in brackets. @port: 0: any. @is_fixed: it may not be
 * another one. @ret_port: a port that could be bound a moment ago, and where it is not @port the
 * one after it, too (ZINF_PORT).
 * Return: 0; -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -EINVAL with the reason.
 */
int launch_port_choose(const char *address, uint32_t port, bool is_fixed, uint32_t *ret_port,
                       struct zi_text *text);
