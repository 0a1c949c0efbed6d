/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of evacuate.c, evacuate_round.c, evacuee.c and evacuate_commit.c: extents that leave a
 * path. Floor 5; shard thread.
 */
#pragma once

#include "common/base/types.h"
#include "daemon/tier/member.h"
#include "daemon/zero/zero.h"
#include "daemon/zero/zero_private.h"

/* Looks for jobs at rest on paths that are to be left. Cheap when there are none such. */
void evacuate_kick(struct zero *zero);
/* The snapshot goes. */
void evacuate_forget(struct zero_snapshot *snapshot);
/* Its rows may name other places: nobody reads it, and no request about it is out. */
bool snapshot_is_movable(const struct zero_snapshot *snapshot);

/* Nobody uses it, and it stands at what is committed. */
bool evacuate_is_at_rest(const struct zero_job *job);
/* Ranks that come wait from here on. */
void evacuate_lock(struct zero_job *job);
/* May free the job. */
void evacuate_unlock(struct zero_job *job);
static inline bool evacuate_is_leaving(const struct tier_extent *extent)
{
	return extent->bytes && tier_member_is_leaving(extent->member);
}
/* The turn of the evacuation's owner begins, in rounds. @slot_bytes: of its longest extent; @whose:
 * for words. May be over before this returns. */
void evacuate_start(struct zero *zero, struct tier *cpu_tier, struct zero_account *account,
                    uint64_t slot_bytes, const char *whose);
/* The round's transaction is over, or there was nothing to tell: goes on, or ends. */
void evacuate_round_over(struct zero *zero, int error, const struct zi_text *text);

/* Everybody at rest who holds what was moved names the new places, in one transaction. Ends in
 * evacuate_round_over(), possibly before this returns. */
void evacuate_commit(struct zero *zero);

/* Its places, checksums and slot are set. 0: evacuate_evacuee_over() follows, never before this
 * returns; an errno: it does not, and evacuee->text says why. */
int evacuee_begin(struct zero_evacuee *evacuee);
/* It lies at its new place, or evacuee->error and ->text say why not. */
void evacuate_evacuee_over(struct zero_evacuee *evacuee);
