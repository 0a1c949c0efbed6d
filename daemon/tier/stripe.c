/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which member of a tier takes the next extent. Floor 4, shard thread.
 *
 * Smooth weighted round robin, over bytes: an extent of b bytes earns every member that may take it
 * b × its share of the weights; the one with the highest credit takes it and pays b. The credits'
 * sum stays 0, and none falls below -b_max, so that no member is ever further from its share than
 * one extent per other member.
 */
#include "daemon/tier/stripe.h"

#include <stdio.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/tier/account.h"

/* Enough that a few slow blocks do not make a figure. */
#define PACE_WINDOW_BYTES (8ull << 20)
/* Figures in a row that make a member slow, or no longer slow. */
#define PACE_PATIENCE 3u
/* SLOW below the one, no longer SLOW above the other, of the best member's pace by weight. */
#define PACE_SLOW  0.5
#define PACE_QUICK 0.75
/* A slow member goes on being given something, or nobody would see it recover. */
#define PACE_SHARE_MIN (1.0 / 64)

/* What was measured: bytes per second of equal parts of reading and writing. 0: not known. */
static double measured(const struct tier_member *member)
{
	const struct nvme_tuning *tuning = &member->store->tuning;
	double read = (double)tuning->read_bytes_per_s;
	double write = (double)tuning->write_bytes_per_s;

	if (!tuning->read_bytes_per_s || !tuning->write_bytes_per_s)
		return read + write;
	return 2 / (1 / read + 1 / write);
}

/* As measured; one that was not measured counts as the mean of those that were. */
static void weigh_nominal(const struct tier *tier, double weights[TIER_MEMBERS_MAX])
{
	double sum = 0;
	uint32_t count = 0;

	for (uint32_t i = 0; i < tier->member_count; i++) {
		weights[i] = tier->members[i].store ? measured(&tier->members[i]) : 0;
		sum += weights[i];
		count += weights[i] > 0;
	}
	for (uint32_t i = 0; i < tier->member_count; i++)
		if (!(weights[i] > 0))
			weights[i] = count ? sum / count : 1;
}

/* A new moving figure where enough has moved. Return: whether there is one. */
static bool pace_take(struct tier_pace *pace)
{
	uint64_t bytes_per_s;

	if (pace->bytes < PACE_WINDOW_BYTES || !pace->busy_ns)
		return false;
	bytes_per_s = (uint64_t)((double)pace->bytes * ZI_NS_PER_S / (double)pace->busy_ns);
	pace->bytes_per_s = pace->bytes_per_s ? (3 * pace->bytes_per_s + bytes_per_s) / 4
	                                      : ZI_MAX(bytes_per_s, (uint64_t)1);
	pace->bytes = 0;
	pace->busy_ns = 0;
	return true;
}

static void pace_judge(struct tier_member *member, double nominal, double best)
{
	double share = (double)member->pace.bytes_per_s / nominal / best;
	bool is_off = member->is_slow ? share >= PACE_QUICK : share < PACE_SLOW;

	member->pace.behind_count = is_off ? member->pace.behind_count + 1 : 0;
	if (member->pace.behind_count < PACE_PATIENCE)
		return;
	member->pace.behind_count = 0;
	member->is_slow = !member->is_slow;
	member->expected_bytes_per_s = (uint64_t)(best * nominal);
	tier_member_update(member);
}

/* Who falls behind, by weight. */
static void weigh_paces(struct tier *tier, double weights[TIER_MEMBERS_MAX])
{
	bool is_fresh[TIER_MEMBERS_MAX] = { false };
	double best = 0;

	for (uint32_t i = 0; i < tier->member_count; i++) {
		struct tier_pace *pace = &tier->members[i].pace;

		is_fresh[i] = pace_take(pace);
		best = ZI_MAX(best, (double)pace->bytes_per_s / weights[i]);
	}
	for (uint32_t i = 0; i < tier->member_count; i++) {
		struct tier_member *member = &tier->members[i];
		double share = best > 0 ? (double)member->pace.bytes_per_s / weights[i] / best : 1;

		if (is_fresh[i])
			pace_judge(member, weights[i], best);
		if (member->is_slow)
			weights[i] *= ZI_MIN(1.0, ZI_MAX(share, PACE_SHARE_MIN));
	}
}

/*
 * Nobody is given more than half of itself, as far as @demand bytes, one set of all jobs' extents,
 * go: the rest is spread over the others by weight. Each turn settles at least one member.
 */
static void weigh_room(const struct tier *tier, double demand, double weights[TIER_MEMBERS_MAX])
{
	bool is_settled[TIER_MEMBERS_MAX] = { false };
	bool is_changed = demand > 0;

	for (uint32_t turn = 0; turn < tier->member_count && is_changed; turn++) {
		double left = demand;
		double sum = 0;

		is_changed = false;
		for (uint32_t i = 0; i < tier->member_count; i++)
			if (is_settled[i])
				left -= weights[i];
			else
				sum += weights[i];
		for (uint32_t i = 0; i < tier->member_count; i++) {
			double room;

			if (is_settled[i] || !(weights[i] > 0))
				continue;
			room = (double)nvme_space_total_bytes(tier->members[i].space) / 2;
			if (left * weights[i] / sum <= room)
				continue;
			weights[i] = room;
			is_settled[i] = is_changed = true;
		}
		if (!is_changed)
			for (uint32_t i = 0; i < tier->member_count; i++)
				if (!is_settled[i] && sum > 0)
					weights[i] *= left / sum;
	}
}

static void weigh_full(struct tier_member *member)
{
	if (!member->is_full || !member->space ||
	    nvme_space_free_bytes(member->space) <= member->full_free_bytes)
		return;
	member->is_full = false;
	tier_member_update(member);
}

/**
 * tier_stripe_weigh() - weights, from what is known now
 *
 * Context: shard thread, before the extents of a step are reserved.
 */
void tier_stripe_weigh(struct tier *tier)
{
	double weights[TIER_MEMBERS_MAX];

	assert(tier->kind == TIER_NVME);
	weigh_nominal(tier, weights);
	if (tier->member_count > 1)
		weigh_paces(tier, weights);
	for (uint32_t i = 0; i < tier->member_count; i++) {
		weigh_full(&tier->members[i]);
		if (!tier->members[i].store || tier_member_is_leaving(&tier->members[i]))
			weights[i] = 0;
	}
	weigh_room(tier, (double)tier->used_bytes / 2, weights);
	for (uint32_t i = 0; i < tier->member_count; i++)
		tier->members[i].weight = weights[i];
	tier->is_weighed = true;
}

/* ---- extents ---- */

static bool is_taking(const struct tier_member *member)
{
	return member->store && member->weight > 0 && !member->is_full &&
	       !tier_member_is_leaving(member);
}

/* Whose turn it is, or NULL. */
static struct tier_member *whose_turn(struct tier *tier, uint32_t lane, uint64_t bytes)
{
	struct tier_member *best = NULL;
	double best_credit = 0;
	double sum = 0;

	for (uint32_t i = 0; i < tier->member_count; i++)
		if (is_taking(&tier->members[i]))
			sum += tier->members[i].weight;
	for (uint32_t i = 0; i < tier->member_count; i++) {
		struct tier_member *member = &tier->members[i];
		double credit = member->credits[lane];

		if (!is_taking(member))
			continue;
		credit += (double)bytes * member->weight / sum;
		if (best && credit <= best_credit)
			continue;
		best = member;
		best_credit = credit;
	}
	return best;
}

/* @taker takes @bytes; everybody who might have taken them earns their share. */
static void pay(struct tier *tier, struct tier_member *taker, uint32_t lane, uint64_t bytes)
{
	double sum = 0;

	for (uint32_t i = 0; i < tier->member_count; i++)
		if (is_taking(&tier->members[i]))
			sum += tier->members[i].weight;
	for (uint32_t i = 0; i < tier->member_count; i++)
		if (is_taking(&tier->members[i]))
			tier->members[i].credits[lane] +=
				(double)bytes * tier->members[i].weight / sum;
	taker->credits[lane] -= (double)bytes;
}

/**
 * tier_extent_aim() - before a set of extents is reserved
 * @bytes: of all of them
 * @is_whole: they replace all that there is, else a part
 *
 * Where more than that is free of what nobody was promised, next-fit finds room. Else a whole set
 * goes to the end of the shortest run that holds it, and parts to the beginning of one: so what is
 * left, and what is free when a set replaces another, lies in one piece, and twice the sets
 * suffice. Next-fit would cut a half in two at the end of the store. With several members
 * they take turns, and nobody knows what each will have of the set.
 *
 * Context: shard thread.
 */
void tier_extent_aim(struct tier *tier, uint64_t bytes, bool is_whole)
{
	struct tier_member *member = &tier->members[0];

	assert(tier->kind == TIER_NVME);
	if (tier->member_count == 1 && bytes && member->space && tier_free_bytes(tier) <= bytes)
		nvme_space_aim(member->space, bytes, is_whole);
}

/**
 * tier_extent_reserve() - a run of one member for one extent
 * @tier: NVMe, weighed
 * @lane: below TIER_LANES
 * @bytes: multiple of ZI_STORE_ALIGN_BYTES
 * @ret_extent: written on success
 *
 * Return: 0; TIER_E_FULL. Context: shard thread.
 */
int tier_extent_reserve(struct tier *tier, uint32_t lane, uint64_t bytes,
                        struct tier_extent *ret_extent)
{
	struct tier_member *member;

	assert(tier->kind == TIER_NVME);
	assert(lane < TIER_LANES);
	assert(bytes > 0);
	assert(bytes % ZI_STORE_ALIGN_BYTES == 0);

	if (!tier->is_weighed)
		tier_stripe_weigh(tier);
	/* Each turn takes one out. Weights of the others stay as they are to each other. */
	while ((member = whose_turn(tier, lane, bytes))) {
		struct zi_extent run;
		int r = nvme_space_allocate(member->space, bytes, &run);

		if (r && r != NVME_E_FULL)
			return err_fold(r);
		if (!r) {
			pay(tier, member, lane, bytes);
			*ret_extent = (struct tier_extent){ .member = member,
				                            .offset_bytes = run.offset_bytes,
				                            .bytes = run.bytes };
			return 0;
		}
		if (tier->member_count == 1)
			break; /* Whether it is full is for who asks to say. */
		member->is_full = true;
		member->full_bytes = bytes;
		member->full_free_bytes = nvme_space_free_bytes(member->space);
		tier_member_update(member);
	}
	return TIER_E_FULL;
}

static struct zi_extent run_of(const struct tier_extent *extent)
{
	return (struct zi_extent){ .offset_bytes = extent->offset_bytes, .bytes = extent->bytes };
}

/* Gives back and clears @extent; nothing for one without bytes. Context: shard thread. */
void tier_extent_release(struct tier_extent *extent)
{
	struct zi_extent run = run_of(extent);

	if (extent->bytes)
		nvme_space_release(extent->member->space, &run);
	*extent = (struct tier_extent){ 0 };
}

/* Recovery: @extent is in use. Return: 0; -EUCLEAN it cannot be; -ENODEV its member is missing. */
int tier_extent_claim(const struct tier_extent *extent)
{
	struct zi_extent run = run_of(extent);

	assert(extent->member);

	if (!extent->member->space)
		return err_origin(-ENODEV);
	return err_fold(nvme_space_claim(extent->member->space, &run));
}

/* Return: bytes that are free now, whatever is charged. */
uint64_t tier_extent_free_bytes(const struct tier *tier)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < tier->member_count; i++) {
		const struct tier_member *member = &tier->members[i];

		if (member->store && !tier_member_is_leaving(member))
			bytes += nvme_space_free_bytes(member->space);
	}
	return bytes;
}

/* Return: for sentences about all of them. */
struct zi_text tier_paths(const struct tier *tier)
{
	struct zi_text text = { "" };
	size_t used = 0;

	for (uint32_t i = 0; i < tier->member_count && used < sizeof(text.chars); i++) {
		const struct tier_member *member = &tier->members[i];
		bool is_well = member->state == TIER_MEMBER_HEALTHY;

		used += (size_t)snprintf(
			text.chars + used, sizeof(text.chars) - used, "%s%s%s%s%s%s%s",
			i ? ", " : "", member->path, is_well ? "" : " (",
			is_well ? "" : tier_member_state_name(member->state), is_well ? "" : ": ",
			member->reason.chars, is_well ? "" : ")");
	}
	return text;
}
