/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which member of a tier takes the next extent. Floor 4, shard thread.
 *
 *   An extent lies wholly on one member. Members take turns by weight (smooth weighted round
 *   robin over bytes), so that neighbours lie on different ones and each gets its share of every
 *   step. The weight is what was measured of a store, less what it is seen to fall behind, and no
 *   member is given more than half of itself: extents are written beside those they replace.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "daemon/tier/member.h"
#include "daemon/tier/tier.h"

/* Weights, from what is known now. Once per step, before its extents are reserved. */
void tier_stripe_weigh(struct tier *tier);
/* Extents of @bytes in all are about to be reserved; @is_whole: instead of all that there are. */
void tier_extent_aim(struct tier *tier, uint64_t bytes, bool is_whole);
/* One extent of a lane. TIER_E_FULL when no member that takes extents has a run of @bytes free. */
int tier_extent_reserve(struct tier *tier, uint32_t lane, uint64_t bytes,
                        struct tier_extent *ret_extent);
/* Gives back and clears @extent; nothing for one without bytes. */
void tier_extent_release(struct tier_extent *extent);
/* Recovery: @extent is in use. -EUCLEAN: it cannot be. -ENODEV: its member is missing. */
int tier_extent_claim(const struct tier_extent *extent);
/* On members that take extents. */
uint64_t tier_extent_free_bytes(const struct tier *tier);
/* "/a", or "/a, /b (failed: writing failed: EIO)": for people. */
struct zi_text tier_paths(const struct tier *tier);
