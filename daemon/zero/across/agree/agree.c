/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers of all nodes; see agree.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/agree.h"

#include <stddef.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/across/bytes/blobs.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/step/step.h"

/* What a node's ranks have come to. */
struct agree_call {
	int64_t step;      /* the one in force */
	uint32_t words[2]; /* the call's own */
	/* From here on a node's own. What its ranks gave with it for all to keep (bytes/blobs.h) */
	uint32_t blobs_bytes, reserved;
};
#define AGREE_ALIKE_BYTES offsetof(struct agree_call, blobs_bytes)

static const struct {
	enum round_kind kind;
	const char *words[2];
} calls[_ZERO_GATHER_COUNT] = {
	[ZERO_GATHER_WRITE_END] = { ROUND_WRITE_END, { "unit", "root" } },
	[ZERO_GATHER_COMMIT] = { ROUND_COMMIT, { "", "" } },
	[ZERO_GATHER_STEP] = { ROUND_STEP, { "", "" } },
	[ZERO_GATHER_BARRIER] = { ROUND_BARRIER, { "", "" } },
};

/* ---- what differs ---- */

/* See agree.h. */
void agree_say_step(const struct zero_job *job, uint32_t node, int64_t step, int64_t first,
                    struct zi_text *text)
{
	zi_text_set(text, "%s is at step %lld, but %s at step %lld", across_name(job, node).chars,
	            (long long)step, across_name(job, 0).chars, (long long)first);
}

/* Of two nodes that have come to the same call. */
static void say_difference(const struct zero_job *job, enum zero_gather gather,
                           const struct round *round, uint32_t node, struct zi_text *text)
{
	struct agree_call first = { 0 }, other = { 0 };
	const char *name = round_kind_name(round->kind);

	memcpy(&first, round->votes[0].data, sizeof(first));
	memcpy(&other, round->votes[node].data, sizeof(other));
	if (first.step != other.step) {
		agree_say_step(job, node, other.step, first.step, text);
		return;
	}
	zi_text_set(text, "%s: %s %u, %s %u in %s, but %s %u, %s %u in %s", name,
	            calls[gather].words[0], other.words[0], calls[gather].words[1], other.words[1],
	            across_name(job, node).chars, calls[gather].words[0], first.words[0],
	            calls[gather].words[1], first.words[1], across_name(job, 0).chars);
}

/* ---- gathers ---- */

static enum zero_gather gather_of(enum round_kind kind)
{
	uint32_t gather = 0;

	while (calls[gather].kind != kind)
		gather++;
	assert(gather < _ZERO_GATHER_COUNT);
	return (enum zero_gather)gather;
}

/* See agree.h. */
int agree_refusal(const struct zero_job *job, const struct round *round, struct zi_text *ret_text)
{
	uint32_t node_count = across_node_count(job), node = 0;
	bool is_of_all = round_odd_one(round, node_count) == node_count;
	struct zi_text told;
	int r = round_refusal(round, node_count, &told, &node);

	if (!r)
		return 0;
	zi_text_set(ret_text, "%.60s%s%.190s", is_of_all ? "" : across_name(job, node).chars,
	            is_of_all ? "" : ": ", told.chars);
	zi_utf8_clean(ret_text->chars); /* Another node's word. */
	return err_origin(r);
}

/* See agree.h. */
bool agree_refused(struct zero_job *job, const struct round *round)
{
	struct zi_text why, text;
	uint32_t node = 0;
	int r = round_refusal(round, across_node_count(job), &why, &node);

	if (!r)
		return false;
	zi_text_set(&text, "%.80s refuses %s: %.120s", across_name(job, node).chars,
	            round_kind_name(round->kind), why.chars);
	zi_utf8_clean(text.chars); /* Another node's word. */
	group_break(job, r, UINT32_MAX, &text);
	return true;
}

/* Ranks of this node that have come are there yet. */
static bool all_wait(const struct zero_job *job, enum zero_gather gather)
{
	for_each_rank_here(job, i)
		if (!job->group.ranks[i] || !job->group.ranks[i]->gathered[gather])
			return false;
	return true;
}

static bool has_blobs(enum zero_gather gather)
{
	return gather == ZERO_GATHER_STEP || gather == ZERO_GATHER_COMMIT;
}

/* The first node that has come to something else; @node_count: none. */
static uint32_t odd_one(const struct round *round, uint32_t node_count)
{
	uint32_t node = 0;

	while (node < node_count && round->votes[node].data_bytes == sizeof(struct agree_call) &&
	       !memcmp(round->votes[node].data, round->votes[0].data, AGREE_ALIKE_BYTES))
		node++;
	return node;
}

/* Return: false, some node says what cannot be, and the group is told. */
static bool take_blobs(struct zero_job *job, const struct round *round)
{
	uint32_t said_bytes[SUBTREE_NODES_MAX], node = 0;
	struct zi_text why, text;
	struct agree_call call;

	for (uint32_t i = 0; i < across_node_count(job); i++) {
		memcpy(&call, round->votes[i].data, sizeof(call));
		said_bytes[i] = call.blobs_bytes;
	}
	if (!blobs_agreed(job, said_bytes, &why, &node))
		return true;
	zi_text_set(&text, "%.80s comes to %s with %.120s", across_name(job, node).chars,
	            round_kind_name(round->kind), why.chars);
	group_break(job, -EPROTO, UINT32_MAX, &text);
	return false;
}

static void agreed(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	enum zero_gather gather = gather_of(round->kind);
	gather_go_fn go_on = job->group.go_on[gather];
	struct zi_text why;
	uint32_t odd;

	(void)text; /* Its ranks have heard why. */
	if (error || job->group.phase != ZERO_GROUP_LIVE || agree_refused(job, round)) {
		job_settle(job);
		return;
	}
	odd = odd_one(round, across_node_count(job));
	if (odd < across_node_count(job)) {
		say_difference(job, gather, round, odd, &why);
		group_break(job, -EINVAL, UINT32_MAX, &why);
		job_settle(job);
		return;
	}
	if (!all_wait(job, gather)) {
		/* It has left meanwhile, cleanly; or has given up, and the others go on. */
		if (!group_needs_all(job)) {
			zi_text_set(&why, "a rank gave up in %s before all nodes had come",
			            round_kind_name(round->kind));
			group_break(job, -ETIMEDOUT, UINT32_MAX, &why);
		}
		job_settle(job);
		return;
	}
	if (has_blobs(gather) && !take_blobs(job, round)) {
		job_settle(job);
		return;
	}
	job->group.agreed |= 1u << gather;
	go_on(job);
	job_settle(job);
}

/* Documented in the header, as is the other. */
void agree_all(struct zero_job *job, enum zero_gather gather, const uint32_t words[2],
               gather_go_fn go_on)
{
	struct agree_call call = { .step = job->current_step };
	struct round_vote vote = { .data_bytes = sizeof(call) };

	assert(gather_is_full(job, gather));
	assert(calls[gather].kind);
	if (!job->across) {
		go_on(job);
		return;
	}
	if (words)
		memcpy(call.words, words, sizeof(call.words));
	if (has_blobs(gather))
		call.blobs_bytes = blobs_said_bytes(job);
	memcpy(vote.data, &call, sizeof(call));
	job->group.go_on[gather] = go_on;
	across_vote(job, calls[gather].kind, &vote, agreed);
}

bool agree_is_held(const struct zero_job *job)
{
	/* With pools nodes ask each other at a write's end whether all have it (written.h). */
	bool writes = job->residency && gather_is_full(job, ZERO_GATHER_WRITE_END);

	return job->across &&
	       (writes || job->step.phase == ZERO_STEP_UPDATING ||
	        job->step.phase == ZERO_STEP_COMMITTING || gather_is_full(job, ZERO_GATHER_STEP) ||
	        gather_is_full(job, ZERO_GATHER_COMMIT));
}

void agree_hold(struct zero_job *job, enum zero_gather gather, gather_go_fn go_on)
{
	job->group.go_on[gather] = go_on;
	job->group.held |= 1u << gather;
}

void agree_held(struct zero_job *job)
{
	for (uint32_t i = 0; i < _ZERO_GATHER_COUNT; i++) {
		if (!(job->group.held >> i & 1) || !gather_is_full(job, i) || agree_is_held(job))
			continue;
		job->group.held &= ~(1u << i);
		agree_all(job, (enum zero_gather)i, NULL, job->group.go_on[i]);
	}
}
