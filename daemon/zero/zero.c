/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All jobs of the shard: start and end, accounts, quiescing, and the one place where callbacks are
 * called (zero_drain()). Floor 5, shard thread.
 */
#include "daemon/zero/zero.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/holder.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/agree/keep.h"
#include "daemon/zero/collectives/far.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/lost.h"
#include "daemon/zero/place/share.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/snapshot/snapshot_make.h"
#include "daemon/zero/step/budget.h"
#include "daemon/zero/step/step.h"

/**
 * zero_new() - no jobs yet
 * @options: copied; what it points to outlives the object
 * @ret_zero: the caller's
 *
 * Return: 0; -ENOMEM.
 */
int zero_new(const struct zero_options *options, struct zero **ret_zero)
{
	struct zero *zero;

	assert(options->loop && options->catalog && options->holders);
	assert(options->cpu_tier_count > 0);
	assert(options->engine || !options->nvme_tier_count);

	zero = calloc(1, sizeof(*zero));
	if (!zero)
		return err_origin(-ENOMEM);
	zero->options = *options;
	zi_list_init(&zero->jobs);
	zi_list_init(&zero->lost);
	zi_list_init(&zero->ghosts);
	zi_list_init(&zero->accounts);
	zi_list_init(&zero->retired);
	zi_list_init(&zero->completed);
	zi_list_init(&zero->notices);
	zi_list_init(&zero->fars);
	zi_list_init(&zero->acrosses);
	zi_list_init(&zero->snapshots);
	zi_list_init(&zero->snapshots_done);
	for (uint32_t i = 0; i < options->cpu_tier_count; i++)
		tier_holders_watch(options->holders, &options->cpu_tiers[i]);
	budget_watch(zero);
	*ret_zero = zero;
	return 0;
}

static bool account_is_used(const struct tier_account *account)
{
	for (uint32_t kind = 0; kind < _TIER_KIND_COUNT; kind++)
		if (account->used_bytes[kind])
			return true;
	return account->used_fds;
}

static void retired_sweep(struct zero *zero)
{
	zi_list_for_each_safe(link, &zero->retired) {
		struct zero_account *account =
			container_of(link, struct zero_account, accounts_link);

		if (account_is_used(&account->account))
			continue;
		zi_list_remove(&account->accounts_link);
		tier_account_deinit(&account->account);
		account->flow = nvme_flow_free(account->flow);
		free(account);
	}
}

/* The end of a job's account: now, or once no rank holds what it paid for, and what was in flight
 * of its ranks' tensors is back. */
void zero_account_retire(struct zero *zero, struct zero_account *account)
{
	zi_list_push_back(&zero->retired, &account->accounts_link);
	retired_sweep(zero);
}

/* All ranks have left. */
struct zero *zero_free(struct zero *zero)
{
	if (!zero)
		return NULL;
	zi_loop_disarm(&zero->midnight_timer);
	far_forget(zero, NULL);
	across_forget(zero, NULL);
	assert(zi_list_is_empty(&zero->acrosses));
	assert(!zero->evacuation.is_on);
	assert(!zero->evacuation.is_posted);
	assert(!zero->is_quiet_posted);
	assert(zi_list_is_empty(&zero->completed));
	assert(zi_list_is_empty(&zero->notices));
	assert(zi_list_is_empty(&zero->snapshots_done));
	assert(!zero->snapshot_busy_count);
	assert(!zero->tensor_busy_count);
	assert(zi_list_is_empty(&zero->ghosts));
	zi_list_for_each_safe(link, &zero->lost)
		lost_take_back(container_of(link, struct zero_job, jobs_link));
	zi_list_for_each_safe(link, &zero->jobs) {
		struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		assert(job->attached_count == 0);
		assert(job->busy_count == 0);
		(void)job_free(job);
	}
	zi_list_for_each_safe(link, &zero->snapshots)
		(void)snapshot_free(container_of(link, struct zero_snapshot, snapshots_link));
	share_free(&zero->shares);
	retired_sweep(zero);
	assert(zi_list_is_empty(&zero->retired));
	zi_list_for_each_safe(link, &zero->accounts) {
		struct zero_account *account =
			container_of(link, struct zero_account, accounts_link);

		tier_account_deinit(&account->account);
		free(account);
	}
	for (uint32_t i = 0; i < zero->options.cpu_tier_count; i++)
		tier_holders_watch(NULL, &zero->options.cpu_tiers[i]);
	free(zero);
	return NULL;
}

/* Return: the account of a uid, made on first use; NULL without memory. */
struct zero_account *zero_account_of(struct zero *zero, uint32_t uid)
{
	struct zero_account *account;
	char name[ZI_NAME_BYTES];

	zi_list_for_each(link, &zero->accounts) {
		account = container_of(link, struct zero_account, accounts_link);
		if (account->uid == uid)
			return account;
	}
	account = calloc(1, sizeof(*account));
	if (!account)
		return NULL;
	account->uid = uid;
	(void)snprintf(name, sizeof(name), "uid %u", uid); /* Always fits. */
	tier_account_init(&account->account, name, NULL);
	account->account.limit_bytes[TIER_CPU] = zero->options.uid_cpu_limit_bytes;
	account->account.limit_bytes[TIER_NVME] = zero->options.uid_nvme_limit_bytes;
	account->account.limit_bytes[TIER_GPU] = zero->options.uid_gpu_limit_bytes;
	if (zero->options.uid_fds_max)
		account->account.limit_fds = zero->options.uid_fds_max;
	account->tally.budget = zero->options.uid_write_budget;
	zi_list_push_back(&zero->accounts, &account->accounts_link);
	return account;
}

/**
 * zero_account() - who pays for a uid
 *
 * Return: the account, kept until zero_free(); NULL without memory. Context: shard thread.
 */
struct tier_account *zero_account(struct zero *zero, uint32_t uid)
{
	struct zero_account *account = zero_account_of(zero, uid);

	return account ? &account->account : NULL;
}

/**
 * zero_account_each() - look at the accounts of uids
 * @each: must not call into zero
 *
 * Context: shard thread.
 */
void zero_account_each(struct zero *zero,
                       void (*each)(void *arg, uint32_t uid, const struct tier_account *account,
                                    uint64_t today_write_bytes),
                       void *arg)
{
	zi_list_for_each(link, &zero->accounts) {
		const struct zero_account *account =
			container_of(link, struct zero_account, accounts_link);

		each(arg, account->uid, &account->account, tier_tally_day_bytes(&account->tally));
	}
}

static bool are_quiet(const struct zi_list *jobs)
{
	zi_list_for_each(link, jobs) {
		const struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		if (job->busy_count || job->step.phase != ZERO_STEP_NONE)
			return false;
	}
	return true;
}

static bool is_quiet(const struct zero *zero)
{
	if (!zi_list_is_empty(&zero->ghosts) || zero->snapshot_busy_count ||
	    zero->tensor_busy_count || zero->evacuation.is_posted)
		return false;
	return are_quiet(&zero->jobs) && are_quiet(&zero->lost);
}

static void notify(struct zero_rank *rank)
{
	zi_list_remove(&rank->notice_link);
	/* Last: the session may leave, which frees the rank. */
	rank->broken(rank->broken_arg, rank->broken_error, rank->broken_culprit,
	             &rank->broken_text);
}

static void quiet_posted(struct zi_post *post)
{
	struct zero *zero = container_of(post, struct zero, quiet_post);
	void (*quiesced)(void *arg) = zero->quiesced;

	zero->is_quiet_posted = false;
	/* Something may have begun since: who ends it looks again. */
	if (!quiesced || !is_quiet(zero))
		return;
	zero->quiesced = NULL;
	quiesced(zero->quiesced_arg);
}

/*
 * Calls what is due, ops before notices, until nothing is. Nested calls (from a callback) return at
 * once: the outer one goes on. Bounded by what callbacks submit: a session takes what its ring
 * holds. Lists are taken from their front, so callbacks may end ranks and what these wait for.
 *
 * Who waits for quiet is called in a turn of its own: it ends every rank, and whoever called
 * something of zero, here or further up, may not have done with its own.
 */
void zero_drain(struct zero *zero)
{
	struct zi_list *link;

	if (zero->is_draining)
		return;
	zero->is_draining = true;
	for (;;) {
		link = zi_list_pop_front(&zero->completed);
		if (link) {
			struct zero_op *op = container_of(link, struct zero_op, link);

			op->done(op);
			continue;
		}
		link = zi_list_pop_front(&zero->snapshots_done);
		if (link) {
			struct zero_snapshot_op *op =
				container_of(link, struct zero_snapshot_op, link);

			op->done(op);
			continue;
		}
		if (zi_list_is_empty(&zero->notices))
			break;
		notify(container_of(zero->notices.next, struct zero_rank, notice_link));
	}
	zero->is_draining = false;
	if (!zero->quiesced || zero->is_quiet_posted || !is_quiet(zero))
		return;
	zero->is_quiet_posted = true;
	zi_loop_post(zero->options.loop, &zero->quiet_post, quiet_posted);
}

/**
 * zero_quiesce() - no more steps; what is being written is committed
 * @done: called once, on this thread, when every job is at rest: in a turn of its own, never from
 *   within a call into zero
 *
 * Steps that wait for gradients or ranks are discarded. Every group breaks with -ESTALE, at once or
 * at the end of the step that is being written, so that no rank hears of another's leaving instead.
 * From now on nobody attaches and nobody begins a step. Context: shard thread, once.
 */
void zero_quiesce(struct zero *zero, void (*done)(void *arg), void *arg)
{
	struct zi_text text;

	assert(!zero->is_stopping);

	zi_text_set(&text, "the daemon is stopping");
	zero->is_stopping = true;
	for (uint32_t i = 0; i < zero->options.cpu_tier_count; i++)
		zero->options.cpu_tiers[i].is_stopping = true;
	zero->quiesced = done;
	zero->quiesced_arg = arg;
	zero->is_draining = true; /* Callbacks may end jobs: they come when none is held here. */
	keep_stop(zero);
	zi_list_for_each_safe(link, &zero->jobs) {
		struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		snapshot_cancel(job, -ESHUTDOWN, "the daemon is stopping");
		collectives_break(job, -ESTALE, &text);
		if (job->group.phase == ZERO_GROUP_LIVE || job->group.phase == ZERO_GROUP_FORMING)
			group_break_after_step(job, -ESTALE, UINT32_MAX, &text);
		across_hurry(job);
		job_settle(job); /* What is ahead of its commit is committed. */
	}
	zero->is_draining = false;
	zero_drain(zero);
}

/* Return: a sentence of zero's, or NULL. Context: shard thread. */
const char *zero_frozen(const struct zero *zero)
{
	return zero->frozen ? zero->frozen_text.chars : NULL;
}
