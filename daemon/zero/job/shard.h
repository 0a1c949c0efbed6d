/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters that a node holds where nodes divide them (zero3) and they stay in memory: those
 * of its own subgroups, one behind the other. The daemon's alone: ranks see copies in a pool
 * (param/residency.h), made of these and of those of other nodes. Floor 5, shard thread.
 *
 * It lives as long as the plane would: with state in memory it is the only copy. With parameters on
 * NVMe (also of zero1 and zero2) there is none, but memory into which they are read for other nodes
 * (across/bytes/lent.h).
 */
#pragma once

#include "common/base/text.h"
#include "common/base/types.h"

struct zero_job;

/* Its memory, among those that are charged; no-op where there is none, or it is there. -ENOSPC,
 * -EDQUOT with figures. */
int shard_plan(struct zero_job *job, struct zi_text *text);
/* It is built: where each subgroup's parameters lie. */
void shard_place(struct zero_job *job);
/* Nothing may be in flight on it. */
void shard_drop(struct zero_job *job);
/* What is read for other nodes is one incarnation's. */
void lent_drop(struct zero_job *job);
