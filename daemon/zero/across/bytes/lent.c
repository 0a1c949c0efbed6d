/* SPDX-License-Identifier: Apache-2.0 */
/* Own parameters from the store, for other nodes; see lent.h. Floor 5, shard thread. */
#include "daemon/zero/across/bytes/lent.h"

#include "common/base/assert.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/bytes/params.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

static uint64_t buffer_bytes(const struct zero_job *job)
{
	uint64_t bytes = 0;

	for_each_subgroup_here(job, subgroup)
		bytes = ZI_MAX(bytes, job_subgroup_param_bytes(job, subgroup));
	return bytes;
}

static uint32_t buffer_count(const struct zero_job *job)
{
	return ZI_MIN(LENT_BUFFERS, job->here_count);
}

/* Documented in the header, as are all that are not static. */
uint64_t lent_bytes(const struct zero_job *job)
{
	if (!job_lends_param(job))
		return 0;
	return buffer_count(job) * buffer_bytes(job);
}

bool lent_is_idle(const struct zero_job *job)
{
	for (uint32_t i = 0; job->across && i < LENT_BUFFERS; i++)
		if (job->across->lent[i].state == LENT_READING)
			return false;
	return true;
}

void lent_take(struct lent_buffer *buffer)
{
	assert(buffer->state == LENT_NEW || buffer->state == LENT_GIVEN);
	buffer->state = LENT_GIVEN;
	buffer->use_count++;
}

void lent_give_back(struct lent_buffer *buffer)
{
	assert(buffer->use_count > 0);
	buffer->use_count--;
}

static void came(struct stored *stored)
{
	struct lent_buffer *buffer = container_of(stored, struct lent_buffer, stored);
	struct across *across = buffer->across;

	across->task_count--;
	buffer->state = stored->error ? LENT_FREE : LENT_NEW;
	if (across->error || across->is_detached) {
		across_go_on(across); /* It may wait for this. */
	} else if (!stored->error) {
		serve_more(across);
	} else if (!across->fault) {
		/* Other nodes cannot train without it. */
		across->fault = stored->error;
		across->fault_text = stored->text;
		across_go_on(across);
	}
}

static bool is_newest(const struct lent_buffer *buffer)
{
	const struct zero_subgroup *subgroup = buffer->stored.subgroup;

	return buffer->number == params_number(subgroup->job, subgroup->unit);
}

/* A free one, or else one that was given to whoever asked. */
static struct lent_buffer *find_room(struct across *across)
{
	struct lent_buffer *found = NULL;

	for (uint32_t i = 0; i < buffer_count(across->job); i++) {
		struct lent_buffer *buffer = &across->lent[i];

		if (buffer->state == LENT_FREE)
			return buffer;
		if (buffer->state != LENT_READING && !buffer->use_count &&
		    (buffer->state == LENT_GIVEN || !is_newest(buffer)))
			found = buffer;
	}
	return found;
}

struct lent_buffer *lent_have(struct across *across, struct zero_subgroup *subgroup)
{
	struct zero_job *job = across->job;
	struct lent_buffer *buffer;

	for (uint32_t i = 0; i < LENT_BUFFERS; i++) {
		buffer = &across->lent[i];
		if (buffer->state != LENT_FREE && buffer->stored.subgroup == subgroup &&
		    is_newest(buffer))
			return buffer->state == LENT_READING ? NULL : buffer;
	}
	buffer = find_room(across);
	if (!buffer)
		return NULL;
	buffer->across = across;
	buffer->number = params_number(job, subgroup->unit);
	buffer->state = LENT_READING;
	buffer->stored.subgroup = subgroup;
	buffer->stored.target = (char *)job->lent->region.base +
	                        (uint64_t)(buffer - across->lent) * buffer_bytes(job);
	buffer->stored.done = came;
	across->task_count++;
	stored_read(&buffer->stored);
	tier_move_kick(job->zero->options.engine);
	return NULL;
}
