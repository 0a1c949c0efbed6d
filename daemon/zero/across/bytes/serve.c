/* SPDX-License-Identifier: Apache-2.0 */
/* What other nodes pull; see serve.h. Floor 5, shard thread. */
#include "daemon/zero/across/bytes/serve.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/across/agree/learn.h"
#include "daemon/zero/across/bytes/blobs.h"
#include "daemon/zero/across/bytes/heal_serve.h"
#include "daemon/zero/across/bytes/offer.h"
#include "daemon/zero/across/bytes/params_private.h"
#include "daemon/zero/across/sums/grads_private.h"
#include "daemon/zero/across/sums/norm.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

/* ---- written parameters ---- */

/* With a pool a unit is served from what was written alone, as long as that is kept. */
static bool is_source_of(const struct across_written *written, const struct talk_entry *entry)
{
	return written->source && written->source_unit == entry->unit &&
	       written->source_number == entry->micro;
}

/* Writes are counted from 1. A later one than the last may come from a node that is faster. */
static bool written_check(const struct across *across, const struct talk_entry *entry)
{
	const struct zero_job *job = across->job;
	uint64_t begin = entry->piece * across->slot_bytes, bytes;

	if (!job->units || entry->unit >= job->layout.unit_count || !entry->micro)
		return false;
	if (job->residency && entry->subgroup >= job->units[entry->unit].subgroup_count)
		return false;
	if (job->residency && entry->micro <= across->write_count &&
	    !is_source_of(&across->written, entry))
		return false;
	bytes = job->residency ? job_subgroup_param_bytes(job, across_subgroup(job, entry))
	                       : job_param_bytes(job, job->units[entry->unit].padded_count);
	return begin < bytes && entry->bytes <= bytes - begin &&
	       entry->micro <= across->write_count + 1;
}

static void written_fill(struct across_serve *serve)
{
	uint64_t begin = serve->entry.piece * serve->across->slot_bytes;
	const struct zero_job *job = serve->job;
	const char *from;

	if (serve->source)
		from = (char *)serve->source->region.base +
		       job_subgroup_param_begin(job, across_subgroup(job, &serve->entry));
	else
		from = job_unit_param(job, serve->entry.unit);
	memcpy(serve->memory, from + begin, serve->entry.bytes);
}

/* ---- all kinds ---- */

/* Whether it makes sense; it is asked once of each that comes. */
static bool check(struct across *across, const struct talk_entry *entry)
{
	if (!entry->bytes || entry->bytes > across->slot_bytes)
		return false;
	switch (entry->what) {
	case PULL_WRITTEN:
		return written_check(across, entry);
	case PULL_PARTIAL:
		return across->grads && grads_partial_asked(across->grads, entry);
	case PULL_SUM:
		return across->grads && grads_sum_asked(across->grads, entry);
	case PULL_NORM:
		return across->grads && norm_asked(across->grads, entry);
	case PULL_PARAM:
		return across->params && params_asked(across->params, entry);
	case PULL_OFFER:
		return offers_asked(across, entry);
	case PULL_HEAL:
		return heal_asked(across, entry);
	case PULL_BLOBS:
		return blobs_asked(across, entry);
	default:
		return false;
	}
}

/* Partials and sums are asked for when they are there. */
static bool is_there(struct across *across, const struct talk_entry *entry)
{
	/* What it asks for may have come before the model and its memory had: it is held against
	 * them again. */
	if (entry->what == PULL_WRITTEN)
		return across->written_count >= entry->micro && written_check(across, entry);
	if (entry->what == PULL_PARAM)
		return params_is_there(across->params, entry);
	if (entry->what == PULL_HEAL)
		return heal_is_there(across, entry);
	if (entry->what == PULL_BLOBS)
		return blobs_is_there(across, entry);
	return entry->what != PULL_NORM || norm_is_made(across->grads, entry->micro);
}

static void describe(struct across_serve *serve)
{
	serve->fill = written_fill;
	serve->filled = NULL;
	if (serve->entry.what == PULL_WRITTEN && serve->across->written.source)
		serve->source = tier_segment_ref(serve->across->written.source);
	assert(serve->entry.what != PULL_WRITTEN || !serve->source == !serve->job->residency);
	if (serve->entry.what == PULL_PARTIAL) {
		serve->fill = grads_partial_fill;
		serve->filled = grads_partial_filled;
	} else if (serve->entry.what == PULL_SUM) {
		serve->fill = grads_sum_fill;
		serve->filled = grads_sum_filled;
	} else if (serve->entry.what == PULL_NORM) {
		serve->fill = norm_fill;
	} else if (serve->entry.what == PULL_PARAM) {
		params_describe(serve);
	} else if (serve->entry.what == PULL_OFFER) {
		offers_describe(serve);
	} else if (serve->entry.what == PULL_HEAL) {
		heal_describe(serve);
	} else if (serve->entry.what == PULL_BLOBS) {
		serve->fill = blobs_fill;
	}
}

static void fill_run(struct dev_task *task)
{
	struct across_serve *serve = container_of(task, struct across_serve, task);

	serve->fill(serve);
}

static void fill_done(struct dev_task *task)
{
	struct across_serve *serve = container_of(task, struct across_serve, task);
	struct across *across = serve->across;
	struct zero_job *job = serve->job;
	struct zero *zero = job->zero;
	bool is_told;

	across->task_count--;
	job_unbusy(job);
	serve->source = tier_segment_unref(serve->source);
	if (serve->buffer)
		lent_give_back(serve->buffer);
	serve->buffer = NULL;
	if (serve->healed)
		heal_give_back(serve->healed);
	serve->healed = NULL;
	if (serve->offers)
		offers_give_back(serve->offers);
	serve->offers = NULL;
	is_told = !across->error && across->phase == ACROSS_TALKING;
	if (is_told)
		across_say(across, serve->entry.node,
		           &(struct talk_entry){ .kind = TALK_SERVE,
		                                 .tag = serve->entry.tag,
		                                 .slab = NET_SLAB_TALK,
		                                 .offset_bytes = serve->offset_bytes,
		                                 .bytes = serve->entry.bytes });
	if (is_told && !across->is_detached && serve->filled) {
		job_busy(job); /* Which may end with it otherwise. */
		serve->filled(serve);
		job_unbusy(job);
		job_settle(job);
	} else {
		across_go_on(across); /* It may wait for this. */
		job_settle(job);
	}
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
		.offset_bytes = slot * across->slot_bytes,
		.memory = across_slot(across, slot),
		.task = { .run = fill_run, .done = fill_done, .loop = job->zero->options.loop },
	};
	describe(serve);
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

/* What is not there yet keeps nothing behind it waiting: that may be what it waits for. */
static void serve_peer(struct across *across, struct across_peer *peer)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < peer->pull_count; i++) {
		const struct talk_entry *entry = &peer->pulls[i];
		struct across_serve *serve = free_serve(across);

		if (serve && is_there(across, entry))
			start_fill(across, serve, entry);
		else if (kept++ != i)
			peer->pulls[kept - 1] = *entry;
	}
	peer->pull_count = kept;
}

/* Documented in the header, as are the others. */
void serve_more(struct across *across)
{
	for (uint32_t i = 0; i < across->node_count; i++)
		serve_peer(across, &across->peers[i]);
}

/* Parameters of a unit, also such as were just written, may be wanted by ranks that wait for
 * nothing else of this node: they hear that it has none for them any more. All else ends with the
 * step that it is of. */
static void refuse(struct across *across, const struct talk_entry *entry)
{
	if (entry->what == PULL_PARAM || entry->what == PULL_WRITTEN)
		across_say(across, entry->node,
		           &(struct talk_entry){
				   .kind = TALK_REFUSED, .error = -EPIPE, .tag = entry->tag });
}

void serve_over(struct across *across)
{
	for (uint32_t i = 0; i < across->node_count; i++) {
		struct across_peer *peer = &across->peers[i];

		for (uint32_t k = 0; k < peer->pull_count; k++)
			refuse(across, &peer->pulls[k]);
		peer->pull_count = 0;
	}
}

int serve_asked(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	struct across_peer *peer = &across->peers[entry->node];

	if (across->is_detached) {
		refuse(across, entry);
		return 0;
	}
	if (!check(across, entry))
		return err_origin(zi_text_error(
			text, -EPROTO,
			"node %u asks for %llu bytes of kind %u, unit %u, piece %u: none",
			entry->node, (unsigned long long)entry->bytes, entry->what, entry->unit,
			entry->piece));
	if (peer->pull_count == TALK_CREDIT)
		return err_origin(zi_text_error(text, -EPROTO, "node %u pulls more than it may",
		                                entry->node));
	peer->pulls[peer->pull_count++] = *entry;
	serve_more(across);
	return 0;
}

bool serve_is_idle(const struct across *across)
{
	for (uint32_t i = 0; i < across->slot_count; i++)
		if (across->serves[i].is_used)
			return false;
	return true;
}

int serve_gone(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	for (uint32_t i = 0; i < across->slot_count; i++) {
		struct across_serve *serve = &across->serves[i];

		if (!serve->is_used || serve->entry.tag != entry->tag ||
		    serve->entry.node != entry->node)
			continue;
		serve->is_used = false;
		if (!across->is_detached)
			serve_more(across);
		learn_served(across);
		return 0;
	}
	return err_origin(zi_text_error(text, -EPROTO, "zinf-net sent data that was not served"));
}
