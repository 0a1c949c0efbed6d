/* SPDX-License-Identifier: Apache-2.0 */
/* Commits of a job of several nodes, by rounds; see commit.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/commit.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/zero/across/across_private.h"
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
	struct commit_name names[2], doubt;
	uint32_t count, is_in_doubt;
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

/* ---- a commit ---- */

static void ask(struct zero_job *job, enum round_kind kind, const struct commit_name *name,
                round_done_fn done)
{
	struct round_vote vote = { .data_bytes = sizeof(*name) };

	memcpy(vote.data, name, sizeof(*name));
	across_vote(job, kind, &vote, done);
}

/* Nodes that make different commits: they have come different ways. Return: 0; -EINVAL, with
 * @ret_text, and the group is told. */
static int compare(struct zero_job *job, const struct round *round, struct zi_text *ret_text)
{
	uint32_t odd = round_odd_one(round, across_node_count(job));
	struct commit_name first, other = { 0 };

	if (odd == across_node_count(job))
		return 0;
	memcpy(&first, round->votes[0].data, sizeof(first));
	memcpy(&other, round->votes[odd].data, sizeof(other));
	zi_text_set(ret_text,
	            "%.60s makes commit %llu of step %lld (%016llx), but %.60s commit %llu of step "
	            "%lld (%016llx)",
	            across_name(job, odd).chars, (unsigned long long)other.number,
	            (long long)other.step, (unsigned long long)other.line,
	            across_name(job, 0).chars, (unsigned long long)first.number,
	            (long long)first.step, (unsigned long long)first.line);
	across_fail(job->across, -EINVAL, UINT32_MAX, ret_text);
	return err_origin(-EINVAL);
}

static void all_prepared(void *arg, const struct round *round, int error,
                         const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct zi_text why = text ? *text : (struct zi_text){ "" };

	commit_prepared(job, error ? error : compare(job, round, &why), &why);
}

static void prepared(struct zero_job *job)
{
	struct commit_name name = { .number = job->record.number,
		                    .line = job->record.line,
		                    .step = job->record.step };

	ask(job, ROUND_PREPARED, &name, all_prepared);
}

static void all_committed(void *arg, const struct round *round, int error,
                          const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct zi_text why = text ? *text : (struct zi_text){ "" };

	step_committed(job, error ? error : compare(job, round, &why), &why);
}

static void committed(struct zero_job *job)
{
	struct commit_name name = name_of(job->committed_step, &job->committed);

	ask(job, ROUND_COMMITTED, &name, all_committed);
}

/* ---- where to go on ---- */

/* As its ranks ask for it: a job that is new here has no other. */
static bool is_nvme(const struct zero_job *job)
{
	return job->group.config.offload_optimizer == ZI_OFFLOAD_NVME;
}

static struct commit_offers offers_of(const struct zero_job *job)
{
	const struct zero_former *former = &job->former;
	struct commit_offers offers;
	struct doubt_name doubt;

	memset(&offers, 0, sizeof(offers)); /* All of it is sent. */
	offers.names[offers.count++] = name_of(job->committed_step, &job->committed);
	if (former->is_kept || (!is_nvme(job) && former->is_named))
		offers.names[offers.count++] = name_of(former->step, &former->marks);
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

/* No commit is on all nodes. */
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
		"job '%.40s' has no commit that is on all nodes: %.100s, but %.100s%s; give it "
		"another name, or that node's %s back",
		job->name, say_name(job, round, newest).chars, say_name(job, round, other).chars,
		is_nvme(job) ? "" : " (memory is gone with a zinfd that ended)",
		is_nvme(job) ? "store" : "zinfd, had it not ended"));
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
	struct commit_name doubt = offers_of(job).doubt;

	for (uint32_t i = 0; i < node_count; i++) {
		struct commit_offers offers = offers_at(round, i);

		if (is_same(&offers.names[0], &doubt))
			return true;
	}
	return false;
}

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

static void all_offered(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	struct commit_name chosen = { 0 };
	struct zi_text why = text ? *text : (struct zi_text){ "" };
	uint32_t node_count, node;

	if (!error && job->group.phase != ZERO_GROUP_FORMING)
		error = -ECANCELED;
	if (error) {
		materialize_settled(job, error, &why);
		return;
	}
	node_count = across_node_count(job);
	error = round_refusal(round, node_count, &why, &node);
	if (!error && has_doubt(round, node_count)) {
		if (offers_of(job).is_in_doubt)
			step_doubt_settle(job, is_made(job, round, node_count), offer_again);
		else
			offer_again(job, 0, NULL);
		return;
	}
	if (error)
		zi_utf8_clean(why.chars); /* Another node's word. */
	else if (!choose(round, node_count, &chosen))
		error = refuse(job, round, node_count, &why);
	else if (!is_nvme(job))
		error = take_memory(job, round, node_count, &chosen, &why);
	if (error || !is_nvme(job))
		materialize_settled(job, error, &why);
	else
		go_on(job, &chosen);
}

static void offer(struct zero_job *job, int error, const struct zi_text *text)
{
	struct commit_offers offers = offers_of(job);
	struct round_vote vote = { .data_bytes = sizeof(offers) };

	memcpy(vote.data, &offers, sizeof(offers));
	if (error)
		round_vote_refuse(&vote, error, text);
	across_vote(job, ROUND_RESUME, &vote, all_offered);
}

static void resume(struct zero_job *job)
{
	struct zi_text text = { "" };
	int r = materialize_check_nodes(job, &text);

	offer(job, r, &text);
}

const struct zero_votes commit_votes = { prepared, committed, resume };
