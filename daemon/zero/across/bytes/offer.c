/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes have of commits; see offer.h. Floor 5; shard thread, but for what runs on device
 * threads: fill(), take_run(). */
#include "daemon/zero/across/bytes/offer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

/* ---- this node's ---- */

static void set_bit(uint64_t *words, uint32_t subgroup, bool is_set)
{
	words[subgroup / 64] |= (uint64_t)is_set << subgroup % 64;
}

static void describe(const struct zero_job *job, const struct zero_marks *marks, int64_t step,
                     struct offer *offer)
{
	struct catalog_job record = { .scaler_bytes = 0 };

	offer->number = marks->number;
	offer->line = marks->line;
	offer->step = step;
	offer->update_count = marks->update_count;
	offer->beta1_power = marks->beta1_power;
	offer->beta2_power = marks->beta2_power;
	offer->world = marks->world;
	offer->placement = marks->placement;
	scale_put(&marks->scale, &record);
	offer->scaler_bytes = record.scaler_bytes;
	memcpy(offer->scaler, record.scaler, sizeof(offer->scaler));
	for (uint32_t i = 0; i < marks->world; i++)
		offer->blob_bytes[i] = (uint32_t)job->blobs[marks->blob_index][i].byte_count;
}

static void make_present(const struct zero_job *job, struct offer *offer)
{
	describe(job, &job->committed, job->committed_step, offer);
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];
		const struct zero_place *state = &subgroup->places[ZERO_PLANE_STATE];

		set_bit(offer->words, i, subgroup->is_here);
		set_bit(offer->words + offer->word_count, i,
		        subgroup->is_here && state->extent.bytes);
		set_bit(offer->words + 2 * offer->word_count, i, subgroup->is_kept);
	}
}

static void make_former(const struct zero_job *job, struct offer *offer)
{
	bool is_elsewhere = former_is_elsewhere(job);

	describe(job, &job->former.marks, job->former.step, offer);
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];
		const struct zero_place *state = &subgroup->places[ZERO_PLANE_STATE];
		const struct zero_place *param = &subgroup->places[ZERO_PLANE_PARAM];
		bool is_here = is_elsewhere ? subgroup->is_former_here : subgroup->is_here;
		uint64_t bytes = state->kept_is == ZERO_KEPT_FORMER ? state->kept.bytes
		                                                    : state->extent.bytes;

		set_bit(offer->words, i, is_here);
		set_bit(offer->words + offer->word_count, i, is_here && bytes);
		bytes = param->kept_is == ZERO_KEPT_FORMER ? param->kept.bytes
		                                           : param->extent.bytes;
		set_bit(offer->words + 2 * offer->word_count, i, is_here || bytes);
	}
}

/* Documented in the header, as are all that are not static. */
int offers_make(struct offers *offers, struct across *across)
{
	const struct zero_job *job = across->job;
	const struct zero_rank *first =
		job->group.ranks[__builtin_ctzll(job->group.gather_masks[ZERO_GATHER_MATERIALIZE])];
	uint64_t count =
		job->subgroup_count ? job->subgroup_count : layout_subgroup_count(&first->layout);
	uint32_t node = across->node;

	offers_free(offers);
	offers->across = across;
	offers->job = across->job;
	offers->word_count = (uint32_t)((count + 63) / 64);
	offers->offer_bytes =
		sizeof(struct offer) + OFFER_BITS * offers->word_count * sizeof(uint64_t);
	offers->memory =
		calloc((size_t)across->node_count * OFFERS_MAX, (size_t)offers->offer_bytes);
	if (!offers->memory)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < OFFERS_MAX; i++)
		offers_of(offers, node, i)->word_count = offers->word_count;
	if (job->committed_step >= 0) {
		make_present(job, offers_of(offers, node, 0));
		offers->masks[node] = 1;
	}
	if (job->former.is_kept && job->former.step >= 0) {
		make_former(job, offers_of(offers, node, 1));
		offers->masks[node] |= 2;
	}
	return 0;
}

void offers_free(struct offers *offers)
{
	assert(!pieces_are_active(&offers->pieces));
	assert(!offers->use_count);
	free(offers->memory);
	*offers = (struct offers){ .memory = NULL };
}

/* ---- the others' ---- */

/* Another node's word. Names are those of its vote: the caller looks at them. */
static bool is_sane(const struct offers *offers, const struct offer *offer)
{
	const struct catalog_placement *placement = &offer->placement;
	struct catalog_job record = { .scaler_bytes = offer->scaler_bytes };
	struct zero_scale scale;

	if (offer->word_count != offers->word_count || offer->reserved || offer->step < 0 ||
	    offer->step > (int64_t)OFFER_COUNT_MAX || offer->update_count > OFFER_COUNT_MAX ||
	    !isfinite(offer->beta1_power) || !isfinite(offer->beta2_power) || !offer->world ||
	    offer->world > ZI_WORLD_MAX || offer->scaler_bytes > sizeof(offer->scaler) ||
	    placement->strategy >= _ZI_STRATEGY_COUNT || placement->node_count > SUBTREE_NODES_MAX)
		return false;
	memcpy(record.scaler, offer->scaler, sizeof(record.scaler));
	if (scale_get(&record, &scale))
		return false;
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		if (offer->blob_bytes[i] > (i < offer->world ? ZI_BLOB_BYTES : 0))
			return false;
	/* Whoever holds a subgroup has its parameters, and nobody else has state of it. */
	for (uint32_t i = 0; i < offer->word_count; i++)
		if (offer->words[i] & ~offer->words[2 * offer->word_count + i] ||
		    offer->words[offer->word_count + i] & ~offer->words[i])
			return false;
	return true;
}

static void next(struct offers *offers);

static void told(struct zi_post *post)
{
	struct offers *offers = container_of(post, struct offers, post);
	struct across *across = offers->across;
	struct zero_job *job = offers->job;
	struct zero *zero = job->zero;
	struct zi_text text = offers->text;

	across->task_count--;
	job_unbusy(job);
	if (across->error || across->is_detached)
		across_go_on(across); /* It may wait for this. */
	offers->done(job, offers->error, &text);
	zero_drain(zero);
}

/* From the loop: the job may end with it, and whoever is under way here knows it yet. */
static void fail(struct offers *offers, int error, const struct zi_text *text)
{
	offers->error = error;
	offers->text = *text;
	offers->across->task_count++;
	job_busy(offers->job);
	zi_loop_post(offers->job->zero->options.loop, &offers->post, told);
}

static void take_run(struct fetch *fetch)
{
	struct offers *offers = container_of(fetch, struct offers, pieces.fetch);
	const struct pieces *pieces = &offers->pieces;

	memcpy((char *)offers_of(offers, offers->node, offers->which) + pieces->at_bytes,
	       pieces->pull.memory, pieces->pull.bytes);
}

static void take_ended(struct fetch *fetch, bool is_whole)
{
	struct offers *offers = container_of(fetch, struct offers, pieces.fetch);
	struct across *across = offers->across;
	struct zi_text text = across->text;

	if (!is_whole) {
		fail(offers, across->error ? across->error : -ECANCELED, &text);
		return;
	}
	if (!pieces_advance(&offers->pieces)) {
		if (!is_sane(offers, offers_of(offers, offers->node, offers->which))) {
			zi_text_set(&text, "node %u sent an invalid commit", offers->node);
			fail(offers, err_origin(-EPROTO), &text);
			return;
		}
		offers->pieces.at_bytes = 0;
		offers->which++;
	}
	next(offers);
}

/* The next piece of the next one that is made; or all are here. */
static void next(struct offers *offers)
{
	struct across *across = offers->across;

	while (offers->node < across->node_count &&
	       (offers->node == across->node || offers->which == OFFERS_MAX ||
	        !(offers->masks[offers->node] >> offers->which & 1))) {
		if (offers->node == across->node || ++offers->which >= OFFERS_MAX) {
			offers->node++;
			offers->which = 0;
		}
	}
	if (offers->node == across->node_count) {
		offers->done(offers->job, 0, NULL);
		return;
	}
	pieces_ask(&offers->pieces, &(struct pull){ .node = offers->node,
	                                            .what = PULL_OFFER,
	                                            .number = offers->which });
}

void offers_pull(struct offers *offers, offers_done_fn done)
{
	offers->done = done;
	offers->node = 0;
	offers->which = 0;
	offers->pieces = (struct pieces){ .across = offers->across,
		                          .run = take_run,
		                          .ended = take_ended,
		                          .bytes = offers->offer_bytes };
	next(offers);
}

/* ---- what others pull ---- */

bool offers_asked(const struct across *across, const struct talk_entry *entry)
{
	const struct offers *offers = across->heal ? &across->heal->offers : NULL;
	uint64_t begin = entry->piece * across->slot_bytes;

	return offers && offers->memory && entry->micro < OFFERS_MAX &&
	       offers->masks[across->node] >> entry->micro & 1 && begin < offers->offer_bytes &&
	       entry->bytes == ZI_MIN(offers->offer_bytes - begin, across->slot_bytes);
}

static void fill(struct across_serve *serve)
{
	const struct across *across = serve->across;
	const struct offer *offer =
		offers_of(&across->heal->offers, across->node, serve->entry.micro);

	memcpy(serve->memory, (const char *)offer + serve->entry.piece * across->slot_bytes,
	       serve->entry.bytes);
}

void offers_describe(struct across_serve *serve)
{
	serve->fill = fill;
	serve->offers = &serve->across->heal->offers;
	serve->offers->use_count++;
}

void offers_give_back(struct offers *offers)
{
	assert(offers->use_count > 0);
	offers->use_count--;
}
