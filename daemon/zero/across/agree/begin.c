/* SPDX-License-Identifier: Apache-2.0 */
/* A step begins on all nodes; see begin.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/begin.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/check.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/agree.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/step/join.h"
#include "daemon/zero/step/step.h"
#include "kernels/hash.h"

/* How a step has begun there. */
struct agree_step {
	int64_t step;
	uint32_t rank, reserved; /* whose options they are; UINT32_MAX: nobody's, all have joined */
	struct zi_step_options options;
	uint64_t groups_digest; /* of their groups */
};
static_assert(sizeof(struct agree_step) <= TALK_DATA_BYTES, "one vote");

/* Of a group, as it travels. */
struct agree_group {
	double lr, weight_decay;
};
static_assert(ZI_PARAM_GROUPS_MAX <=
                      AGREE_GROUPS_ENTRIES * (TALK_DATA_BYTES / sizeof(struct agree_group)),
              "they have room");

#define GROUPS_PER_ENTRY ((uint32_t)(TALK_DATA_BYTES / sizeof(struct agree_group)))

static uint64_t digest_of(const struct zi_step_group *groups, uint32_t count)
{
	return kern_hash(groups, count * sizeof(*groups));
}

/* ---- groups ---- */

static void say_groups(struct zero_job *job)
{
	uint32_t count = job->step.options.group_count;

	for (uint32_t first = 0; first < count; first += GROUPS_PER_ENTRY) {
		uint32_t part = ZI_MIN(count - first, GROUPS_PER_ENTRY);
		struct agree_group groups[TALK_DATA_BYTES / sizeof(struct agree_group)];
		struct talk_entry entry = { .kind = TALK_READY,
			                    .what = AGREE_READY_GROUPS,
			                    .step = job->current_step + 1,
			                    .micro = first,
			                    .data_bytes = part * sizeof(struct agree_group) };

		for (uint32_t i = 0; i < part; i++)
			groups[i] =
				(struct agree_group){ job->step.groups[first + i].lr,
				                      job->step.groups[first + i].weight_decay };
		memcpy(entry.data, groups, entry.data_bytes);
		across_say_all(job->across, &entry);
	}
}

/* Documented in the header, as are the others. Of the first node alone they are needed. */
int agree_groups_heard(struct across *across, const struct talk_entry *entry, struct zi_text *text)
{
	struct across_groups *mine = &across->groups;
	uint32_t count = entry->data_bytes / sizeof(struct agree_group);
	struct agree_group groups[TALK_DATA_BYTES / sizeof(struct agree_group)];

	if (entry->data_bytes > TALK_DATA_BYTES || !count ||
	    entry->data_bytes % sizeof(struct agree_group) || entry->micro > ZI_PARAM_GROUPS_MAX ||
	    count > ZI_PARAM_GROUPS_MAX - entry->micro)
		return err_origin(zi_text_error(
			text, -EPROTO, "node %u says %u bytes of groups from %u on: it cannot be",
			entry->node, entry->data_bytes, entry->micro));
	if (entry->step < mine->step || (entry->step == mine->step && entry->node > mine->node))
		return 0;
	mine->step = entry->step;
	mine->node = entry->node;
	memcpy(groups, entry->data, entry->data_bytes);
	for (uint32_t i = 0; i < count; i++)
		mine->groups[entry->micro + i] =
			(struct zi_step_group){ .lr = groups[i].lr,
			                        .weight_decay = groups[i].weight_decay };
	return 0;
}

/* ---- what all say ---- */

/* A vote of @node. Return: 0; -EPROTO it cannot be. */
static int take_vote(const struct zero_job *job, const struct round *round, uint32_t node,
                     struct agree_step *ret_step, struct zi_text *text)
{
	const struct round_vote *vote = &round->votes[node];

	memcpy(ret_step, vote->data, sizeof(*ret_step));
	if (vote->data_bytes == sizeof(*ret_step) &&
	    (ret_step->rank == UINT32_MAX || (ret_step->rank < job->group.world_size &&
	                                      across_node_of(job, ret_step->rank) == node)))
		return 0;
	return err_origin(zi_text_error(text, -EPROTO, "how %.80s begins a step cannot be",
	                                across_name(job, node).chars));
}

/* All nodes are at one step, and those that begin it do so alike. @ret_first: of the first that
 * does; its rank is UINT32_MAX: there is none. */
static int compare(const struct zero_job *job, const struct round *round,
                   struct agree_step *ret_first, uint32_t *ret_node, uint32_t *ret_rank,
                   struct zi_text *text)
{
	struct agree_step model, other;
	int64_t step = 0;
	int r;

	model.rank = UINT32_MAX;
	for (uint32_t i = 0; i < across_node_count(job); i++) {
		r = take_vote(job, round, i, &other, text);
		if (r)
			return err_trace(r);
		step = i ? step : other.step;
		*ret_rank = other.rank;
		if (other.step != step) {
			agree_say_step(job, i, other.step, step, text);
			return err_origin(-EINVAL);
		}
		if (other.rank == UINT32_MAX)
			continue;
		if (model.rank == UINT32_MAX) {
			model = other;
			*ret_node = i;
			continue;
		}
		r = step_options_compare(&other.options, other.rank, &model.options, model.rank,
		                         text);
		if (r)
			return err_trace(r);
		if (other.groups_digest != model.groups_digest)
			return err_origin(zi_text_error(text, -EINVAL,
			                                "lr or weight_decay of a group are others "
			                                "in rank %u than in rank %u",
			                                other.rank, model.rank));
	}
	*ret_first = model;
	return 0;
}

/* What another node's rank begins with, here: hearsay. */
static int take_options(struct zero_job *job, const struct agree_step *first, uint32_t node,
                        struct zi_text *text)
{
	const struct across_groups *groups = &job->across->groups;
	uint32_t count = first->options.group_count;
	struct zi_text why = { "" };
	int r = zi_check_step_options(&first->options, &why);

	if (!r && first->options.flags & ZI_STEP_JOINED)
		r = zi_text_error(&why, -EINVAL, "it has joined");
	if (!r && count &&
	    (groups->step != job->current_step + 1 || groups->node != node ||
	     digest_of(groups->groups, count) != first->groups_digest))
		r = zi_text_error(&why, -EINVAL, "its groups did not come");
	if (!r && count)
		r = zi_check_step_groups(groups->groups, count, &why);
	if (r)
		return err_origin(zi_text_error(text, -EPROTO,
		                                "how %.80s begins a step cannot be: %.120s",
		                                across_name(job, node).chars, why.chars));
	join_begun(job, &first->options, groups->groups, first->rank);
	return 0;
}

static void begun(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct zero_job *job = arg;
	bool is_asked = join_is_asked(job);
	uint32_t rank = UINT32_MAX, node = 0;
	struct agree_step first;
	struct zi_text why = { "" };
	int r;

	(void)text; /* Its ranks have heard why. */
	if (error || job->group.phase != ZERO_GROUP_LIVE || agree_refused(job, round)) {
		job_settle(job);
		return;
	}
	r = compare(job, round, &first, &node, &rank, &why);
	if (!r && is_asked && first.rank == UINT32_MAX)
		join_over(job);
	else if (!r && is_asked)
		r = take_options(job, &first, node, &why);
	if (r)
		group_break(job, r, rank < job->group.world_size ? rank : UINT32_MAX, &why);
	job_settle(job);
}

static void vote(struct zero_job *job, struct agree_step *step)
{
	struct round_vote vote = { .data_bytes = sizeof(*step) };

	step->step = job->current_step;
	memcpy(vote.data, step, sizeof(*step));
	across_vote(job, ROUND_STEP_BEGIN, &vote, begun);
}

void agree_begin(struct zero_job *job)
{
	struct agree_step step;

	if (!job->across)
		return;
	say_groups(job);
	memset(&step, 0, sizeof(step)); /* All of it is sent. */
	step.rank = job->step.options_rank;
	step.options = job->step.options;
	step.groups_digest = digest_of(job->step.groups, step.options.group_count);
	vote(job, &step);
}

void agree_begin_joined(struct zero_job *job)
{
	struct agree_step step;

	memset(&step, 0, sizeof(step));
	step.rank = UINT32_MAX;
	vote(job, &step);
}

bool agree_begin_say_late(const struct zero_job *job, struct zi_text *ret_text)
{
	uint64_t number, silent = rounds_silent(&job->across->rounds, &number);

	if (!silent)
		return false;
	zi_text_set(ret_text, "%.160s has neither begun a step nor joined",
	            across_name(job, (uint32_t)__builtin_ctzll(silent)).chars);
	return true;
}
