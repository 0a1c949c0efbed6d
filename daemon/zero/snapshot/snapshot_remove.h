/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots that go (zero.h has the call that asks for it). Floor 5, shard thread. */
#pragma once

#include "daemon/zero/zero.h"

struct zero_snapshot;

/* It is in the catalog, and shall not stay: another node of its job could not keep it. */
void snapshot_forget(struct zero_snapshot *snapshot);
/* The oldest automatic ones of a job give way, but for the newest @keep_count. */
void snapshot_retain(struct zero *zero, const char *job, uint32_t keep_count);
