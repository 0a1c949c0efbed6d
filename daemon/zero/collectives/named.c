/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that their members make by name; see named.h. Floor 5, shard thread. */
#include "daemon/zero/collectives/named.h"

#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/coll/coll.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/collectives/collectives.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"

/* The pending call of rank @number with @name. A rank has at most one: its socket carries one
 * request at a time. NULL: it has none. */
static struct zero_op *waiting_of(const struct zero_job *job, uint32_t number, const char *name)
{
	struct zero_rank *rank = job->group.ranks[number];

	if (!rank)
		return NULL;
	zi_list_for_each(link, &rank->ops) {
		struct zero_op *op = container_of(link, struct zero_op, link);

		if (op->opcode == ZERO_OP_COLL_GROUP && op->name && !strcmp(op->name, name))
			return op;
	}
	return NULL;
}

/* The error that @op's rank has missed, if there is one. Return: true; @op was completed. */
static bool was_missed(struct zero_op *op)
{
	struct named *named = &op->rank->job->collectives.named;
	uint64_t bit = 1ull << op->rank->number;

	for (uint32_t i = 0; i < NAMED_MISSED_MAX; i++) {
		struct named_missed *missed = &named->missed[i];

		if (!(missed->mask & bit) || strcmp(missed->name, op->name))
			continue;
		missed->mask &= ~bit;
		op->text = missed->text;
		op_complete(op, missed->error);
		return true;
	}
	return false;
}

static void remember(struct zero_job *job, const char *name, uint64_t mask, int error,
                     const struct zi_text *text)
{
	struct named *named = &job->collectives.named;
	struct named_missed *missed = &named->missed[named->next];

	if (!mask)
		return;
	named->next = (named->next + 1) % NAMED_MISSED_MAX;
	*missed = (struct named_missed){ .mask = mask, .error = error, .text = *text };
	(void)zi_copy_name(missed->name, sizeof(missed->name), name); /* As short as its source. */
}

/* Ends every call with @name. @mask: ranks that were to come, besides those that the calls name. */
static void fail_all(struct zero_job *job, const char *name, uint64_t mask, int error,
                     const struct zi_text *text)
{
	char kept[ZI_GROUP_NAME_BYTES] = "";
	uint64_t heard = 0;

	(void)zi_copy_name(kept, sizeof(kept), name); /* It may belong to a call that ends here. */
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		struct zero_op *op = waiting_of(job, i, kept);

		if (!op)
			continue;
		mask |= op->members[0];
		heard |= 1ull << i;
		op->text = *text;
		op_complete(op, error);
	}
	remember(job, kept, mask & ~heard, error, text);
}

/* A call that no job can serve. */
static int check(const struct zero_op *op, struct zi_text *text)
{
	const struct zero_rank *rank = op->rank;
	const struct zero_job *job = rank->job;

	if (job_spans_nodes(job))
		return err_origin(zi_text_error(
			text, -EOPNOTSUPP,
			"group '%s': a job over several nodes makes groups only with all ranks "
			"(zinf_coll_group())",
			op->name));
	for (uint32_t i = 0; i < ZI_GROUP_MASK_RANKS; i++)
		if (op->members[i / 64] >> i % 64 & 1 && i >= job->group.world_size)
			return err_origin(zi_text_error(
				text, -EINVAL,
				"rank %u (pid %d) names rank %u in group '%s': the job has %u "
				"ranks",
				rank->number, rank->pid, i, op->name, job->group.world_size));
	if (!(op->members[0] >> rank->number & 1))
		return err_origin(zi_text_error(
			text, -EINVAL,
			"rank %u (pid %d) makes group '%s' but does not name itself: only members "
			"make it",
			rank->number, rank->pid, op->name));
	return 0;
}

/* Calls with this name that list other members. */
static int compare(const struct zero_op *op, struct zi_text *text)
{
	const struct zero_job *job = op->rank->job;

	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_op *theirs = waiting_of(job, i, op->name);

		if (!theirs || theirs->members[0] == op->members[0])
			continue;
		return err_origin(zi_text_error(
			text, -EINVAL,
			"group '%s' has ranks %s says rank %u (pid %d), ranks %s says rank %u "
			"(pid %d): all members must name the same ranks",
			op->name, collectives_say_ranks(op->members).chars, op->rank->number,
			op->rank->pid, collectives_say_ranks(theirs->members).chars, i,
			theirs->rank->pid));
	}
	return 0;
}

/* A member that is no longer attached. Collectives are open, so every rank was attached once. */
static int find_gone(const struct zero_op *op, struct zi_text *text)
{
	const struct zero_job *job = op->rank->job;

	for (uint32_t i = 0; i < job->group.world_size; i++)
		if (op->members[0] >> i & 1 && !job->group.ranks[i])
			return err_origin(zi_text_error(text, -EPIPE,
			                                "rank %u, a member of group '%s', has left",
			                                i, op->name));
	return 0;
}

/* The members of @op's group that have not called yet. */
static uint64_t absent_of(const struct zero_op *op)
{
	const struct zero_job *job = op->rank->job;
	uint64_t absent = op->members[0];

	for (uint32_t i = 0; i < job->group.world_size; i++)
		if (waiting_of(job, i, op->name))
			absent &= ~(1ull << i);
	return absent;
}

/* All members have called. */
static int make(struct zero_op *op, struct zi_text *text)
{
	struct zero_job *job = op->rank->job;
	struct zero_collectives *collectives = &job->collectives;
	uint64_t members = op->members[0], timeout_ns = 0;
	char name[ZI_GROUP_NAME_BYTES] = "";
	uint32_t group;
	int r = coll_group_choose(collectives->coll, 0, text, &group);

	if (!r)
		r = collectives_board(job, group, text);
	if (r)
		return err_trace(r);
	(void)zi_copy_name(name, sizeof(name), op->name); /* The op ends below. */
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		struct zero_op *theirs = waiting_of(job, i, name);

		if (!theirs)
			continue;
		theirs->id = group;
		timeout_ns = ZI_MAX(timeout_ns, theirs->timeout_ns);
	}
	coll_group_add(collectives->coll, group, members, collectives->boards[group]->region.base,
	               timeout_ns ? timeout_ns : collectives->call_timeout_ns);
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		struct zero_op *theirs = waiting_of(job, i, name);

		if (theirs)
			op_complete(theirs, 0);
	}
	for (uint32_t i = 0; i < NAMED_MISSED_MAX; i++)
		if (!strcmp(collectives->named.missed[i].name, name))
			collectives->named.missed[i].mask = 0;
	return 0;
}

void named_group(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	uint64_t all = job->group.world_size < 64 ? (1ull << job->group.world_size) - 1 : ~0ull;
	struct zi_text text = { "" };
	int r;

	assert(op->name[0]);
	if (was_missed(op))
		return;
	op_wait(op);
	r = gather_refused(op, &text);
	/* It named no members: any rank may be one that waits for it. */
	if (r) {
		fail_all(job, op->name, all, r, &text);
		return;
	}
	r = check(op, &text);
	if (!r)
		r = compare(op, &text);
	if (!r)
		r = find_gone(op, &text);
	if (!r && !absent_of(op))
		r = make(op, &text);
	if (r)
		fail_all(job, op->name, op->members[0] & all, r, &text);
}

void named_expired(struct zero_op *op)
{
	struct zero_job *job = op->rank->job;
	uint64_t absent = absent_of(op), now_ns = zi_clock_now_ns();
	struct zi_text text;

	zi_text_set(&text, "group '%s' timed out after %.1f s", op->name,
	            (double)op_timeout_ns(op) / (double)ZI_NS_PER_S);
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *rank = job->group.ranks[i];

		if (!(absent >> i & 1) || !rank)
			continue;
		zi_text_append(&text,
		               "; rank %u (pid %d) did not come, its last call was %s %.1f s ago",
		               i, rank->pid, rank->doing ? op_name(rank->doing) : "attach",
		               (double)(now_ns - rank->doing_ns) / (double)ZI_NS_PER_S);
	}
	fail_all(job, op->name, 0, -ETIMEDOUT, &text);
}

void named_rank_gone(struct zero_rank *gone, const struct zi_text *text)
{
	struct zero_job *job = gone->job;

	for (uint32_t i = 0; i < job->group.world_size; i++) {
		struct zero_rank *rank = job->group.ranks[i];

		if (!rank || rank == gone)
			continue;
		zi_list_for_each_safe(link, &rank->ops) {
			struct zero_op *op = container_of(link, struct zero_op, link);

			if (op->opcode != ZERO_OP_COLL_GROUP || !op->name ||
			    !(op->members[0] >> gone->number & 1))
				continue;
			fail_all(job, op->name, 0, -EPIPE, text);
			break; /* A rank has one such call. */
		}
	}
	named_forget_rank(job, gone->number);
}

void named_forget_rank(struct zero_job *job, uint32_t rank)
{
	for (uint32_t i = 0; i < NAMED_MISSED_MAX; i++)
		job->collectives.named.missed[i].mask &= ~(1ull << rank);
}
