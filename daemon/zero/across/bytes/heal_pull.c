/* SPDX-License-Identifier: Apache-2.0 */
/* What this node shall hold, from others; see heal_pull.h. Floor 5; shard thread, but for
 * take_run(). */
#include "daemon/zero/across/bytes/heal_pull.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "kernels/hash.h"

/* Documented in the header, as are all that are not static. */
uint32_t heal_source(const struct heal *heal, uint32_t subgroup, uint32_t plane)
{
	uint32_t nodes[SUBTREE_NODES_MAX], count = 0;

	for (uint32_t i = 0; i < heal->across->node_count; i++) {
		const struct offer *offer = heal_offer_of(heal, i);

		if (offer && offer_has_plane(offer, subgroup, plane))
			nodes[count++] = i;
	}
	assert(count > 0); /* What was chosen is whole. */
	return nodes[subgroup % count];
}

/* ---- the end ---- */

static void next(struct heal_pull *pulls);

static void fail(struct heal_pull *pulls, int error, const struct zi_text *text)
{
	if (pulls->error)
		return;
	pulls->error = error;
	pulls->text = *text;
}

/* Nothing of the take is in flight. */
static void took(struct heal_take *take)
{
	struct heal_pull *pulls = take->pulls;

	take->is_active = false;
	pulls->active_count--;
	next(pulls);
}

/* ---- one ---- */

static const char *name_of(enum heal_what what)
{
	return what == HEAL_STATE ? "optimizer state" : "parameters";
}

static uint32_t plane_of(const struct heal_take *take)
{
	return take->what == HEAL_STATE ? ZERO_PLANE_STATE : ZERO_PLANE_PARAM;
}

static void written(struct tier_move *move)
{
	struct heal_take *take = container_of(move, struct heal_take, move);
	struct zero_job *job = take->pulls->heal->job;
	struct zero *zero = job->zero;
	struct across *across = take->pulls->across;
	struct zi_text text;

	across->task_count--;
	job_unbusy(job);
	if (move->result) {
		zi_text_set(&text,
		            "job '%.60s': writing %s of unit '%.60s', subgroup %u, at offset %llu "
		            "of %.60s: %s",
		            job->name, name_of(take->what),
		            job->layout.units[take->subgroup->unit].name, take->subgroup->index,
		            (unsigned long long)move->offset_bytes, move->member->path,
		            zi_err_name(move->result));
		fail(take->pulls, move->result, &text);
	} else {
		job->write_bytes += move->bytes;
	}
	if (across->error || across->is_detached) {
		fail(take->pulls, across->error ? across->error : -ECANCELED, &across->text);
		across_go_on(across); /* It may wait for this. */
	}
	took(take);
	zero_drain(zero);
}

static void write_it(struct heal_take *take)
{
	struct zero_job *job = take->pulls->heal->job;
	uint32_t plane = plane_of(take);
	struct zero_place *place = &take->subgroup->places[plane];
	struct zi_text text;
	int r;

	memcpy(&job->hashes[plane][place_next_index(place)][take->subgroup->tile_first],
	       take->record.hashes, take->subgroup->tile_count * sizeof(uint64_t));
	take->pulls->steps[plane][job_subgroup_index(job, take->subgroup)] = take->record.step;
	take->move = (struct tier_move){ .member = place->next.member,
		                         .is_write = true,
		                         .offset_bytes = place->next.offset_bytes,
		                         .buffer = take->buffer,
		                         .bytes = place->next.bytes,
		                         .flow = job->flow,
		                         .tally = &job->account->tally,
		                         .done = written };
	assert(place->next.bytes == take->bytes);
	r = tier_move_submit(job->zero->options.engine, &take->move);
	if (r) {
		zi_text_set(&text, "job '%s': writing to %s: %s", job->name,
		            place->next.member->path, zi_err_name(r));
		fail(take->pulls, r, &text);
		took(take);
		return;
	}
	take->pulls->across->task_count++;
	job_busy(job);
	tier_move_kick(job->zero->options.engine);
}

/* The checksums that came with it are of what came. Another node has verified the same, so what
 * differs has changed on its way. */
static void verify(struct heal_take *take)
{
	const struct zero_job *job = take->pulls->heal->job;
	uint32_t width = take->what == HEAL_STATE
	                         ? job_state_bytes(job)
	                         : zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
	uint64_t tile_bytes = (uint64_t)ZI_TILE_ELEMENTS * width;

	if (take->record.step > (uint64_t)take->pulls->heal->chosen.step) {
		take->error = -EPROTO;
		zi_text_set(&take->text,
		            "node %u gives %s of unit '%.60s', subgroup %u, as of step %llu, "
		            "which was not there at step %lld",
		            take->source, name_of(take->what),
		            job->layout.units[take->subgroup->unit].name, take->subgroup->index,
		            (unsigned long long)take->record.step,
		            (long long)take->pulls->heal->chosen.step);
	}
	for (uint32_t i = 0; i < take->subgroup->tile_count && !take->error; i++) {
		uint64_t begin = i * tile_bytes, bytes = ZI_MIN(tile_bytes, take->bytes - begin);

		if (kern_hash_tile(take->buffer + begin, bytes, width) == take->record.hashes[i])
			continue;
		take->error = -EBADMSG;
		zi_text_set(&take->text,
		            "job '%.60s': %s of unit '%.60s', subgroup %u, came damaged from node "
		            "%u: %llu bytes at %llu do not match their checksum",
		            job->name, name_of(take->what),
		            job->layout.units[take->subgroup->unit].name, take->subgroup->index,
		            take->source, (unsigned long long)bytes, (unsigned long long)begin);
	}
}

static void take_run(struct fetch *fetch)
{
	struct heal_take *take = container_of(fetch, struct heal_take, pieces.fetch);
	const struct pieces *pieces = &take->pieces;

	heal_record_copy(&take->record, take->record_bytes, take->data, pieces->at_bytes,
	                 pieces->pull.memory, pieces->pull.bytes, false);
	if (take->what != HEAL_BLOB && pieces->at_bytes + pieces->pull.bytes == pieces->bytes)
		verify(take);
}

static void ask(struct heal_take *take)
{
	bool is_blob = take->what == HEAL_BLOB;

	pieces_ask(&take->pieces,
	           &(struct pull){ .node = take->source,
	                           .what = PULL_HEAL,
	                           .unit = is_blob ? take->rank : take->subgroup->unit,
	                           .subgroup = is_blob ? 0 : take->subgroup->index,
	                           .leaf = take->what });
}

static void take_ended(struct fetch *fetch, bool is_whole)
{
	struct heal_take *take = container_of(fetch, struct heal_take, pieces.fetch);
	struct heal_pull *pulls = take->pulls;
	struct zi_text text = pulls->across->text;

	if (!is_whole)
		fail(pulls, pulls->across->error ? pulls->across->error : -ECANCELED, &text);
	else if (take->error)
		fail(pulls, take->error, &take->text);
	if (pulls->error) {
		took(take);
		return;
	}
	pulls->came_bytes += take->pieces.pull.bytes;
	if (pieces_advance(&take->pieces))
		ask(take);
	else if (take->what == HEAL_BLOB)
		took(take);
	else
		write_it(take);
}

/* ---- all ---- */

/* The next plane of what is lacked: false, there is none. State that is all zero needs nothing. */
static bool find_plane(struct heal_pull *pulls, struct heal_take *take)
{
	const struct heal *heal = pulls->heal;
	struct zero_job *job = heal->job;

	for (; pulls->subgroup < job->subgroup_count; pulls->subgroup++, pulls->plane = 0) {
		struct zero_subgroup *subgroup = &job->subgroups[pulls->subgroup];

		while (pulls->plane < _ZERO_PLANE_COUNT) {
			uint32_t plane = pulls->plane++;

			if (!heal_lacks(heal, pulls->subgroup, plane) ||
			    !subgroup->places[plane].next.bytes)
				continue;
			take->what = plane == ZERO_PLANE_STATE ? HEAL_STATE : HEAL_PARAM;
			take->subgroup = subgroup;
			take->source = heal_source(heal, pulls->subgroup, plane);
			take->record_bytes = heal_record_bytes(subgroup);
			take->bytes = subgroup->places[plane].next.bytes;
			take->data = take->buffer;
			return true;
		}
	}
	return false;
}

/* The next rank's blob that this node has not. Of a rank that is new there is none. */
static bool find_blob(struct heal_pull *pulls, struct heal_take *take)
{
	const struct heal *heal = pulls->heal;
	struct zero_job *job = heal->job;
	const struct offer *mine = heal_offer_of(heal, heal->across->node);

	for (; pulls->rank < job->world; pulls->rank++) {
		uint32_t rank = pulls->rank;
		struct zero_blob *blob = &job->blobs[pulls->blob_index][rank];

		if (mine && mine->blob_bytes[rank])
			continue;
		for (uint32_t i = 0; i < heal->across->node_count; i++) {
			const struct offer *offer = heal_offer_of(heal, i);

			if (!offer || !offer->blob_bytes[rank])
				continue;
			assert(blob->bytes);
			blob->byte_count = offer->blob_bytes[rank];
			take->what = HEAL_BLOB;
			take->rank = rank;
			take->source = i;
			take->record_bytes = 0;
			take->bytes = offer->blob_bytes[rank];
			take->data = blob->bytes;
			pulls->rank++;
			return true;
		}
	}
	return false;
}

static void told(struct zi_post *post)
{
	struct heal_pull *pulls = container_of(post, struct heal_pull, post);
	struct across *across = pulls->across;
	struct zero_job *job = pulls->heal->job;
	struct zero *zero = job->zero;

	across->task_count--;
	job_unbusy(job);
	if (across->error || across->is_detached)
		across_go_on(across); /* It may wait for this. */
	pulls->done(pulls->heal, pulls->error, &pulls->text);
	zero_drain(zero);
}

/* An error is told from the loop: the job may end with it, and whoever is under way here knows it
 * yet. */
static void over(struct heal_pull *pulls)
{
	struct zero_job *job = pulls->heal->job;

	if (!pulls->error) {
		pulls->done(pulls->heal, 0, &pulls->text);
		return;
	}
	pulls->across->task_count++;
	job_busy(job);
	zi_loop_post(job->zero->options.loop, &pulls->post, told);
}

static void next(struct heal_pull *pulls)
{
	for (uint32_t i = 0; i < HEAL_TAKES && !pulls->error; i++) {
		struct heal_take *take = &pulls->takes[i];

		if (take->is_active)
			continue;
		if (!find_plane(pulls, take) && !find_blob(pulls, take))
			break;
		take->is_active = true;
		take->error = 0;
		take->pieces = (struct pieces){ .across = pulls->across,
			                        .run = take_run,
			                        .ended = take_ended,
			                        .bytes = take->record_bytes + take->bytes };
		pulls->active_count++;
		ask(take);
	}
	if (!pulls->active_count)
		over(pulls);
}

int heal_pull_begin(struct heal_pull *pulls, struct heal *heal, char *memory, uint64_t buffer_bytes)
{
	*pulls = (struct heal_pull){ .heal = heal, .across = heal->across };
	for (uint32_t i = 0; i < HEAL_TAKES; i++) {
		pulls->takes[i].pulls = pulls;
		pulls->takes[i].buffer = memory + i * buffer_bytes;
	}
	for (uint32_t i = 0; i < _ZERO_PLANE_COUNT; i++) {
		pulls->steps[i] = calloc(heal->job->subgroup_count, sizeof(*pulls->steps[i]));
		if (!pulls->steps[i])
			return err_origin(-ENOMEM);
	}
	return 0;
}

void heal_pull_end(struct heal_pull *pulls)
{
	assert(!pulls->active_count);
	for (uint32_t i = 0; i < _ZERO_PLANE_COUNT; i++) {
		free(pulls->steps[i]);
		pulls->steps[i] = NULL;
	}
}

void heal_pull_start(struct heal_pull *pulls, uint32_t blob_index, heal_pulled_fn done)
{
	pulls->blob_index = blob_index;
	pulls->done = done;
	next(pulls);
}
