/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes have, before they choose; see learn.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/learn.h"

#include "common/base/err.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/across/agree/names.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/materialize.h"

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
		former_settle(job, heal->is_back);
	else
		materialize_settled(job, 0, NULL);
}

/* Documented in the header, as are the others. */
void learn_served(struct across *across)
{
	if (!across->heal || !across->heal->is_waiting || !serve_is_idle(across))
		return;
	across->heal->is_waiting = false;
	go_to(across->heal);
}

void learn_over(struct across *across, int error, const struct zi_text *text)
{
	if (!across->heal || !across->heal->is_waiting)
		return;
	across->heal->is_waiting = false;
	materialize_settled(across->heal->job, error, text);
}

/* All nodes have chosen, and the same. */
static void all_know(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct zi_text why = text ? *text : (struct zi_text){ "" };
	struct heal *heal;

	if (!error && job->group.phase != ZERO_GROUP_FORMING)
		error = -ECANCELED;
	if (!error)
		error = chosen_check(job, round, &why);
	if (error) {
		materialize_settled(job, error, &why);
		return;
	}
	heal = job->across->heal;
	heal->is_due = chosen_of(job, round).is_pulled;
	heal->is_waiting = true;
	learn_served(job->across);
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
	if (error) {
		round_vote_refuse(&vote, error, &why);
	} else {
		heal->is_back = heal->which[heal->across->node] == 1;
		heal->said = chosen_by_offer(heal);
		chosen_vote(&heal->said, &vote);
	}
	across_vote(job, ROUND_HEAL, &vote, all_know);
}

void learn_nothing(struct zero_job *job, const struct round *round,
                   const struct commit_name *commit)
{
	struct commit_name present = names_of(job->committed_step, &job->committed);
	struct chosen chosen = chosen_by_name(commit, names_after(round, across_node_count(job)),
	                                      across_line(job));
	struct round_vote vote;

	job->across->heal->is_back = !names_are_one(&present, commit);
	chosen_vote(&chosen, &vote);
	across_vote(job, ROUND_HEAL, &vote, all_know);
}

void learn_start(struct zero_job *job, const struct round *round)
{
	struct heal *heal = job->across->heal;

	heal->number = names_after(round, across_node_count(job));
	for (uint32_t i = 0; i < across_node_count(job); i++)
		heal->offers.masks[i] = names_at(round, i).offered & ((1u << OFFERS_MAX) - 1);
	offers_pull(&heal->offers, known);
}
