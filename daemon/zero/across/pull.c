/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes from another node; see pull.h. Floor 5, shard thread. */
#include "daemon/zero/across/pull.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/job/job.h"

static char *slot_at(const struct tier_segment *slab, uint32_t slot)
{
	return (char *)slab->region.base + slot * PULL_SLOT_BYTES;
}

/* Documented in the header, as are all that are not static. */
int pull_prepare(struct across *across, struct zi_text *text)
{
	struct zero_job *job = across->job;
	uint32_t slots = across->node_count * PULL_NODE_SLOTS;
	int r;

	across->slot_count = slots / 2;
	across->taken = calloc(across->slot_count, sizeof(*across->taken));
	across->serves = calloc(across->slot_count, sizeof(*across->serves));
	if (!across->taken || !across->serves)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for tables"));
	r = tier_segment_new(job->cpu_tier, &job->account->account, "zinf-talk",
	                     slots * PULL_SLOT_BYTES, TIER_PAGES_SMALL, text, &across->slab);
	return err_trace(r);
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
		                                 .micro = pull->number,
		                                 .piece = pull->piece,
		                                 .slab = NET_SLAB_TALK,
		                                 .offset_bytes = pull->slot * PULL_SLOT_BYTES,
		                                 .bytes = pull->bytes });
	}
}

void pull_start(struct pull *pull)
{
	struct across *across = pull->job->across;

	assert(pull->done && pull->bytes);
	assert(pull->bytes <= PULL_SLOT_BYTES);
	assert(across && pull->node != across->node);
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

int pull_answered(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	struct zi_text why;

	zi_list_for_each(link, &across->pulls) {
		struct pull *pull = container_of(link, struct pull, link);

		if (pull->tag != entry->tag || pull->node != entry->node)
			continue;
		if (entry->kind == TALK_CAME) {
			pull->slab = tier_segment_ref(across->slab);
			pull->memory = slot_at(pull->slab, pull->slot);
			finish(pull, 0, NULL);
			return 0;
		}
		/* Nobody pulls what the other one would not have. */
		zi_text_set(&why, "%.*s", (int)entry->data_bytes, (const char *)entry->data);
		zi_utf8_clean(why.chars); /* Another node's word. */
		return err_origin(
			zi_text_error(text, -EPROTO, "%.80s refuses what is pulled: %.100s",
		                      across_name(across->job, entry->node).chars, why.chars));
	}
	return err_origin(zi_text_error(text, -EPROTO, "zinf-net answers a pull that is none"));
}

/* ---- what is served ---- */

/* Whether it is there. -EPROTO it will never be, with @text. */
static int look(const struct across *across, const struct talk_entry *entry, struct zi_text *text,
                bool *ret_is_there)
{
	const struct zero_job *job = across->job;
	uint64_t begin = entry->piece * PULL_SLOT_BYTES, bytes;

	if (entry->what != PULL_WRITTEN || entry->unit >= job->layout.unit_count || !entry->bytes ||
	    entry->bytes > PULL_SLOT_BYTES || !job->units || job->residency)
		goto nonsense;
	bytes = job_param_bytes(job, job->units[entry->unit].padded_count);
	if (begin >= bytes || entry->bytes > bytes - begin ||
	    entry->micro > across->write_count + 1)
		goto nonsense;
	*ret_is_there = across->written_count >= entry->micro;
	return 0;
nonsense:
	return err_origin(zi_text_error(
		text, -EPROTO, "node %u asks for %llu bytes of kind %u, unit %u, piece %u: none",
		entry->node, (unsigned long long)entry->bytes, entry->what, entry->unit,
		entry->piece));
}

static void fill(struct dev_task *task)
{
	struct across_serve *serve = container_of(task, struct across_serve, task);

	memcpy(serve->memory, serve->source, serve->entry.bytes);
}

static void filled(struct dev_task *task)
{
	struct across_serve *serve = container_of(task, struct across_serve, task);
	struct across *across = serve->across;
	struct zero_job *job = serve->job;
	struct zero *zero = job->zero;

	across->task_count--;
	job_unbusy(job);
	if (!across->error && across->phase == ACROSS_TALKING)
		across_say(across, serve->entry.node,
		           &(struct talk_entry){ .kind = TALK_SERVE,
		                                 .tag = serve->entry.tag,
		                                 .slab = NET_SLAB_TALK,
		                                 .offset_bytes = serve->offset_bytes,
		                                 .bytes = serve->entry.bytes });
	else
		across_go_on(across); /* It may wait for this. */
	job_settle(job);
	zero_drain(zero);
}

static void start_fill(struct across *across, struct across_serve *serve,
                       const struct talk_entry *entry)
{
	struct zero_job *job = across->job;
	uint32_t slot = across->slot_count + (uint32_t)(serve - across->serves);

	*serve = (struct across_serve){
		.across = across,
		.job = job,
		.is_used = true,
		.entry = *entry,
		.offset_bytes = slot * PULL_SLOT_BYTES,
		.memory = slot_at(across->slab, slot),
		.source = (char *)job_unit_param(job, entry->unit) + entry->piece * PULL_SLOT_BYTES,
		.task = { .run = fill, .done = filled, .loop = job->zero->options.loop },
	};
	across->task_count++;
	job_busy(job);
	dev_submit(job->device, &serve->task);
}

static struct across_serve *free_serve(struct across *across)
{
	for (uint32_t i = 0; i < across->slot_count; i++)
		if (!across->serves[i].is_used)
			return &across->serves[i];
	return NULL;
}

void pull_serve(struct across *across)
{
	struct across_serve *serve = free_serve(across);
	bool is_there = false;

	for (uint32_t i = 0; i < across->node_count; i++) {
		struct across_peer *peer = &across->peers[i];

		while (serve && peer->served != peer->asked) {
			const struct talk_entry *entry = &peer->pulls[peer->served % TALK_CREDIT];

			(void)look(across, entry, NULL, &is_there); /* It was looked at before. */
			if (!is_there)
				break;
			start_fill(across, serve, entry);
			peer->served++;
			serve = free_serve(across);
		}
	}
}

int pull_asked(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	struct across_peer *peer = &across->peers[entry->node];
	bool is_there;
	int r;

	if (across->is_detached)
		return 0; /* Nobody is left to whom it would matter. */
	r = look(across, entry, text, &is_there);
	if (r)
		return err_trace(r);
	if (peer->asked - peer->served == TALK_CREDIT)
		return err_origin(zi_text_error(text, -EPROTO, "node %u pulls more than it may",
		                                entry->node));
	peer->pulls[peer->asked++ % TALK_CREDIT] = *entry;
	pull_serve(across);
	return 0;
}

int pull_gone(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	for (uint32_t i = 0; i < across->slot_count; i++) {
		struct across_serve *serve = &across->serves[i];

		if (!serve->is_used || serve->entry.tag != entry->tag ||
		    serve->entry.node != entry->node)
			continue;
		serve->is_used = false;
		if (!across->is_detached)
			pull_serve(across);
		return 0;
	}
	return err_origin(zi_text_error(text, -EPROTO, "zinf-net has sent what nobody served"));
}

/* ---- the end ---- */

void pull_fail(struct across *across, int error, const struct zi_text *text)
{
	while (!zi_list_is_empty(&across->waiting))
		finish(container_of(across->waiting.next, struct pull, link), error, text);
	while (!zi_list_is_empty(&across->pulls))
		finish(container_of(across->pulls.next, struct pull, link), error, text);
}
