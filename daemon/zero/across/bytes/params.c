/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of what other nodes update: who has what, and what is served; see params.h. Floor 5;
 * shard thread, but for params_fill(). */
#include "daemon/zero/across/bytes/params.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/bytes/params_private.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/set.h"

/* ---- tables ---- */

/* Documented in a header, as are all that are not static. */
struct params *params_free(struct params *params)
{
	if (!params)
		return NULL;
	assert(!params->active_count);
	free(params->ways);
	free(params->subgroups);
	free(params->numbers);
	free(params->ready);
	free(params->notes);
	free(params);
	return NULL;
}

const struct params_way *params_way_of(const struct params *params,
                                       const struct zero_subgroup *subgroup)
{
	const struct zero_job *job = params->job;
	size_t set = (size_t)(set_of(job, subgroup->unit) - job->sets);

	return &params->ways[set * ZI_WORLD_MAX + subgroup->owner];
}

bool params_are_whole(const struct zero_job *job)
{
	return !job_divides_param(job);
}

bool params_are_kept(const struct zero_job *job)
{
	return job_stores_param(job) && params_are_whole(job);
}

static uint32_t node_of(const struct zero_job *job, const struct zero_set *set, uint32_t member)
{
	return across_node_of(job, set_rank(set, member));
}

/* Whether any replica's owner is on @node. */
static bool holds(const struct zero_job *job, const struct zero_set *set, uint32_t owner,
                  uint32_t node)
{
	for (uint32_t i = owner; i < set->member_count; i += set->shard_count)
		if (node_of(job, set, i) == node)
			return true;
	return false;
}

/* The owner in the replica of the node's first member; of a node without members in any. */
static uint32_t source_of(const struct zero_job *job, const struct zero_set *set, uint32_t owner,
                          uint32_t node)
{
	uint32_t replica = node % (set->member_count / set->shard_count);

	if (holds(job, set, owner, node))
		return node;
	for (uint32_t i = 0; i < set->member_count; i++)
		if (node_of(job, set, i) == node) {
			replica = i / set->shard_count;
			break;
		}
	return node_of(job, set, replica * set->shard_count + owner);
}

static struct params_way way_of(const struct params *params, const struct zero_set *set,
                                uint32_t owner)
{
	const struct zero_job *job = params->job;
	uint32_t here = params->across->node;
	struct params_way way = { .source = source_of(job, set, owner, here) };

	for (uint32_t i = 0; i < params->across->node_count && params_are_whole(job); i++)
		if (i != here && source_of(job, set, owner, i) == here)
			way.takers |= 1ull << i;
	return way;
}

static int alloc_tables(struct params *params)
{
	const struct zero_job *job = params->job;
	size_t ways = (size_t)job->set_count * ZI_WORLD_MAX;

	params->ways = calloc(ways, sizeof(*params->ways));
	params->subgroups = calloc(params->subgroup_count, sizeof(*params->subgroups));
	params->numbers = calloc(params->unit_count, sizeof(*params->numbers));
	params->ready = calloc(params->subgroup_count, sizeof(*params->ready));
	params->notes = calloc(params->subgroup_count, sizeof(*params->notes));
	if (!params->ways || !params->subgroups || !params->numbers || !params->ready ||
	    !params->notes)
		return err_origin(-ENOMEM);
	return 0;
}

int params_open(struct zero_job *job, struct zi_text *text)
{
	struct across *across = job->across;
	struct params *params = calloc(1, sizeof(*params));

	across->params = params_free(across->params);
	if (!params)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for tables"));
	params->across = across;
	params->job = job;
	params->unit_count = job->layout.unit_count;
	params->subgroup_count = job->subgroup_count;
	if (alloc_tables(params)) {
		(void)params_free(params);
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for tables"));
	}
	for (uint32_t i = 0; i < job->set_count; i++)
		for (uint32_t k = 0; k < job->sets[i].shard_count; k++)
			params->ways[i * ZI_WORLD_MAX + k] = way_of(params, &job->sets[i], k);
	across->params = params;
	return 0;
}

/* ---- where they are ---- */

uint32_t params_number(const struct zero_job *job, uint32_t unit)
{
	return job->across->params->numbers[unit];
}

uint32_t params_source(const struct zero_job *job, const struct zero_subgroup *subgroup)
{
	return params_way_of(job->across->params, subgroup)->source;
}

/* ---- what is served ---- */

bool params_asked(const struct params *params, const struct talk_entry *entry)
{
	const struct zero_job *job = params->job;
	uint64_t begin = entry->piece * params->across->slot_bytes, bytes;
	const struct zero_subgroup *subgroup;
	uint32_t number;

	if (entry->unit >= params->unit_count ||
	    entry->subgroup >= job->units[entry->unit].subgroup_count)
		return false;
	subgroup = across_subgroup(job, entry);
	number = params->numbers[entry->unit];
	/* Before the first nothing is there that could be asked for. */
	if (!entry->micro || (entry->micro != number && entry->micro != number + 1))
		return false;
	if (!subgroup->is_here)
		return false;
	bytes = job_subgroup_param_bytes(job, subgroup);
	return begin < bytes && entry->bytes == ZI_MIN(bytes - begin, params->across->slot_bytes);
}

/* Values that are about to be replaced are nobody's any more. */
static void is_void(struct params *params, const struct talk_entry *entry)
{
	struct across *across = params->across;

	if (across->fault)
		return;
	across->fault = -EPROTO;
	zi_text_set(&across->fault_text,
	            "node %u pulls parameters of unit %u (subgroup %u, number %u) that it has "
	            "agreed to replace",
	            entry->node, entry->unit, entry->subgroup, entry->micro);
	across_go_on(across);
}

bool params_is_there(struct params *params, const struct talk_entry *entry)
{
	uint32_t index = job_subgroup_index(params->job, across_subgroup(params->job, entry));

	if (params->numbers[entry->unit] > entry->micro)
		is_void(params, entry);
	if (params->numbers[entry->unit] != entry->micro ||
	    params->subgroups[index].made != entry->micro)
		return false;
	if (!job_stores_param(params->job))
		return true;
	/* Others of its unit may be on their way here from whoever asks. */
	return (params->job->subgroups[index].is_param_next ||
	        !params->job->units[entry->unit].write_count) &&
	       lent_have(params->across, &params->job->subgroups[index]);
}

void params_describe(struct across_serve *serve)
{
	serve->fill = params_fill;
	serve->filled = params_filled;
	if (!job_stores_param(serve->job))
		return;
	serve->buffer = lent_have(serve->across, across_subgroup(serve->job, &serve->entry));
	assert(serve->buffer); /* It was there a moment ago. */
	lent_take(serve->buffer);
}

void params_fill(struct across_serve *serve)
{
	const struct zero_subgroup *subgroup = across_subgroup(serve->job, &serve->entry);
	uint64_t begin = serve->entry.piece * serve->across->slot_bytes;
	const char *from = serve->buffer ? serve->buffer->stored.target
	                                 : job_subgroup_param(serve->job, subgroup);

	memcpy(serve->memory, from + begin, serve->entry.bytes);
}

void params_filled(struct across_serve *serve)
{
	struct params *params = serve->across->params;
	const struct zero_subgroup *subgroup = across_subgroup(serve->job, &serve->entry);
	struct params_subgroup *mine = &params->subgroups[job_subgroup_index(serve->job, subgroup)];

	if (!mine->gives_left ||
	    !(params_way_of(params, subgroup)->takers >> serve->entry.node & 1))
		return;
	if (--mine->gives_left)
		return;
	params->give_count--;
	params_go_on(params);
}

/* ---- what becomes of them here ---- */

void params_updated(struct zero_job *job, const struct zero_subgroup *subgroup)
{
	struct params *params = job->across ? job->across->params : NULL;

	if (params)
		params_tell(params, job_subgroup_index(job, subgroup));
}

void params_stored(struct zero_job *job)
{
	if (job->across)
		serve_more(job->across);
}

void params_write(struct zero_job *job, uint32_t unit)
{
	job->across->params->numbers[unit]++;
}

/* They have gone to all nodes that have a place for them; where there are pools, to whoever holds
 * them. */
void params_written(struct zero_job *job, uint32_t unit)
{
	struct params *params = job->across->params;
	uint32_t first = job->units[unit].subgroup_first;

	for (uint32_t i = 0; i < job->units[unit].subgroup_count; i++) {
		params->subgroups[first + i].made = params->numbers[unit];
		params->subgroups[first + i].said = params->numbers[unit];
	}
	serve_more(params->across);
}
