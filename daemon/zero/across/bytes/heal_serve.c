/* SPDX-License-Identifier: Apache-2.0 */
/* What this node held, for others; see heal_serve.h. Floor 5; shard thread, but for fill(). */
#include "daemon/zero/across/bytes/heal_serve.h"

#include <string.h>

#include "common/base/assert.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

/* Documented in the header, as are all that are not static. */
uint64_t heal_record_bytes(const struct zero_subgroup *subgroup)
{
	return sizeof(uint64_t) * (1 + subgroup->tile_count);
}

static void copy(void *mine, void *slot, uint64_t bytes, bool is_out)
{
	memcpy(is_out ? slot : mine, is_out ? mine : slot, bytes);
}

void heal_record_copy(struct heal_record *record, uint64_t record_bytes, char *data, uint64_t begin,
                      char *slot, uint64_t bytes, bool is_out)
{
	uint64_t front = begin < record_bytes ? ZI_MIN(bytes, record_bytes - begin) : 0;

	if (front)
		copy((char *)record + begin, slot, front, is_out);
	if (bytes > front)
		copy(data + begin + front - record_bytes, slot + front, bytes - front, is_out);
}

void heal_serve_begin(struct heal_serve *serve, struct across *across, char *memory,
                      uint64_t buffer_bytes)
{
	*serve = (struct heal_serve){ .across = across };
	for (uint32_t i = 0; i < HEAL_BUFFERS; i++) {
		serve->buffers[i].serve = serve;
		serve->buffers[i].stored.target = memory + i * buffer_bytes;
	}
}

bool heal_serve_is_idle(const struct heal_serve *serve)
{
	for (uint32_t i = 0; i < HEAL_BUFFERS; i++)
		if (serve->buffers[i].state == HEAL_READING || serve->buffers[i].use_count)
			return false;
	return true;
}

/* ---- what is asked for ---- */

static uint64_t asked_bytes(const struct zero_job *job, const struct offer *offer,
                            const struct talk_entry *entry)
{
	const struct zero_subgroup *subgroup;
	uint32_t index;

	if (entry->step == HEAL_BLOB)
		return entry->unit < ZI_WORLD_MAX ? offer->blob_bytes[entry->unit] : 0;
	if (entry->step < 0 || entry->step >= _HEAL_WHAT_COUNT || !job->units ||
	    entry->unit >= job->layout.unit_count ||
	    entry->subgroup >= job->units[entry->unit].subgroup_count)
		return 0;
	subgroup = across_subgroup(job, entry);
	index = job_subgroup_index(job, subgroup);
	if (entry->step == HEAL_PARAM)
		return offer_keeps(offer, index) ? heal_record_bytes(subgroup) +
		                                           job_subgroup_param_bytes(job, subgroup)
		                                 : 0;
	return offer_has_state(offer, index)
	               ? heal_record_bytes(subgroup) + job_subgroup_state_bytes(job, subgroup)
	               : 0;
}

/* Of what was chosen, when all have voted for that: whoever asks has heard of it. */
bool heal_asked(const struct across *across, const struct talk_entry *entry)
{
	const struct heal *heal = across->heal;
	bool is_open = heal && heal->memory && !heal->is_closed;
	const struct offer *offer = is_open ? heal_offer_of(heal, across->node) : NULL;
	uint64_t begin = entry->piece * across->slot_bytes, bytes;

	if (!offer)
		return false;
	bytes = asked_bytes(across->job, offer, entry);
	return begin < bytes && entry->bytes == ZI_MIN(bytes - begin, across->slot_bytes);
}

/* ---- what is read ---- */

static void came(struct stored *stored)
{
	struct heal_buffer *buffer = container_of(stored, struct heal_buffer, stored);
	struct across *across = buffer->serve->across;

	across->task_count--;
	buffer->state = stored->error ? HEAL_FREE : HEAL_NEW;
	if (across->error || across->is_detached) {
		across_go_on(across); /* It may wait for this. */
	} else if (!stored->error) {
		memcpy(buffer->record.hashes, stored->hashes, sizeof(buffer->record.hashes));
		serve_more(across);
	} else if (!across->fault) {
		/* Nobody trains without it; where another node has it too, it is this one's disk
		 * that somebody has to look at first. */
		across->fault = stored->error;
		across->fault_text = stored->text;
		across_go_on(across);
	}
}

/* A free one, or else the one that was given longest ago. */
static struct heal_buffer *find_room(struct heal_serve *serve)
{
	struct heal_buffer *found = NULL;

	for (uint32_t i = 0; i < HEAL_BUFFERS; i++) {
		struct heal_buffer *buffer = &serve->buffers[i];

		if (buffer->state == HEAL_FREE)
			return buffer;
		if (buffer->state == HEAL_GIVEN && !buffer->use_count &&
		    (!found || buffer->turn < found->turn))
			found = buffer;
	}
	return found;
}

static struct heal_buffer *find(struct heal_serve *serve, const struct zero_subgroup *subgroup,
                                uint32_t plane)
{
	for (uint32_t i = 0; i < HEAL_BUFFERS; i++) {
		struct heal_buffer *buffer = &serve->buffers[i];

		if (buffer->state != HEAL_FREE && buffer->stored.subgroup == subgroup &&
		    buffer->stored.plane == plane)
			return buffer;
	}
	return NULL;
}

static uint32_t plane_of(const struct talk_entry *entry)
{
	return entry->step == HEAL_STATE ? ZERO_PLANE_STATE : ZERO_PLANE_PARAM;
}

bool heal_is_there(struct across *across, const struct talk_entry *entry)
{
	struct heal_serve *serve = &across->heal->serve;
	struct zero_subgroup *subgroup;
	struct heal_buffer *buffer;

	/* It may have waited until that was over. */
	if (!heal_asked(across, entry))
		return false;
	if (entry->step == HEAL_BLOB)
		return true;
	subgroup = across_subgroup(across->job, entry);
	buffer = find(serve, subgroup, plane_of(entry));
	if (buffer)
		return buffer->state != HEAL_READING;
	buffer = find_room(serve);
	if (!buffer)
		return false;
	buffer->state = HEAL_READING;
	buffer->stored.subgroup = subgroup;
	buffer->stored.plane = plane_of(entry);
	buffer->stored.done = came;
	buffer->record.step = subgroup->places[buffer->stored.plane].step;
	across->task_count++;
	stored_read(&buffer->stored);
	tier_move_kick(across->job->zero->options.engine);
	return false;
}

/* ---- what is given ---- */

static void fill(struct across_serve *serve)
{
	const struct zero_job *job = serve->job;
	uint64_t begin = serve->entry.piece * serve->across->slot_bytes;
	const struct zero_blob *blob;

	if (serve->healed) {
		heal_record_copy(&serve->healed->record,
		                 heal_record_bytes(serve->healed->stored.subgroup),
		                 serve->healed->stored.target, begin, serve->memory,
		                 serve->entry.bytes, true);
		return;
	}
	blob = &job->blobs[job->committed.blob_index][serve->entry.unit];
	memcpy(serve->memory, (const char *)blob->bytes + begin, serve->entry.bytes);
}

void heal_describe(struct across_serve *serve)
{
	struct heal_serve *mine = &serve->across->heal->serve;

	serve->fill = fill;
	if (serve->entry.step == HEAL_BLOB)
		return;
	serve->healed =
		find(mine, across_subgroup(serve->job, &serve->entry), plane_of(&serve->entry));
	assert(serve->healed); /* It was there a moment ago. */
	serve->healed->state = HEAL_GIVEN;
	serve->healed->turn = ++mine->turn;
	serve->healed->use_count++;
}

void heal_give_back(struct heal_buffer *buffer)
{
	assert(buffer->use_count > 0);
	buffer->use_count--;
}
