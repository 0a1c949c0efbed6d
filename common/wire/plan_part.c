/* SPDX-License-Identifier: Apache-2.0 */
/* A node's part of a model; see plan_part.h. */
#include "common/wire/plan_part.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "common/wire/owner.h"

/* Is @member's rank, or one of those with the same share in other replicas, among those here? */
static bool is_here(const struct zi_plan_options *options, uint32_t member, uint32_t step)
{
	for (uint32_t rank = member; rank < options->world_size; rank += step)
		if (rank >= options->first_rank &&
		    rank - options->first_rank < options->local_ranks)
			return true;
	return false;
}

static void add(struct zi_plan_model *model, uint64_t *padded, uint32_t unit, uint64_t count)
{
	padded[unit] += count;
	model->padded_count += count;
}

static void deal(const struct zi_plan_model *model, const struct zi_plan_options *options,
                 struct zi_plan_part *part)
{
	uint32_t shard = zi_shard_members(&options->training, options->world_size);
	uint64_t *held = part->padded, *summed = part->padded + model->unit_count;
	struct zi_owners owners, finishers;

	zi_owners_init(&owners, shard);
	zi_owners_init(&finishers, options->world_size);
	for (uint32_t unit = 0; unit < model->unit_count; unit++) {
		uint64_t padded = model->unit_padded[unit];

		for (uint32_t i = 0; i < zi_geometry_subgroup_count(padded); i++) {
			uint64_t count = zi_geometry_subgroup_elements(padded, i);
			bool is_held = is_here(options, zi_owners_deal(&owners, count), shard);
			bool is_finished = is_here(options, zi_owners_deal(&finishers, count),
			                           options->world_size);

			if (is_held)
				add(&part->held, held, unit, count);
			if (is_held || is_finished)
				add(&part->summed, summed, unit, count);
			part->finished_count += is_finished ? count : 0;
		}
	}
}

/* Documented in the header, as are the others. */
int zi_plan_part_make(const struct zi_plan_model *model, const struct zi_plan_options *options,
                      struct zi_plan_part *ret_part)
{
	struct zi_plan_part part = { .held = *model,
		                     .summed = *model,
		                     .finished_count = model->padded_count };

	assert(options->local_ranks && options->local_ranks <= options->world_size);
	if (options->local_ranks < options->world_size) {
		part.padded = calloc(2 * (size_t)model->unit_count, sizeof(*part.padded));
		if (!part.padded)
			return err_origin(-ENOMEM);
		part.held.unit_padded = part.padded;
		part.summed.unit_padded = part.padded + model->unit_count;
		part.held.padded_count = part.summed.padded_count = part.finished_count = 0;
		deal(model, options, &part);
	}
	*ret_part = part;
	return 0;
}

void zi_plan_part_free(struct zi_plan_part *part)
{
	free(part->padded);
	part->padded = NULL;
}

uint64_t zi_plan_longest(const struct zi_plan_model *model, uint64_t first)
{
	uint64_t longest = 0;

	for (uint32_t i = 0; i < model->unit_count; i++) {
		uint64_t padded = model->unit_padded[i];
		uint64_t count = zi_geometry_subgroup_count(padded);

		if (first < count)
			longest = ZI_MAX(longest, first < padded / ZI_SUBGROUP_ELEMENTS
			                                  ? ZI_SUBGROUP_ELEMENTS
			                                  : padded % ZI_SUBGROUP_ELEMENTS);
		first -= ZI_MIN(first, count);
	}
	return longest;
}
