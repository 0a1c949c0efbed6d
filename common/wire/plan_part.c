/* SPDX-License-Identifier: Apache-2.0 */
/* A node's part of a model; see plan_part.h. */
#include "common/wire/plan_part.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "common/wire/owner.h"

/* Of models with more elements nobody sees one subgroup more or less of a share. */
#define PLAN_DEALT_MAX (1ull << 42)

/* A set as what is dealt out to it needs it. */
struct dealt {
	uint64_t here;  /* members on the node: bits, by member */
	uint32_t count; /* members, */
	uint32_t shard; /* of which so many divide a plane */
	uint8_t ranks[ZI_WORLD_MAX];
	struct zi_owners owners, finishers;
};

static void dealt_init(struct dealt *dealt, const struct zi_plan_options *options, uint64_t members)
{
	uint64_t here = zi_plan_here(options);

	dealt->here = 0;
	dealt->count = 0;
	for (; members; members &= members - 1) {
		uint32_t rank = (uint32_t)__builtin_ctzll(members);

		dealt->here |= (here >> rank & 1) << dealt->count;
		dealt->ranks[dealt->count++] = (uint8_t)rank;
	}
	dealt->shard = zi_shard_members(&options->training, dealt->count);
	zi_owners_init(&dealt->owners, dealt->shard);
	zi_owners_init(&dealt->finishers, dealt->count);
}

/* Is @member's rank, or one of those with the same share in other replicas, among those here? */
static bool is_here(const struct dealt *dealt, uint32_t member, uint32_t step)
{
	for (; member < dealt->count; member += step)
		if (dealt->here >> member & 1)
			return true;
	return false;
}

static void add(struct zi_plan_model *model, uint64_t *padded, uint32_t unit, uint64_t count)
{
	padded[unit] += count;
	model->padded_count += count;
}

static void deal_unit(const struct zi_plan_model *model, uint32_t unit, struct dealt *dealt,
                      struct zi_plan_part *part)
{
	uint64_t *held = part->padded, *summed = part->padded + model->unit_count;
	uint64_t padded = model->unit_padded[unit];

	for (uint32_t i = 0; i < zi_geometry_subgroup_count(padded); i++) {
		uint64_t count = zi_geometry_subgroup_elements(padded, i);
		bool is_held = is_here(dealt, zi_owners_deal(&dealt->owners, count), dealt->shard);
		bool is_finished =
			is_here(dealt, zi_owners_deal(&dealt->finishers, count), dealt->count);

		if (is_held)
			add(&part->held, held, unit, count);
		if (is_held || is_finished)
			add(&part->summed, summed, unit, count);
		part->finished_count += is_finished ? count : 0;
	}
}

/* The units of each set by themselves, as place/owner.c of the daemon has them. */
static void deal(const struct zi_plan_model *model, const struct zi_plan_options *options,
                 struct zi_plan_part *part)
{
	struct dealt dealt;

	for (uint32_t set = 0; set < zi_plan_set_count(model); set++) {
		dealt_init(&dealt, options, zi_plan_members(model, options, set));
		for (uint32_t unit = 0; unit < model->unit_count; unit++)
			if (zi_plan_set_of(model, unit) == set)
				deal_unit(model, unit, &dealt, part);
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

uint64_t zi_plan_subgroups(const struct zi_plan_model *model)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < model->unit_count; i++)
		count += zi_geometry_subgroup_count(model->unit_padded[i]);
	return count;
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

uint64_t zi_plan_here(const struct zi_plan_options *options)
{
	if (options->here_mask)
		return options->here_mask;
	return options->local_ranks == 64 ? UINT64_MAX : (1ull << options->local_ranks) - 1;
}

uint32_t zi_plan_set_count(const struct zi_plan_model *model)
{
	return model->set_count ? model->set_count : 1;
}

uint64_t zi_plan_members(const struct zi_plan_model *model, const struct zi_plan_options *options,
                         uint32_t set)
{
	if (model->set_count)
		return model->set_members[set];
	return options->world_size == 64 ? UINT64_MAX : (1ull << options->world_size) - 1;
}

uint32_t zi_plan_set_of(const struct zi_plan_model *model, uint32_t unit)
{
	return model->set_count ? model->unit_sets[unit] : 0;
}

static void share_unit(const struct dealt *dealt, uint64_t padded, struct zi_share *shares)
{
	for (uint32_t i = 0; i < dealt->count; i++) {
		struct zi_share *share = &shares[dealt->ranks[i]];

		share->padded_count += padded;
		share->largest_count = ZI_MAX(share->largest_count, padded);
	}
}

void zi_plan_shares(const struct zi_plan_model *model, const struct zi_plan_options *options,
                    struct zi_share *ret_shares)
{
	bool is_dealt = model->padded_count <= PLAN_DEALT_MAX;
	struct dealt dealt;

	for (uint32_t i = 0; i < options->world_size; i++)
		ret_shares[i] = (struct zi_share){ 0 };
	for (uint32_t set = 0; set < zi_plan_set_count(model); set++) {
		uint64_t set_count = 0;

		dealt_init(&dealt, options, zi_plan_members(model, options, set));
		for (uint32_t unit = 0; unit < model->unit_count; unit++) {
			if (zi_plan_set_of(model, unit) != set)
				continue;
			share_unit(&dealt, model->unit_padded[unit], ret_shares);
			set_count += model->unit_padded[unit];
			if (is_dealt)
				zi_owners_deal_units(&dealt.owners, &model->unit_padded[unit], 1);
		}
		/* Members that divide a plane are consecutive. */
		for (uint32_t i = 0; i < dealt.count; i++)
			ret_shares[dealt.ranks[i]].owned_count +=
				is_dealt ? dealt.owners.element_counts[i % dealt.shard]
					 : set_count / dealt.shard;
	}
}
