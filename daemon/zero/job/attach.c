/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process becomes a rank: who may, in which incarnation, with what configuration. Floor 5, shard
 * thread. The rules of incarnations are in docs/ARCHITECTURE.md.
 */
#include "daemon/zero/job/attach.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/holder.h"
#include "daemon/zero/job/attach_config.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/history.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/lost.h"
#include "daemon/zero/job/materialize.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/step.h"

/* See attach.h. */
int attach_limits_check(struct zero *zero, uint32_t uid, struct zi_text *text)
{
	uint32_t own_count = 0;

	zi_list_for_each(link, &zero->jobs)
		own_count += container_of(link, struct zero_job, jobs_link)->uid == uid;
	if (zero->job_count >= zero->options.jobs_max)
		return err_origin(zi_text_error(text, -EMFILE,
		                                "the daemon holds %u jobs of at most %u: "
		                                "delete one (zctl jobs, zctl delete JOB)",
		                                zero->job_count, zero->options.jobs_max));
	if (own_count >= zero->options.jobs_per_uid_max)
		return err_origin(zi_text_error(text, -EDQUOT,
		                                "uid %u has %u jobs of at most %u: delete one "
		                                "(zctl jobs, zctl delete JOB)",
		                                uid, own_count, zero->options.jobs_per_uid_max));
	return 0;
}

/* A pid of the group, for refusals. */
static int any_pid(const struct zero_job *job)
{
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		if (job->group.ranks[i])
			return job->group.ranks[i]->pid;
	return 0;
}

/* May this rank join the incarnation that is there? */
static int join_check(const struct zero_job *job, const struct zero_attach *attach,
                      struct zi_text *text)
{
	const struct zero_group *group = &job->group;
	const struct zero_rank *holder = group->ranks[attach->rank];

	switch (group->phase) {
	case ZERO_GROUP_NONE:
		return 0;
	case ZERO_GROUP_BROKEN:
		return err_origin(zi_text_error(
			text, -EBUSY,
			"the group of job '%s' broke (%.100s); end its %u remaining ranks, "
			"such as pid %d, then start again",
			job->name, group->text.chars, group->rank_count, any_pid(job)));
	case ZERO_GROUP_FORMING:
	case ZERO_GROUP_LIVE:
	default:
		break;
	}
	if (holder)
		return err_origin(zi_text_error(
			text, -EBUSY, "rank %u of job '%s' is taken by the living process %d",
			attach->rank, job->name, holder->pid));
	if (group->phase == ZERO_GROUP_LIVE || materialize_is_on(job) || collectives_is_on(job)) {
		int r = attach_one_more_check(job, attach, text);

		if (r)
			return err_trace(r);
		return err_origin(zi_text_error(
			text, -EBUSY,
			"rank %u has left this incarnation of job '%s', which still runs: end "
			"its %u remaining ranks, such as pid %d, then start again",
			attach->rank, job->name, group->rank_count, any_pid(job)));
	}
	return 0;
}

/* Same name: join. Known as former: stale. Else: a new one. */
static int named_check(const struct zero_job *job, const struct zero_attach *attach,
                       struct zi_text *text, bool *ret_is_new)
{
	*ret_is_new = strcmp(job->group.name, attach->incarnation) != 0;
	if (!*ret_is_new)
		return err_trace(join_check(job, attach, text));
	if (history_has(&job->history, attach->incarnation))
		return err_origin(zi_text_error(
			text, -ESTALE,
			"incarnation '%s' of job '%s' is older than the present one%s%s%s",
			attach->incarnation, job->name, job->group.name[0] ? ", '" : "",
			job->group.name, job->group.name[0] ? "'" : ""));
	return 0;
}

/* Joins the nameless start that is forming; else a new one, if nobody is there or it takes over. */
static int nameless_check(const struct zero_job *job, const struct zero_attach *attach,
                          struct zi_text *text, bool *ret_is_new)
{
	const struct zero_group *group = &job->group;

	*ret_is_new = true;
	if (group->phase == ZERO_GROUP_NONE)
		return 0;
	if (group->phase == ZERO_GROUP_FORMING && !group->name[0] &&
	    !join_check(job, attach, attach->takeover ? NULL : text)) {
		*ret_is_new = false;
		return 0;
	}
	if (attach->takeover)
		return 0;
	return err_origin(zi_text_error(
		text, -EBUSY,
		"job '%s' has %u living ranks, such as pid %d; name a new incarnation or ask for "
		"takeover to replace them",
		job->name, group->rank_count, any_pid(job)));
}

static int rank_new(struct zero_job *job, const struct zero_attach *attach,
                    struct zero_rank **ret_rank)
{
	struct zero_rank *rank;
	int r;

	rank = calloc(1, sizeof(*rank));
	if (!rank)
		return err_origin(-ENOMEM);
	r = tier_holder_new(job->zero->options.holders, attach->pid, &rank->holder);
	if (r) {
		free(rank);
		return err_trace(r);
	}
	rank->job = job;
	rank->number = attach->rank;
	rank->uid = attach->uid;
	rank->pid = attach->pid;
	rank->timeout_ns = attach->timeout_ns;
	rank->broken = attach->broken;
	rank->broken_arg = attach->broken_arg;
	zi_list_init(&rank->notice_link);
	zi_list_init(&rank->ops);
	*ret_rank = rank;
	return 0;
}

/* All that can be refused, before anything changes. */
static int attach_check(const struct zero_job *job, const struct zero_attach *attach,
                        struct zi_text *text, bool *ret_is_new)
{
	int r;

	if (job->uid != attach->uid)
		return err_origin(zi_text_error(
			text, -EACCES,
			"job name '%s' is taken by another user: choose another name", job->name));
	if (job->refusal)
		return err_origin(zi_text_error(text, job->refusal, "%s", job->refusal_text.chars));
	if (job->is_deleting)
		return err_origin(
			zi_text_error(text, -EBUSY, "job '%s' is being deleted", job->name));
	if (attach->incarnation[0])
		r = named_check(job, attach, text, ret_is_new);
	else
		r = nameless_check(job, attach, text, ret_is_new);
	if (r)
		return err_trace(r);
	return err_trace(attach_config_check(job, attach, *ret_is_new, text));
}

static int attach_to(struct zero_job *job, const struct zero_attach *attach, struct zi_text *text,
                     struct zero_rank **ret_rank)
{
	struct zero_group *group = &job->group;
	struct zero_rank *rank = NULL;
	bool is_new = false;
	int r;

	r = attach_check(job, attach, text, &is_new);
	/* A step writes beside what is committed, which stays as long as it is read. */
	if (!r && !job->attached_count)
		r = snapshot_pay(job, text);
	if (!r && is_new)
		r = history_reserve(&job->history);
	if (r)
		return err_trace(r);
	r = rank_new(job, attach, &rank);
	if (r)
		return err_trace(r);
	/* The very first name of a job is a new one too, but for one that was never named. */
	if (is_new)
		group_replace(job, attach->incarnation);
	if (group->phase == ZERO_GROUP_NONE) {
		job_group_set(job, ZERO_GROUP_FORMING);
		group->world_size = attach->world_size;
		group->local_size = attach_local_size(attach);
		group->config = attach->config;
		group->training = attach->training;
	}
	group->ranks[rank->number] = rank;
	group->rank_count++;
	job->attached_count++;
	rank->is_member = true;
	*ret_rank = rank;
	return 0;
}

/**
 * zero_attach() - a process becomes a rank of a job
 * @attach: checked by wire/check
 * @text: why not
 * @ret_rank: the caller's, zero_rank_leave() it
 * @ret_incarnation_number: the catalog's number of its incarnation
 *
 * Return: 0; see zero.h. -ESHUTDOWN the daemon is stopping; -EUCLEAN the stored job is damaged;
 * the catalog's error once it is broken, until the daemon is started again.
 * Context: shard thread.
 */
int zero_attach(struct zero *zero, const struct zero_attach *attach, struct zi_text *text,
                struct zero_rank **ret_rank, uint64_t *ret_incarnation_number)
{
	struct zero_job *job = job_find(zero, attach->job);
	struct zero_rank *rank = NULL;
	int r;

	assert(attach->broken);
	r = change_check(zero, text);
	if (r)
		return err_trace(r);
	if (!attach->world_size || attach->world_size > ZI_WORLD_MAX ||
	    attach->rank >= attach->world_size)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "rank %u of %u: 1 to %u ranks are allowed",
		                                attach->rank, attach->world_size, ZI_WORLD_MAX));
	if (!job && attach->must_exist)
		return err_origin(zi_text_error(
			text, -ENODATA,
			"there is no job '%s' on this node: train it first, or name another job",
			attach->job));
	if (!job) {
		r = attach_limits_check(zero, attach->uid, text);
		if (r)
			return err_trace(r);
		r = job_new(zero, attach->job, attach->uid, &job);
		if (r)
			return err_trace(r);
	}
	r = attach_to(job, attach, text, &rank);
	if (r) {
		if (!job->attached_count && !job->is_stored && !job->busy_count &&
		    !job->is_deleting && job->step.phase == ZERO_STEP_NONE)
			(void)job_free(job);
		return err_trace(r);
	}
	*ret_rank = rank;
	*ret_incarnation_number = job->group.number;
	job_settle(job); /* What the former group left ahead of its commit. */
	zero_drain(zero);
	return 0;
}

/* See zero.h. */
int64_t zero_lost_step(const struct zero_rank *rank)
{
	const struct zero_job *lost = lost_find(rank->job->zero, rank->job->name);

	return lost && lost->uid == rank->uid ? lost->lost_step : -1;
}

struct tier_account *zero_rank_account(struct zero_rank *rank)
{
	return &rank->job->account->account;
}

int zero_rank_hold(struct zero_rank *rank, struct tier_segment *segment)
{
	return err_trace(tier_holder_add(rank->holder, segment));
}

/**
 * zero_blob() - what this rank committed with the present step
 * @ret_bytes: 0 when there is none
 *
 * Return: bytes of the job, valid until the next commit; NULL when there is none.
 */
const void *zero_blob(struct zero_rank *rank, uint64_t *ret_bytes)
{
	const struct zero_blob *blob = &rank->job->blobs[rank->job->blob_index][rank->number];

	*ret_bytes = blob->byte_count;
	return blob->byte_count ? blob->bytes : NULL;
}
