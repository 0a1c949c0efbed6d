/* SPDX-License-Identifier: Apache-2.0 */
/* A job under another name begins where a snapshot stands. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/zero_private.h"

/* zero_snapshot_restore() with another name. */
void snapshot_restore_as(struct zero *zero, struct zero_snapshot_op *op);
