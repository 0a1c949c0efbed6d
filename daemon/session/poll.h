/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at the rings. Floor 6, private to daemon/session, shard thread. */
#pragma once

#include "common/base/loop.h"

extern const struct zi_poller sess_poller; /* its argument: a struct sess_shard */
