/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes from another node; see pull.h. Floor 5, shard thread. */
#include "daemon/zero/across/bytes/pull.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "common/wire/plan.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/bytes/params_private.h"
#include "daemon/zero/job/job.h"

static_assert(PULL_NODE_SLOTS * PULL_SLOT_BYTES == ZI_PLAN_TALK_BYTES, "as plans have it");

/* Documented in the header, as are all that are not static. */
int pull_prepare(struct across *across, struct zi_text *text)
{
	struct zero_job *job = across->job;
	uint64_t bytes = across->node_count * PULL_NODE_SLOTS * PULL_SLOT_BYTES;
	int r = tier_segment_new(job->cpu_tier, &job->account->account, "zinf-talk", bytes,
	                         TIER_PAGES_SMALL, text, &across->slab);

	if (r)
		return err_trace(r);
	if (pull_divide(across, PULL_SLOT_BYTES))
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for tables"));
	return 0;
}

uint64_t pull_half_bytes(const struct across *across)
{
	return across->node_count * PULL_NODE_SLOTS * PULL_SLOT_BYTES / 2;
}

int pull_divide(struct across *across, uint64_t slot_bytes)
{
	uint32_t count = (uint32_t)(pull_half_bytes(across) / slot_bytes);
	_cleanup_(zi_freep) void *taken = calloc(count, sizeof(*across->taken));
	struct across_serve *serves = calloc(count, sizeof(*serves));

	bool is_used = false;

	assert(zi_list_is_empty(&across->waiting));
	assert(zi_list_is_empty(&across->pulls));
	for (uint32_t i = 0; i < across->slot_count; i++) {
		assert(!across->taken[i]);
		is_used |= across->serves[i].is_used;
	}
	if (!taken || !serves || is_used) {
		free(serves);
		return err_origin(is_used ? -EBUSY : -ENOMEM);
	}
	free(across->taken);
	free(across->serves);
	across->taken = zi_steal(taken);
	across->serves = serves;
	across->slot_count = count;
	across->slot_bytes = slot_bytes;
	return 0;
}

/* ---- what is pulled ---- */

static uint32_t pulls_from(const struct across *across, uint32_t node)
{
	uint32_t count = 0;

	zi_list_for_each(link, &across->pulls)
		count += container_of(link, struct pull, link)->node == node;
	return count;
}

static bool take_slot(struct across *across, uint32_t *ret_slot)
{
	for (uint32_t i = 0; i < across->slot_count; i++) {
		if (across->taken[i])
			continue;
		across->taken[i] = true;
		*ret_slot = i;
		return true;
	}
	return false;
}

/* Those that wait, in their order, as far as there is room. */
static void ask(struct across *across)
{
	zi_list_for_each_safe(link, &across->waiting) {
		struct pull *pull = container_of(link, struct pull, link);

		if (across->error || across->phase != ACROSS_TALKING)
			return;
		if (pulls_from(across, pull->node) >= PULL_NODE_MAX)
			continue;
		if (!take_slot(across, &pull->slot))
			return;
		zi_list_remove(&pull->link);
		zi_list_push_back(&across->pulls, &pull->link);
		pull->tag = ++across->tag;
		across_say(across, pull->node,
		           &(struct talk_entry){ .kind = TALK_PULL,
		                                 .what = (uint8_t)pull->what,
		                                 .tag = pull->tag,
		                                 .unit = pull->unit,
		                                 .subgroup = pull->subgroup,
		                                 .micro = pull->number,
		                                 .piece = pull->piece,
		                                 .step = pull->leaf,
		                                 .slab = NET_SLAB_TALK,
		                                 .offset_bytes = pull->slot * across->slot_bytes,
		                                 .bytes = pull->bytes });
	}
}

void pull_start(struct pull *pull)
{
	struct across *across = pull->job->across;

	assert(pull->done && pull->bytes);
	assert(across && pull->node != across->node);
	assert(pull->bytes <= across->slot_bytes);
	pull->error = 0;
	pull->slab = NULL;
	job_busy(pull->job);
	zi_list_push_back(&across->waiting, &pull->link);
	ask(across);
}

void pull_release(struct pull *pull)
{
	struct across *across = pull->job->across;

	/* While it is held no other slab has its address. */
	if (across && across->slab == pull->slab) {
		across->taken[pull->slot] = false;
		ask(across);
	}
	pull->slab = tier_segment_unref(pull->slab);
}

static void finish(struct pull *pull, int error, const struct zi_text *text)
{
	zi_list_remove(&pull->link);
	pull->error = error;
	if (error)
		pull->text = *text;
	job_unbusy(pull->job);
	pull->done(pull);
}

/* Its node's ranks have left, of which those here hear by this alone if they wait for a unit: who
 * waits for more ends by what a step or a load needs (heard_bye(), votes). Of a unit that was
 * written all that are left have to have the same: it ends the group. */
static int left(struct across *across, struct pull *pull, struct zi_text *text)
{
	bool is_written = pull->what == PULL_WRITTEN;
	struct zi_text name;

	if (across->is_detached) /* So have the ranks here, and the job knows no nodes any more. */
		zi_text_set(&name, "node %u", pull->node);
	else
		name = across_name(across->job, pull->node);
	zi_text_set(text, "parameters of unit '%.60s' are on %.100s, whose ranks have left%s",
	            pull->job->layout.units[pull->unit].name, name.chars,
	            is_written ? " before others had what was written (zinf_commit() or "
	                         "zinf_barrier() waits for all)"
	                       : "");
	if (is_written || params_are_whole(pull->job))
		return err_origin(-EPIPE);
	across->taken[pull->slot] = false;
	finish(pull, -EPIPE, text);
	ask(across);
	return 0;
}

int pull_answered(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	struct zi_text why;

	zi_list_for_each(link, &across->pulls) {
		struct pull *pull = container_of(link, struct pull, link);

		if (pull->tag != entry->tag || pull->node != entry->node)
			continue;
		if (entry->kind == TALK_CAME) {
			pull->slab = tier_segment_ref(across->slab);
			pull->memory = across_slot(across, pull->slot);
			finish(pull, 0, NULL);
			return 0;
		}
		if (entry->error == -EPIPE &&
		    (pull->what == PULL_PARAM || pull->what == PULL_WRITTEN))
			return err_trace(left(across, pull, text));
		/* Nobody pulls what the other one would not have. */
		zi_text_set(&why, "%.*s", (int)entry->data_bytes, (const char *)entry->data);
		zi_utf8_clean(why.chars); /* Another node's word. */
		return err_origin(
			zi_text_error(text, -EPROTO, "%.80s refuses what is pulled: %.100s",
		                      across_name(across->job, entry->node).chars, why.chars));
	}
	return err_origin(
		zi_text_error(text, -EPROTO, "zinf-net answered a pull that nobody asked for"));
}

/* ---- the end ---- */

void pull_fail(struct across *across, int error, const struct zi_text *text)
{
	while (!zi_list_is_empty(&across->waiting))
		finish(container_of(across->waiting.next, struct pull, link), error, text);
	while (!zi_list_is_empty(&across->pulls))
		finish(container_of(across->pulls.next, struct pull, link), error, text);
}
