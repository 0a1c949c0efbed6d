/* SPDX-License-Identifier: Apache-2.0 */
/* Where nodes go on; see rejoin.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/rejoin.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/chosen.h"
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/across/agree/learn.h"
#include "daemon/zero/across/agree/names.h"
#include "daemon/zero/across/agree/rejoin_memory.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/job/materialize_check.h"
#include "daemon/zero/step/doubt.h"

/* ---- the round ---- */

static void offer(struct zero_job *job, int error, const struct zi_text *text);

/* What was in doubt is not any more: all nodes ask each other again. */
static void offer_again(struct zero_job *job, int error, const struct zi_text *text)
{
	struct zi_text none = { "" };

	if (job->group.phase == ZERO_GROUP_FORMING && across_talks(job))
		offer(job, error, text);
	else
		materialize_settled(job, -ECANCELED, &none);
}

/* Some node is in doubt of a step: those that are settle it by what all have said, once. */
static void settle_doubt(struct zero_job *job, const struct round *round, uint32_t node_count)
{
	struct zi_text text;
	uint32_t node = names_doubt(round, node_count);

	if (job->across->has_doubted) {
		zi_text_set(&text, "%.100s is in doubt of a step again, which all have settled",
		            across_name(job, node).chars);
		across_fail(job->across, -EPROTO, UINT32_MAX, &text);
		materialize_settled(job, err_origin(-EPROTO), &text);
		return;
	}
	job->across->has_doubted = true;
	if (names_of_job(job).is_in_doubt)
		step_doubt_settle(job, names_have_made(job, round, node_count), offer_again);
	else
		offer_again(job, 0, NULL);
}

/* State in memory alone: all go on from the same, or none does. */
static void all_took(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct zi_text why = text ? *text : (struct zi_text){ "" };
	struct chosen chosen;

	if (!error && job->group.phase != ZERO_GROUP_FORMING)
		error = -ECANCELED;
	if (!error)
		error = chosen_check(job, round, &why);
	if (!error) {
		chosen = chosen_of(job, round);
		memory_take(job, &chosen);
	}
	materialize_settled(job, error, &why);
}

static void take_in_memory(struct zero_job *job, const struct chosen *chosen)
{
	struct round_vote vote;

	chosen_vote(chosen, &vote);
	across_vote(job, ROUND_HEAL, &vote, all_took);
}

static void all_offered(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct commit_name commit = { 0 };
	struct chosen chosen;
	struct zi_text why = text ? *text : (struct zi_text){ "" };
	uint32_t node_count, node;
	bool is_common;

	if (!error && job->group.phase != ZERO_GROUP_FORMING)
		error = -ECANCELED;
	if (error) {
		materialize_settled(job, error, &why);
		return;
	}
	node_count = across_node_count(job);
	error = round_refusal(round, node_count, &why, &node);
	if (error) {
		zi_utf8_clean(why.chars); /* Another node's word. */
		materialize_settled(job, error, &why);
		return;
	}
	error = names_check(round, node_count, &why);
	if (error) {
		materialize_settled(job, error, &why);
		return;
	}
	if (names_doubt(round, node_count) < node_count) {
		settle_doubt(job, round, node_count);
		return;
	}
	is_common = names_common(round, node_count, &commit);
	if (!names_is_nvme(job))
		error = is_common ? memory_rejoin(job, round, node_count, &commit, &chosen, &why)
		                  : memory_rejoin_refuse(job, round, node_count, &why);
	if (error)
		materialize_settled(job, error, &why);
	else if (!names_is_nvme(job))
		take_in_memory(job, &chosen);
	else if (is_common && names_are_in_place(round, node_count, &commit))
		learn_nothing(job, round, &commit);
	else
		learn_start(job, round);
}

/* What is said by name alone can be pulled from now on. Return: 0; -ENOMEM, -EBUSY with @text. */
static int make_offers(struct zero_job *job, struct commit_offers *offers, struct zi_text *text)
{
	struct across *across = job->across;
	int r;

	if (!names_is_nvme(job))
		return 0;
	if (!across->heal)
		across->heal = calloc(1, sizeof(*across->heal));
	if (!across->heal)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for tables"));
	r = heal_begin(across->heal, across, text);
	if (!r)
		offers->offered = across->heal->offers.masks[across->node];
	return err_trace(r);
}

static void offer(struct zero_job *job, int error, const struct zi_text *text)
{
	struct commit_offers offers = names_of_job(job);
	struct round_vote vote = { .data_bytes = sizeof(offers) };
	struct zi_text why = text ? *text : (struct zi_text){ "" };

	if (!error)
		error = make_offers(job, &offers, &why);
	memcpy(vote.data, &offers, sizeof(offers));
	if (error)
		round_vote_refuse(&vote, error, &why);
	across_vote(job, ROUND_RESUME, &vote, all_offered);
}

/* Documented in the header. */
void rejoin_ask(struct zero_job *job)
{
	struct zi_text text = { "" };
	int r = materialize_check_nodes(job, &text);

	job->across->has_doubted = false;
	offer(job, r, &text);
}
