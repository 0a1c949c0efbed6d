/* SPDX-License-Identifier: Apache-2.0 */
/* Extents that several hold: a job and snapshots of it. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/tier/tier.h"
#include "daemon/zero/zero_private.h"

int share_reserve(struct zero_shares *shares, uint32_t count);
void share_hold(struct zero_shares *shares, const struct tier_extent *extent);
void share_release(struct zero_shares *shares, struct tier_extent *extent);
int share_claim(struct zero_shares *shares, const struct tier_extent *extent, uint64_t digest);
int share_keep(struct zero_shares *shares, const struct tier_extent *extent);
int share_recovered(struct zero_shares *shares);
void share_free(struct zero_shares *shares);
