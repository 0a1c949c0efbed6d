/* SPDX-License-Identifier: Apache-2.0 */
/* Messages on an attached session's socket. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include "daemon/session/sess.h"

void sess_socket_ready(struct zi_source *source, uint32_t epoll_events);
