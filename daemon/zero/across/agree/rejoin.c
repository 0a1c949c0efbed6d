/* SPDX-License-Identifier: Apache-2.0 */
/* Where nodes go on; see rejoin.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/rejoin.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/job/materialize_check.h"
#include "daemon/zero/step/doubt.h"

/* A commit's name, and its step: alike on all nodes that have made it. */
struct commit_name {
	uint64_t number, line;
	int64_t step;
};

/* What a node could go on from, the newest first. State in memory alone is there once, that of the
 * first; the second says what it was before. Others may have made what it is in doubt of. */
struct commit_offers {
	struct commit_name names[OFFERS_MAX], doubt;
	uint32_t count, is_in_doubt;
	uint32_t in_place; /* bits: what the node has of it is what its ranks need now */
	uint32_t offered;  /* bits: it can be pulled (bytes/offer.h) */
};
static_assert(sizeof(struct commit_offers) <= TALK_DATA_BYTES, "one vote");

static bool is_same(const struct commit_name *one, const struct commit_name *other)
{
	return one->number == other->number && one->line == other->line && one->step == other->step;
}

static struct commit_name name_of(int64_t step, const struct zero_marks *marks)
{
	/* Nothing is the same nothing on all. */
	if (step < 0)
		return (struct commit_name){ .step = -1 };
	return (struct commit_name){ .number = marks->number, .line = marks->line, .step = step };
}

/* As its ranks ask for it: a job that is new here has no other. */
static bool is_nvme(const struct zero_job *job)
{
	return job->group.config.offload_optimizer == ZI_OFFLOAD_NVME;
}

static struct commit_offers offers_of_job(const struct zero_job *job)
{
	const struct zero_former *former = &job->former;
	struct commit_offers offers;
	struct doubt_name doubt;

	memset(&offers, 0, sizeof(offers)); /* All of it is sent. */
	offers.names[offers.count++] = name_of(job->committed_step, &job->committed);
	offers.in_place = materialize_is_in_place(job, job->committed_step, &job->committed);
	if (former->is_kept || (!is_nvme(job) && former->is_named)) {
		offers.names[offers.count++] = name_of(former->step, &former->marks);
		offers.in_place |=
			(uint32_t)materialize_is_in_place(job, former->step, &former->marks) << 1;
	}
	offers.is_in_doubt = step_doubt(job, &doubt);
	if (offers.is_in_doubt)
		offers.doubt = (struct commit_name){ .number = doubt.number,
			                             .line = doubt.line,
			                             .step = doubt.step };
	return offers;
}

static struct commit_offers offers_at(const struct round *round, uint32_t node)
{
	struct commit_offers offers;

	memcpy(&offers, round->votes[node].data, sizeof(offers));
	offers.count = ZI_MIN(offers.count, (uint32_t)ZI_COUNT_OF(offers.names));
	return offers;
}

static bool all_have(const struct round *round, uint32_t node_count, const struct commit_name *name)
{
	for (uint32_t i = 0; i < node_count; i++) {
		struct commit_offers offers = offers_at(round, i);
		bool has = false;

		for (uint32_t k = 0; k < offers.count; k++)
			has |= is_same(&offers.names[k], name);
		if (!has)
			return false;
	}
	return true;
}

/* … each as its ranks need it. */
static bool is_in_place(const struct round *round, uint32_t node_count,
                        const struct commit_name *name)
{
	for (uint32_t i = 0; i < node_count; i++) {
		struct commit_offers offers = offers_at(round, i);

		for (uint32_t k = 0; k < offers.count; k++)
			if (is_same(&offers.names[k], name) && !(offers.in_place >> k & 1))
				return false;
	}
	return true;
}

/* The newest one that all have. Return: false, there is none. */
static bool choose(const struct round *round, uint32_t node_count, struct commit_name *ret_name)
{
	struct commit_offers first = offers_at(round, 0);
	bool is_found = false;

	for (uint32_t k = 0; k < first.count; k++) {
		if (!all_have(round, node_count, &first.names[k]) ||
		    (is_found && first.names[k].number < ret_name->number))
			continue;
		*ret_name = first.names[k];
		is_found = true;
	}
	return is_found;
}

/* Whose present commit has the largest number. */
static uint32_t newest_of(const struct round *round, uint32_t node_count)
{
	uint32_t newest = 0;

	for (uint32_t i = 1; i < node_count; i++)
		if (offers_at(round, i).names[0].number > offers_at(round, newest).names[0].number)
			newest = i;
	return newest;
}

static struct zi_text say_name(const struct zero_job *job, const struct round *round, uint32_t node)
{
	struct commit_name name = offers_at(round, node).names[0];
	struct zi_text text;

	if (name.step < 0)
		zi_text_set(&text, "%.70s has nothing of it", across_name(job, node).chars);
	else
		zi_text_set(&text, "%.70s stands at step %lld", across_name(job, node).chars,
		            (long long)name.step);
	return text;
}

/* No commit of state in memory alone is on all nodes. */
static int refuse(const struct zero_job *job, const struct round *round, uint32_t node_count,
                  struct zi_text *ret_text)
{
	uint32_t newest = newest_of(round, node_count), other = 0;
	struct commit_name name = offers_at(round, newest).names[0];

	for (uint32_t i = 0; i < node_count; i++) {
		struct commit_name mine = offers_at(round, i).names[0];

		if (!is_same(&mine, &name))
			other = i;
	}
	return err_origin(zi_text_error(
		ret_text, -ENODATA,
		"job '%.40s' has no commit that is on all nodes: %.100s, but %.100s: zctl delete "
		"it there, as state in memory alone cannot go back, or take another name",
		job->name, say_name(job, round, newest).chars, say_name(job, round, other).chars));
}

/*
 * State in memory alone cannot go back, but for the first commit, before which there is nothing;
 * and need not where what is torn is the name of a commit alone, of one step. Return: 0; -ENODATA.
 */
static int take_memory(struct zero_job *job, const struct round *round, uint32_t node_count,
                       const struct commit_name *chosen, struct zi_text *ret_text)
{
	struct commit_name newest = offers_at(round, newest_of(round, node_count)).names[0];
	struct commit_name present;

	if (chosen->step < 0) {
		former_forget(job, newest.number);
		return 0;
	}
	for (uint32_t i = 0; i < node_count; i++)
		if (offers_at(round, i).names[0].step != newest.step)
			return err_trace(refuse(job, round, node_count, ret_text));
	/* Of two commits of one step the former one's blobs are those of all. */
	present = name_of(job->committed_step, &job->committed);
	if (!is_same(&present, chosen) && job->former.step == job->committed_step)
		job->blob_index = job->committed.blob_index = job->former.marks.blob_index;
	job->committed.number = newest.number;
	job->committed.line = newest.line;
	return 0;
}

static void go_on(struct zero_job *job, const struct commit_name *chosen)
{
	struct commit_name present = name_of(job->committed_step, &job->committed);
	bool is_back = !is_same(&present, chosen);

	if (former_is_open(job))
		former_settle(job, is_back);
	else
		materialize_settled(job, 0, NULL);
}

/* Some node is in doubt of a step. */
static bool has_doubt(const struct round *round, uint32_t node_count)
{
	for (uint32_t i = 0; i < node_count; i++)
		if (offers_at(round, i).is_in_doubt)
			return true;
	return false;
}

/* Some node has made what this one is in doubt of. */
static bool is_made(const struct zero_job *job, const struct round *round, uint32_t node_count)
{
	struct commit_name doubt = offers_of_job(job).doubt;

	for (uint32_t i = 0; i < node_count; i++) {
		struct commit_offers offers = offers_at(round, i);

		if (is_same(&offers.names[0], &doubt))
			return true;
	}
	return false;
}

/* ---- what is not where it shall be ---- */

/* Beyond all numbers that any node knows of: what follows is newer than all that is anywhere. */
static uint64_t number_after(const struct round *round, uint32_t node_count)
{
	uint64_t number = 0;

	for (uint32_t i = 0; i < node_count; i++) {
		struct commit_offers offers = offers_at(round, i);

		for (uint32_t k = 0; k < offers.count; k++)
			number = ZI_MAX(number, offers.names[k].number);
	}
	return number + 1;
}

/* What was pulled is of the names that were voted. */
static int check_names(const struct heal *heal, struct zi_text *text)
{
	for (uint32_t i = 0; i < heal->across->node_count; i++)
		for (uint32_t k = 0; k < OFFERS_MAX; k++) {
			const struct offer *offer = offers_of(&heal->offers, i, k);

			if (heal->offers.masks[i] >> k & 1 && offer->number >= heal->number)
				return err_origin(zi_text_error(
					text, -EPROTO, "node %u offers commit %llu, and voted none",
					i, (unsigned long long)offer->number));
		}
	return 0;
}

/* Nothing of what was asked is in the slab any more, which is about to be divided anew. */
static void go_to(struct heal *heal)
{
	struct zero_job *job = heal->job;

	if (former_is_open(job))
		former_settle(job, heal->which[heal->across->node] == 1);
	else
		materialize_settled(job, 0, NULL);
}

/* Documented in heal_private.h. */
void rejoin_served(struct across *across)
{
	if (!across->heal || !across->heal->is_waiting || !serve_is_idle(across))
		return;
	across->heal->is_waiting = false;
	go_to(across->heal);
}

void rejoin_over(struct across *across, int error, const struct zi_text *text)
{
	if (!across->heal || !across->heal->is_waiting)
		return;
	across->heal->is_waiting = false;
	materialize_settled(across->heal->job, error, text);
}

/* All nodes know what all have, and have chosen. */
static void all_know(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct zi_text why = text ? *text : (struct zi_text){ "" };
	struct heal *heal;
	uint32_t node;

	if (!error && job->group.phase != ZERO_GROUP_FORMING)
		error = -ECANCELED;
	if (!error) {
		error = round_refusal(round, across_node_count(job), &why, &node);
		zi_utf8_clean(why.chars); /* Another node's word. */
	}
	if (error) {
		materialize_settled(job, error, &why);
		return;
	}
	heal = job->across->heal;
	heal->is_due = true;
	heal->is_waiting = true;
	rejoin_served(job->across);
}

static void known(struct zero_job *job, int error, const struct zi_text *text)
{
	struct round_vote vote = { .error = 0 };
	struct zi_text why = text ? *text : (struct zi_text){ "" };
	struct heal *heal;

	if (!across_talks(job)) {
		materialize_settled(job, error ? error : -ECANCELED, &why);
		return;
	}
	heal = job->across->heal;
	if (!error)
		error = check_names(heal, &why);
	if (!error)
		error = heal_choose(heal, &why);
	if (error)
		round_vote_refuse(&vote, error, &why);
	across_vote(job, ROUND_HEAL, &vote, all_know);
}

static void learn(struct zero_job *job, const struct round *round)
{
	struct heal *heal = job->across->heal;

	heal->number = number_after(round, across_node_count(job));
	for (uint32_t i = 0; i < across_node_count(job); i++)
		heal->offers.masks[i] = offers_at(round, i).offered & ((1u << OFFERS_MAX) - 1);
	offers_pull(&heal->offers, known);
}

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
	uint32_t node = 0;

	while (!offers_at(round, node).is_in_doubt)
		node++;
	if (job->across->has_doubted) {
		zi_text_set(&text, "%.100s is in doubt of a step again, which all have settled",
		            across_name(job, node).chars);
		across_fail(job->across, -EPROTO, UINT32_MAX, &text);
		materialize_settled(job, err_origin(-EPROTO), &text);
		return;
	}
	job->across->has_doubted = true;
	if (offers_of_job(job).is_in_doubt)
		step_doubt_settle(job, is_made(job, round, node_count), offer_again);
	else
		offer_again(job, 0, NULL);
}

static void all_offered(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct commit_name chosen = { 0 };
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
	if (has_doubt(round, node_count)) {
		settle_doubt(job, round, node_count);
		return;
	}
	is_common = choose(round, node_count, &chosen);
	if (is_nvme(job) && is_common && is_in_place(round, node_count, &chosen)) {
		go_on(job, &chosen);
		return;
	}
	if (is_nvme(job)) {
		learn(job, round);
		return;
	}
	error = is_common ? take_memory(job, round, node_count, &chosen, &why)
	                  : refuse(job, round, node_count, &why);
	materialize_settled(job, error, &why);
}

/* What is said by name alone can be pulled from now on. */
static int make_offers(struct zero_job *job, struct commit_offers *offers)
{
	struct across *across = job->across;
	int r;

	if (!is_nvme(job))
		return 0;
	if (!across->heal)
		across->heal = calloc(1, sizeof(*across->heal));
	if (!across->heal)
		return err_origin(-ENOMEM);
	r = heal_begin(across->heal, across);
	if (!r)
		offers->offered = across->heal->offers.masks[across->node];
	return err_trace(r);
}

static void offer(struct zero_job *job, int error, const struct zi_text *text)
{
	struct commit_offers offers = offers_of_job(job);
	struct round_vote vote = { .data_bytes = sizeof(offers) };
	struct zi_text why = text ? *text : (struct zi_text){ "" };

	if (!error) {
		error = make_offers(job, &offers);
		zi_text_set(&why, "no memory for tables");
	}
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
