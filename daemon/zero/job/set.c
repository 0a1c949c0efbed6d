/* SPDX-License-Identifier: Apache-2.0 */
/* See set.h. */
#include "daemon/zero/job/set.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "common/wire/owner.h"
#include "daemon/zero/job/job.h"

/* What a former start of another world named is of no use: one set of all. */
bool sets_are_named(const struct zero_job *job)
{
	for (uint32_t i = 0; i < job->layout.set_count; i++)
		if (job->layout.sets[i].members & ~job_mask_of(job->world))
			return false;
	return job->layout.set_count > 0;
}

static struct zero_set make_set(const struct zero_job *job, uint64_t members)
{
	uint32_t count = (uint32_t)__builtin_popcountll(members);
	struct zero_set set = {
		.members = members,
		.member_count = count,
		.shard_count = zi_shard_members(&job->training, count),
		.average = (float)(1.0 / (double)count),
	};

	assert(count > 0);
	assert(count % set.shard_count == 0);
	return set;
}

/* Of units within their set. */
static void place_grads(struct zero_job *job)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);

	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		struct zero_unit *unit = &job->units[i];
		struct zero_set *set = &job->sets[set_of(job, i) - job->sets];

		unit->grad_offset = set->grad_bytes;
		if (!unit->is_frozen)
			set->grad_bytes +=
				zi_geometry_unit_bytes(unit->padded_count, width, job->slot_bytes);
	}
}

static void place_sets(struct zero_job *job)
{
	for (uint32_t rank = 0; rank < job->world; rank++) {
		uint64_t base = 0;

		for (uint32_t i = 0; i < job->set_count; i++) {
			if (!(job->sets[i].members >> rank & 1))
				continue;
			job->sets[i].grad_bases[rank] = base;
			base += job->sets[i].grad_bytes;
		}
	}
}

/* The world has another size, or the strategy is another, or the sets are. Nothing may be in
 * flight. */
int sets_build(struct zero_job *job)
{
	bool is_named = sets_are_named(job);
	uint32_t count = is_named ? job->layout.set_count : 1;
	struct zero_set *sets = calloc(count, sizeof(*sets));

	assert(job->world > 0);
	assert(job->world <= ZI_WORLD_MAX);
	if (!sets)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < count; i++)
		sets[i] = make_set(job, is_named ? job->layout.sets[i].members
		                                 : job_mask_of(job->world));
	free(job->sets);
	job->sets = sets;
	job->set_count = count;
	place_grads(job);
	place_sets(job);
	return 0;
}

/* Return: the set that the unit belongs to. */
const struct zero_set *set_of(const struct zero_job *job, uint32_t unit)
{
	zi_debug_assert(unit < job->layout.unit_count);
	if (job->set_count == 1)
		return &job->sets[0];
	zi_debug_assert(job->layout.units[unit].member_set < job->set_count);
	return &job->sets[job->layout.units[unit].member_set];
}

const char *set_name(const struct zero_job *job, uint32_t unit)
{
	if (!job->layout.set_count)
		return "all ranks";
	return job->layout.sets[job->layout.units[unit].member_set].name;
}

bool set_has(const struct zero_job *job, uint32_t unit, uint32_t rank)
{
	return set_of(job, unit)->members >> rank & 1;
}

bool set_trains(const struct zero_job *job, uint32_t unit, uint32_t rank)
{
	return !job->units[unit].is_frozen && set_has(job, unit, rank);
}

uint64_t set_mask_here(const struct zero_job *job, uint32_t unit)
{
	return job->units[unit].is_frozen ? 0 : set_of(job, unit)->members & job->here_mask;
}

uint32_t set_rank(const struct zero_set *set, uint32_t member)
{
	uint64_t rest = set->members;

	assert(member < set->member_count);
	for (; member; member--)
		rest &= rest - 1;
	return (uint32_t)__builtin_ctzll(rest);
}

uint64_t set_grad_bytes(const struct zero_job *job, uint32_t rank)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < job->set_count; i++)
		if (job->sets[i].members >> rank & 1)
			bytes += job->sets[i].grad_bytes;
	/* Of a rank that trains nothing there is a segment all the same. */
	return ZI_MAX(bytes, (uint64_t)ZI_STORE_ALIGN_BYTES);
}

struct set_ranks set_format(uint64_t members)
{
	struct set_ranks text = { "" };
	size_t used = 0;

	for (uint32_t first = 0; first < ZI_WORLD_MAX; first++) {
		uint32_t last = first;

		if (!(members >> first & 1))
			continue;
		while (last + 1 < ZI_WORLD_MAX && members >> (last + 1) & 1)
			last++;
		/* Room for ", 10-20" and the dots after it. */
		if (used + sizeof(", 10-20...") > sizeof(text.chars)) {
			(void)snprintf(text.chars + used, sizeof(text.chars) - used, "...");
			break;
		}
		used += (size_t)snprintf(text.chars + used, sizeof(text.chars) - used, "%s%u",
		                         used ? ", " : "", first);
		if (last > first)
			used += (size_t)snprintf(text.chars + used, sizeof(text.chars) - used,
			                         "-%u", last);
		first = last;
	}
	return text;
}
