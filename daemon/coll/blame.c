/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose fault it is that a group broke: who did not come and what it does instead, or came and does
 * nothing. That members call different things they tell one another. Floor 3, shard thread.
 *
 * The first report decides, so that every rank gets the same words. A report is believed as far as
 * it breaks the group: who reports is a member, and could as well have died. Whom it blames is read
 * from the boards, not taken from it, but for calls that have no number there.
 */
#include "daemon/coll/coll.h"

#include <errno.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/coll/look.h"
#include "daemon/coll/words.h"

#define COLL_ERRNO_MAX 4095 /* the kernel's */
/* Members that did not come are told apart up to so many: a text is short. */
#define COLL_ABSENT_TOLD 2u

/* What is being looked into. */
struct inquest {
	struct coll *coll;
	struct coll_group *group;
	const struct zi_coll_fail *report;
	uint32_t self; /* member that reports */
	struct zi_text text;
	uint32_t culprit; /* rank */
};

static void append_timeout(struct inquest *inquest)
{
	zi_text_append(&inquest->text, "within %.4g s", inquest->report->timeout_ms / 1e3);
}

/* ---- who did not come ---- */

/* Of @mask, members that have not come to what is inquired into, those whom it is held up by: who
 * waits for another one of @absent_mask, in a call before, is not at fault. */
static uint64_t at_fault(const struct coll_group *group, uint64_t absent_mask, uint64_t mask)
{
	for (uint32_t round = 0; round < group->member_count; round++) {
		uint64_t next = 0;

		for (uint64_t left = mask; left; left &= left - 1) {
			uint32_t member = (uint32_t)__builtin_ctzll(left);
			struct coll_call newest;
			uint64_t awaited;

			coll_look_newest(group, member, &newest);
			awaited = coll_look_awaited(group, member, &newest) & absent_mask;
			next |= awaited ? awaited : 1ull << member;
		}
		if (next == mask)
			break;
		mask = next;
	}
	return mask;
}

/* @fault_mask: of those the ones that are named before the others. */
static void say_absent(struct inquest *inquest, uint64_t absent_mask, uint64_t fault_mask)
{
	struct coll_group *group = inquest->group;
	struct zi_text first = { "" };
	uint32_t told_count = 0;

	while (absent_mask && told_count < COLL_ABSENT_TOLD) {
		uint64_t mask = absent_mask & fault_mask ? absent_mask & fault_mask : absent_mask;
		uint32_t i = (uint32_t)__builtin_ctzll(mask);
		struct zi_text doing = { "" };

		absent_mask &= ~(1ull << i);
		zi_text_append(&inquest->text, told_count ? "; " : ": ");
		coll_append_rank(&inquest->text, inquest->coll, group->ranks[i]);
		zi_text_append(&inquest->text, " did not come");
		coll_append_doing(&doing, inquest->coll, group, i);
		if (!told_count++) {
			inquest->culprit = group->ranks[i];
			zi_text_append(&inquest->text, " ");
			append_timeout(inquest);
			first = doing;
		} else if (strcmp(doing.chars, first.chars) == 0) {
			zi_text_set(&doing, "likewise");
		}
		zi_text_append(&inquest->text, ": %s", doing.chars);
	}
	if (absent_mask) {
		zi_text_append(&inquest->text, "; nor did ");
		coll_append_members(&inquest->text, group, absent_mask);
	}
}

static bool is_same(const struct coll_call *a, const struct coll_call *b)
{
	return a->operation == b->operation && a->dtype == b->dtype &&
	       a->reduce_op == b->reduce_op && a->root == b->root &&
	       a->element_count == b->element_count;
}

/* Of those who have come, who calls something else than @call: where members are on several nodes
 * they are compared when all of a node's have come. */
static void say_other(struct inquest *inquest, const struct coll_call *call)
{
	struct coll_group *group = inquest->group;

	for (uint32_t i = 0; i < group->member_count; i++) {
		struct coll_call other;

		if (!coll_look(group, i, call->sequence, &other) || is_same(call, &other))
			continue;
		zi_text_append(&inquest->text, "; and ");
		coll_append_rank(&inquest->text, inquest->coll, group->ranks[i]);
		zi_text_append(&inquest->text, " calls ");
		coll_append_call(&inquest->text, group, &other, false);
		return;
	}
}

/* All have come: who has not done its part, or came too late. */
static void say_late(struct inquest *inquest, const struct coll_call *call)
{
	struct coll_group *group = inquest->group;
	uint64_t unfinished = coll_look_behind(group, call->sequence);
	uint32_t culprit = inquest->report->culprit;

	unfinished &= ~(1ull << inquest->self);
	if (call->is_long && unfinished) {
		culprit = (uint32_t)__builtin_ctzll(unfinished);
		zi_text_append(&inquest->text, ": ");
		if (unfinished & (unfinished - 1))
			coll_append_members(&inquest->text, group, unfinished);
		else
			coll_append_rank(&inquest->text, inquest->coll, group->ranks[culprit]);
		zi_text_append(&inquest->text, " came, but did not do %s part ",
		               unfinished & (unfinished - 1) ? "their" : "its");
		append_timeout(inquest);
		inquest->culprit = group->ranks[culprit];
	} else if (group->far_mask) {
		zi_text_append(&inquest->text, ": its ranks of this node wait for those of other "
		                               "nodes, which did not do their part ");
		append_timeout(inquest);
	} else if (culprit < group->member_count && culprit != inquest->self) {
		zi_text_append(&inquest->text, ": ");
		coll_append_rank(&inquest->text, inquest->coll, group->ranks[culprit]);
		zi_text_append(&inquest->text, " has come, but not ");
		append_timeout(inquest);
		inquest->culprit = group->ranks[culprit];
	} else {
		zi_text_append(&inquest->text, ": its ranks have come, but not ");
		append_timeout(inquest);
	}
}

/* Who leans on the root has waited for that one, whoever else has not come, if it has not either,
 * or has come since; else for whoever was behind when it went on. */
static void say_timeout(struct inquest *inquest, const struct coll_call *call)
{
	struct coll_group *group = inquest->group;
	uint64_t absent = coll_all_members(group) & ~coll_look_come(group, call->sequence);
	uint64_t root = coll_look_leant_on(group, inquest->self, call);

	coll_append_call(&inquest->text, group, call, true);
	if (!root && call->is_leaning && inquest->report->culprit == call->root)
		absent = 0;
	if (absent) {
		say_absent(inquest, absent, at_fault(group, absent, root ? root : absent));
		say_other(inquest, call);
	} else {
		say_late(inquest, call);
	}
}

/* ---- the rest ---- */

/* A failure that the boards do not explain, in the words of whoever reports it. */
static void say_reported(struct inquest *inquest)
{
	const struct zi_coll_fail *report = inquest->report;
	struct coll_group *group = inquest->group;
	uint32_t rank = coll_rank_of(group, report->culprit);

	coll_append_rank(&inquest->text, inquest->coll, group->ranks[inquest->self]);
	zi_text_append(&inquest->text, " reports %s of ", zi_err_name(report->error));
	if (report->sequence)
		zi_text_append(&inquest->text, "call #%u", report->sequence);
	else
		zi_text_append(&inquest->text, "a call");
	zi_text_append(&inquest->text, " of group %u", group->number);
	if (rank != COLL_NOBODY && rank != group->ranks[inquest->self]) {
		inquest->culprit = rank;
		zi_text_append(&inquest->text, ", because of ");
		coll_append_rank(&inquest->text, inquest->coll, inquest->culprit);
	}
}

/* @rank waits in @call, whose root, a member, keeps it waiting. */
static void append_pair(struct zi_text *text, const struct coll *coll,
                        const struct coll_group *group, uint32_t rank, const struct coll_call *call,
                        uint32_t timeout_ms)
{
	uint32_t culprit = coll_rank_of(group, call->root);
	uint32_t member = coll_member_of(group, culprit);

	coll_append_rank(text, coll, rank);
	zi_text_append(text, " waits in group %u in ", group->number);
	coll_append_call(text, group, call, false);
	zi_text_append(text, ": ");
	coll_append_rank(text, coll, culprit);
	zi_text_append(text, " did not come within %.4g s", timeout_ms / 1e3);
	if (member == COLL_NOBODY)
		return; /* Its node knows, and did not say. */
	zi_text_append(text, ": ");
	coll_append_doing(text, coll, group, member);
}

/* send, recv: they have no number on the board, so the report says what they were. */
static void say_pair(struct inquest *inquest)
{
	const struct zi_coll_fail *report = inquest->report;
	struct coll_group *group = inquest->group;
	uint32_t rank = coll_rank_of(group, report->culprit), member;
	uint32_t peer = rank != COLL_NOBODY ? report->culprit : report->root;
	struct coll_call call;

	rank = coll_rank_of(group, peer);
	member = rank != COLL_NOBODY ? coll_member_of(group, rank) : COLL_NOBODY;
	if (report->error != -ETIMEDOUT || rank == COLL_NOBODY || member == inquest->self) {
		say_reported(inquest);
		return;
	}
	call = (struct coll_call){ .operation = report->operation,
		                   .dtype = report->dtype,
		                   .element_count = report->element_count,
		                   .root = peer };
	inquest->culprit = rank;
	append_pair(&inquest->text, inquest->coll, group, group->ranks[inquest->self], &call,
	            report->timeout_ms);
}

/* See coll.h. */
void coll_fail_message(struct coll *coll, struct coll_group *group, uint32_t waiting,
                       const struct coll_call *call, uint32_t timeout_ms)
{
	uint32_t culprit = coll_rank_of(group, call->root);
	uint32_t rank = coll_rank_of(group, waiting);
	struct zi_text text = { "" };

	if (group->error || rank == COLL_NOBODY || culprit == COLL_NOBODY)
		return;
	append_pair(&text, coll, group, rank, call, timeout_ms);
	coll_break(coll, group, -ETIMEDOUT, culprit, &text);
}

/* Members whose newest call is one before @sequence (what is asked may be over here), but for those
 * that other nodes keep waiting there: they are as late as those are. */
static uint64_t not_come(const struct coll_group *group, uint32_t sequence)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < group->member_count; i++) {
		struct coll_call newest;

		coll_look_newest(group, i, &newest);
		if (newest.sequence && ((int32_t)(newest.sequence - sequence) >= 0 ||
		                        coll_look_awaits_nodes(group, i, &newest)))
			continue;
		mask |= 1ull << i;
	}
	return mask;
}

/* Of other nodes those of @silent. */
static void append_silent(struct zi_text *text, const struct coll_group *group, uint64_t silent)
{
	const char *before;

	silent &= group->far_mask;
	for (uint32_t i = 0; i < group->member_count; i++)
		silent &= ~(1ull << group->ranks[i]);
	if (!silent)
		return;
	before = silent & (silent - 1) ? "; nothing came from ranks " : "; nothing came from rank ";
	for (; silent; silent &= silent - 1) {
		zi_text_append(text, "%s%u", before, (uint32_t)__builtin_ctzll(silent));
		before = ", ";
	}
	zi_text_append(text, " either");
}

/* See coll.h. */
void coll_fail_absent(struct coll *coll, struct coll_group *group, const struct coll_call *call,
                      uint64_t silent, uint32_t timeout_ms)
{
	struct zi_coll_fail report = { .timeout_ms = timeout_ms };
	struct inquest inquest = {
		.coll = coll, .group = group, .report = &report, .culprit = COLL_NOBODY
	};
	uint64_t absent = not_come(group, call->sequence);

	if (group->error || !absent)
		return;
	if (zi_coll_is_collective(call->operation))
		coll_append_call(&inquest.text, group, call, true);
	else
		zi_text_append(&inquest.text, "call #%u of group %u", call->sequence,
		               group->number);
	say_absent(&inquest, absent, absent);
	append_silent(&inquest.text, group, silent);
	coll_break(coll, group, -ETIMEDOUT, inquest.culprit, &inquest.text);
}

static void inquire(struct inquest *inquest)
{
	const struct zi_coll_fail *report = inquest->report;
	struct coll_call call;

	if (!report->sequence) {
		say_pair(inquest);
	} else if (!coll_look(inquest->group, inquest->self, report->sequence, &call)) {
		say_reported(inquest);
		zi_text_append(&inquest->text, ", which it has not made");
		inquest->culprit = inquest->group->ranks[inquest->self];
	} else if (report->error == -ETIMEDOUT) {
		say_timeout(inquest, &call);
	} else {
		say_reported(inquest);
	}
}

/**
 * coll_fail() - a rank says that a call of a group failed, or asks why the group is broken
 * @rank: of this node
 * @report: of a hostile rank, at worst
 * @text: the reason, the same for all members
 *
 * Return: the error that the group is broken with; -EPERM it is no member; -EINVAL the group
 * stands, or the report makes no sense. Context: shard thread.
 */
int coll_fail(struct coll *coll, uint32_t rank, const struct zi_coll_fail *report,
              struct zi_text *text)
{
	struct inquest inquest = { .coll = coll, .report = report, .culprit = COLL_NOBODY };
	int r;

	r = coll_group_of(coll, rank, report->group, text, &inquest.group);
	if (r)
		return err_trace(r);
	if (!inquest.group->error) {
		if (!report->error)
			return err_origin(zi_text_error(text, -EINVAL, "group %u is not broken",
			                                report->group));
		if (report->error > 0 || report->error < -COLL_ERRNO_MAX)
			return err_origin(zi_text_error(text, -EINVAL,
			                                "COLL_FAIL of group %u with error %d: a "
			                                "negative errno is expected",
			                                report->group, report->error));
		if (zi_verdict_is_spared(report->error))
			return err_origin(zi_text_error(text, -EINVAL,
			                                "COLL_FAIL of group %u with %s: that ends "
			                                "one call, and the group stands",
			                                report->group, zi_err_name(report->error)));
		inquest.self = coll_member_of(inquest.group, rank);
		inquire(&inquest);
		coll_break(coll, inquest.group, report->error, inquest.culprit, &inquest.text);
	}
	*text = inquest.group->text;
	return inquest.group->error;
}
