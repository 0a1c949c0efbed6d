/* SPDX-License-Identifier: Apache-2.0 */
/* Of all that nodes offer the one that all go on from; see heal.h. Pure in what was offered, so
 * that all choose alike. Floor 5, shard thread. */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/across/agree/missing.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

static struct resume_offer resume_of(const struct heal *heal, uint32_t node, uint32_t which)
{
	const struct offer *offer = offers_of(&heal->offers, node, which);

	return (struct resume_offer){ .number = offer->number,
		                      .line = offer->line,
		                      .step = offer->step,
		                      .node = node,
		                      .bits = offer->words };
}

static bool is_of(const struct offer *offer, const struct resume_choice *choice)
{
	return offer->number == choice->number && offer->line == choice->line;
}

/* Which nodes have it, and the first of them. */
static void take_choice(struct heal *heal)
{
	const struct offers *offers = &heal->offers;

	heal->source = heal->across->node_count;
	for (uint32_t i = 0; i < heal->across->node_count; i++) {
		heal->which[i] = HEAL_NONE;
		for (uint32_t k = 0; k < OFFERS_MAX; k++)
			if (offers->masks[i] >> k & 1 &&
			    is_of(offers_of(offers, i, k), &heal->chosen))
				heal->which[i] = (uint8_t)k;
		if (heal->which[i] != HEAL_NONE && heal->source == heal->across->node_count)
			heal->source = i;
	}
	assert(heal->source < heal->across->node_count);
}

/* All but which node it is, and what that one has. */
static bool is_alike(const struct offer *one, const struct offer *other)
{
	struct catalog_placement mine = one->placement, others = other->placement;

	mine.node = others.node = 0;
	return one->step == other->step && one->update_count == other->update_count &&
	       !memcmp(&one->beta1_power, &other->beta1_power, sizeof(double)) &&
	       !memcmp(&one->beta2_power, &other->beta2_power, sizeof(double)) &&
	       one->world == other->world && one->scaler_bytes == other->scaler_bytes &&
	       !memcmp(one->scaler, other->scaler, sizeof(one->scaler)) &&
	       !memcmp(&mine, &others, sizeof(mine));
}

/* One name is one commit: a node that says otherwise of it has not made it. Return: 0; -EINVAL. */
static int compare(const struct heal *heal, const struct resume_offer *offers, uint32_t count,
                   const uint8_t *which, struct zi_text *text)
{
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < i; k++) {
			const struct offer *one =
				offers_of(&heal->offers, offers[i].node, which[i]);
			const struct offer *other =
				offers_of(&heal->offers, offers[k].node, which[k]);

			if (one->number != other->number || one->line != other->line ||
			    is_alike(one, other))
				continue;
			return err_origin(zi_text_error(
				text, -EINVAL,
				"nodes %u and %u disagree about commit %llu of line "
				"%016llx (steps %lld and %lld): one of them has not made it",
				offers[k].node, offers[i].node, (unsigned long long)one->number,
				(unsigned long long)one->line, (long long)other->step,
				(long long)one->step));
		}
	return 0;
}

static int refuse(struct heal *heal, struct zi_text *text)
{
	const struct zero_job *job = heal->job;
	const struct zero_rank *first =
		job->group.ranks[__builtin_ctzll(job->group.gather_masks[ZERO_GATHER_MATERIALIZE])];
	const struct offer *offer;

	take_choice(heal);
	offer = heal_offer_of(heal, heal->source);
	missing_say(
		&(struct missing){ .job = job->name,
	                           .layout = job->layout.unit_count ? &job->layout : &first->layout,
	                           .placement = &offer->placement,
	                           .world = offer->world,
	                           .step = offer->step,
	                           .count = heal->chosen.missing_count,
	                           .subgroup = heal->chosen.missing_first },
		text);
	return err_origin(-ENODATA);
}

/* Documented in a header. */
int heal_choose(struct heal *heal, struct zi_text *text)
{
	const struct zero_job *job = heal->job;
	uint32_t node_count = heal->across->node_count, count = 0;
	const struct zero_rank *first =
		job->group.ranks[__builtin_ctzll(job->group.gather_masks[ZERO_GATHER_MATERIALIZE])];
	struct resume_offer offers[SUBTREE_NODES_MAX * OFFERS_MAX];
	uint8_t which[SUBTREE_NODES_MAX * OFFERS_MAX];
	int r;

	for (uint32_t i = 0; i < node_count; i++)
		for (uint32_t k = 0; k < OFFERS_MAX; k++)
			if (heal->offers.masks[i] >> k & 1) {
				which[count] = (uint8_t)k;
				offers[count++] = resume_of(heal, i, k);
			}
	r = compare(heal, offers, count, which, text);
	if (r)
		return err_trace(r);
	r = resume_choose(offers, count, layout_subgroup_count(&first->layout), &heal->chosen);
	if (r == RESUME_E_NONE) /* Then all would have said that they have nothing. */
		return err_origin(
			zi_text_error(text, -EPROTO,
		                      "nodes have commits, but no node reported its data of them"));
	if (r == RESUME_E_INCOMPLETE)
		return err_trace(refuse(heal, text));
	take_choice(heal);
	return 0;
}
