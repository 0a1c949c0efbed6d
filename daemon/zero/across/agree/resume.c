/* SPDX-License-Identifier: Apache-2.0 */
/* See resume.h. */
#include "daemon/zero/across/agree/resume.h"

#include "common/base/assert.h"

static bool is_of(const struct resume_offer *offer, const struct resume_offer *other)
{
	return offer->number == other->number && offer->line == other->line;
}

/* Of 64 bits from 64 × @word on: those that there are, and that nobody has who offers what @which
 * does. */
static uint64_t missing_in(const struct resume_offer *offers, uint32_t offer_count,
                           const struct resume_offer *which, uint64_t word, uint64_t bit_count)
{
	uint64_t left = bit_count - word * 64;
	uint64_t missing = left >= 64 ? UINT64_MAX : (1ull << left) - 1;

	for (uint32_t i = 0; i < offer_count; i++)
		if (is_of(&offers[i], which))
			missing &= ~offers[i].bits[word];
	return missing;
}

static struct resume_choice look(const struct resume_offer *offers, uint32_t offer_count,
                                 const struct resume_offer *which, uint64_t bit_count)
{
	struct resume_choice choice = { .number = which->number,
		                        .line = which->line,
		                        .step = which->step };

	for (uint32_t i = 0; i < offer_count; i++) {
		if (!is_of(&offers[i], which))
			continue;
		assert(offers[i].step == which->step);
		choice.node_mask |= 1ull << offers[i].node;
	}
	for (uint64_t word = 0; word * 64 < bit_count && which->step >= 0; word++) {
		uint64_t missing = missing_in(offers, offer_count, which, word, bit_count);

		if (missing && !choice.missing_count)
			choice.missing_first = word * 64 + (uint64_t)__builtin_ctzll(missing);
		choice.missing_count += (uint64_t)__builtin_popcountll(missing);
	}
	return choice;
}

/* What is whole goes before what is not; then the larger number. Two lines that came to one number
 * went on without each other: the one with more of its nodes here stays, then any one, but for all
 * the same. */
static bool is_better(const struct resume_choice *choice, const struct resume_choice *other)
{
	int count = __builtin_popcountll(choice->node_mask);
	int other_count = __builtin_popcountll(other->node_mask);

	if (!choice->missing_count != !other->missing_count)
		return !choice->missing_count;
	if (choice->number != other->number)
		return choice->number > other->number;
	if (count != other_count)
		return count > other_count;
	return choice->line > other->line;
}

/**
 * resume_choose() - the commit that all nodes go on from
 * @offers: (offer_count,) of all nodes that have come, in any order
 * @bit_count: planes of all subgroups of the model
 * @ret_choice: RESUME_E_INCOMPLETE: the newest one that was offered, and what it lacks
 *
 * Return: 0; RESUME_E_NONE; RESUME_E_INCOMPLETE. Context: any thread.
 */
int resume_choose(const struct resume_offer *offers, uint32_t offer_count, uint64_t bit_count,
                  struct resume_choice *ret_choice)
{
	struct resume_choice best = { 0 };

	for (uint32_t i = 0; i < offer_count; i++) {
		struct resume_choice choice;

		assert(offers[i].node < ZI_WORLD_MAX);
		choice = look(offers, offer_count, &offers[i], bit_count);
		if (!best.node_mask || is_better(&choice, &best))
			best = choice;
	}
	if (!best.node_mask)
		return RESUME_E_NONE;
	*ret_choice = best;
	return best.missing_count ? RESUME_E_INCOMPLETE : 0;
}
