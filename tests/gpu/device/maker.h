/* SPDX-License-Identifier: Apache-2.0 */
/* A process that makes and exports chunks of GPU memory as zinf-gpu does: it never has a context,
 * and never maps anything. Its chunks go with it. */
#pragma once

#include <stdint.h>

#include "tests/gpu/device/peer.h"

struct trial;
struct zi_text;

/* Return: 0; -errno with @text. */
int maker_start(const struct trial *trial, struct peer *ret_maker, struct zi_text *text);
/* @count: at most PEER_FDS_MAX chunks of @bytes. @ret_fds: (@count,) the caller's. Return: 0;
 * -errno with @text. */
int maker_make(const struct peer *maker, uint64_t bytes, uint32_t count, struct zi_text *text,
               int *ret_fds);
