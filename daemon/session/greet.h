/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that are not attached. Floor 6, private to daemon/session, control thread. */
#pragma once

#include "common/base/loop.h"

void sess_greet_ready(struct zi_source *source, uint32_t epoll_events);
