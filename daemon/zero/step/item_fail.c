/* SPDX-License-Identifier: Apache-2.0 */
/* See item_fail.h. */
#include "daemon/zero/step/item_fail.h"

#include "common/base/err.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

static const char *plane_name(const struct zero_item *item, const struct tier_move *move)
{
	if (move == &item->sum_move)
		return "gradients";
	return move == &item->moves[ZERO_PLANE_PARAM] ? "parameters" : "optimizer state";
}

/* See item_fail.h. */
void item_fail_io(struct zero_item *item, const struct tier_move *move, int error)
{
	const struct zero_job *job = item->job;
	const struct zero_subgroup *subgroup = item->subgroup;

	if (item->error)
		return;
	item->error = error;
	zi_text_set(&item->text,
	            "job '%s': %s %s of unit '%.60s', subgroup %u, at offset %llu of %s: %s",
	            job->name, move->is_write ? "writing" : "reading", plane_name(item, move),
	            job->layout.units[subgroup->unit].name, subgroup->index,
	            (unsigned long long)move->offset_bytes, move->member->path, zi_err_name(error));
}

static bool is_any_path_left(const struct tier *tier)
{
	for (uint32_t i = 0; i < tier->member_count; i++)
		if (!tier_member_is_leaving(&tier->members[i]))
			return true;
	return false;
}

/* What was to lie on @member, which failed, finds no room on the others; or they failed as well,
 * and the write that showed it has not ended yet, with another one of its item. */
void item_fail_room(struct zero_item *item, const struct tier_member *member)
{
	const struct zero_job *job = item->job;

	if (item->error)
		return;
	if (!is_any_path_left(job->nvme_tier)) {
		item->error = -EIO;
		zi_text_set(&item->text, "job '%s': writing to %s: no path is left: %s", job->name,
		            job->nvme_tier->name, tier_paths(job->nvme_tier).chars);
		return;
	}
	item->error = -ENOSPC;
	zi_text_set(&item->text, "job '%s': no other path of %s has room for what %s lost: %s",
	            job->name, job->nvme_tier->name, member->path,
	            tier_paths(job->nvme_tier).chars);
}
