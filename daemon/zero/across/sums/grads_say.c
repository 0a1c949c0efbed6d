/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over nodes: what is ready, said and heard; see grads.h. Floor 5, shard thread. */
#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/sums/grads_private.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/set.h"

/* ---- what is said ---- */

/* Documented in a header, as are all that are not static. */
void grads_note(struct grads *grads, uint32_t note)
{
	uint32_t capacity = grads->unit_count + grads->subgroup_count;

	assert(grads->note_put - grads->note_said < capacity);
	grads->notes[grads->note_put++ % capacity] = note;
}

/* Return: false, somebody has no room. */
static bool say_note(struct grads *grads, uint32_t note)
{
	struct across *across = grads->across;
	bool is_unit = note < grads->unit_count;
	uint32_t index = is_unit ? note : note - grads->unit_count;
	struct talk_entry entry = { .kind = TALK_READY };
	uint64_t *untold;

	if (is_unit) {
		entry.what = GRADS_READY_UNIT;
		entry.unit = index;
		entry.micro = grads->units[index].handed;
		entry.step =
			(int64_t)(grads->job->step.joined_mask & set_mask_here(grads->job, index));
		entry.piece = entry.step && grads->job->step.divides_by_live;
		untold = &grads->units[index].untold;
	} else {
		entry.what = GRADS_READY_SUM;
		entry.unit = grads->job->subgroups[index].unit;
		entry.subgroup = grads->job->subgroups[index].index;
		entry.micro = grads->subgroups[index].number;
		untold = &grads->subgroups[index].untold;
	}
	for (uint64_t rest = *untold; rest; rest &= rest - 1) {
		uint32_t node = (uint32_t)__builtin_ctzll(rest);

		if (across_room(across, node) <= ACROSS_RESERVE)
			continue;
		across_say(across, node, &entry);
		*untold &= ~(1ull << node);
	}
	return !*untold;
}

void grads_say(struct across *across)
{
	struct grads *grads = across->grads;

	if (!grads || across->error || across->is_detached || across->phase != ACROSS_TALKING)
		return;
	while (grads->note_said != grads->note_put) {
		uint32_t capacity = grads->unit_count + grads->subgroup_count;

		if (!say_note(grads, grads->notes[grads->note_said % capacity]))
			return;
		grads->note_said++;
	}
}

/* ---- what other nodes say ---- */

/* Return: false, it cannot be. */
static bool heard_unit(struct grads *grads, const struct talk_entry *entry)
{
	struct grads_unit *unit = &grads->units[entry->unit];
	uint32_t *heard = &grads->heard[entry->unit * grads->node_count + entry->node];
	uint64_t joined = (uint64_t)entry->step;

	if (!unit->finish_count || !(grads_plan_of(grads, entry->unit)->nodes >> entry->node & 1))
		return false;
	/* Its ranks' buffers are free only when all that it has was asked for. */
	if (entry->micro != *heard + 1 || *heard > unit->begun)
		return false;
	for (uint64_t rest = joined; rest; rest &= rest - 1)
		if (!(set_of(grads->job, entry->unit)->members >> __builtin_ctzll(rest) & 1) ||
		    across_node_of(grads->job, (uint32_t)__builtin_ctzll(rest)) != entry->node)
			return false;
	if (entry->piece > (joined != 0))
		return false;
	unit->joined |= joined;
	unit->dividers |= entry->piece ? joined : 0;
	++*heard;
	grads_try_finish(grads, entry->unit);
	return true;
}

int grads_heard(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	struct grads *grads = across->grads;
	bool is_sane = false;

	if (across->is_detached)
		return 0;
	if (grads && entry->unit < grads->unit_count) {
		const struct zero_unit *unit = &grads->job->units[entry->unit];

		if (entry->what == GRADS_READY_UNIT)
			is_sane = heard_unit(grads, entry);
		else if (entry->what == GRADS_READY_SUM && entry->subgroup < unit->subgroup_count)
			is_sane = grads_sum_ready(grads, unit->subgroup_first + entry->subgroup,
			                          entry);
	}
	if (is_sane)
		return 0;
	return err_origin(zi_text_error(
		text, -EPROTO,
		"node %u says that unit %u (subgroup %u, number %u) is ready: it cannot be",
		entry->node, entry->unit, entry->subgroup, entry->micro));
}
