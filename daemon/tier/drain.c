/* SPDX-License-Identifier: Apache-2.0 */
/* A member is emptied, or used again. Floor 4, shard thread. */
#include "daemon/tier/drain.h"

#include "common/base/err.h"
#include "daemon/tier/stripe.h"

/**
 * tier_member_drain() - begin to empty a member, or use it again
 * @text: of a refusal, with figures
 *
 * Return: 0; -EBUSY, -ENOSPC, -ENODEV: see drain.h.
 */
int tier_member_drain(struct tier_member *member, bool is_draining, struct zi_text *text)
{
	struct tier *tier = member->tier;
	uint64_t left_bytes;

	if (!is_draining) {
		member->is_draining = false;
		tier_member_forgive(member);
		tier_stripe_weigh(tier);
		return 0;
	}
	if (!member->store)
		return err_origin(zi_text_error(text, -ENODEV,
		                                "%s of %s is missing: nothing can be moved off it",
		                                member->path, tier->name));
	if (tier->member_count == 1)
		return err_origin(zi_text_error(
			text, -EBUSY, "%s is the only path of %s: give the tier another one first",
			member->path, tier->name));
	left_bytes = tier_members_capacity_bytes(tier, member);
	if (left_bytes < tier->used_bytes)
		return err_origin(zi_text_error(text, -ENOSPC,
		                                "jobs have reserved %s on %s, without %s it has %s",
		                                zi_format_bytes(tier->used_bytes).chars, tier->name,
		                                member->path, zi_format_bytes(left_bytes).chars));
	member->is_draining = true;
	tier_member_update(member);
	tier_stripe_weigh(tier); /* What is shown need not wait for the next step. */
	return 0;
}
