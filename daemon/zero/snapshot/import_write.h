/* SPDX-License-Identifier: Apache-2.0 */
/* Extents of an import, and its end. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/tier/tier.h"
#include "daemon/zero/zero_private.h"

/* The paths that what it holds lies on, of one tier: tier_member_bit(). 0: it holds nothing. */
uint32_t snapshot_members(const struct zero_snapshot *snapshot, struct tier **ret_tier);
