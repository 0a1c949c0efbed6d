/* SPDX-License-Identifier: Apache-2.0 */
/* See advice.h. The arithmetic is common/wire/plan.h's, which a test compares with memory.c. */
#include "daemon/zero/job/advice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/wire/geometry.h"
#include "common/wire/plan.h"
#include "common/wire/strategy.h"
#include "common/wire/training.h"
#include "daemon/worker/talk.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/grad/pool.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/set.h"

/* Where units are dealt out to nodes it takes as long as they have subgroups: of more than this, a
 * second of the shard's, nobody asks. */
#define ADVICE_DEALT_MAX (1ull << 36)

/* Beside @text, the first of (count,) @words that does not have to be cut, here or in a vote:
 * half a figure would be another one. */
static void append_whole(const struct zero_job *job, struct zi_text *text,
                         const struct zi_text *words, uint32_t count)
{
	size_t text_bytes = job_spans_nodes(job) ? TALK_DATA_BYTES : sizeof(text->chars) - 1;

	for (uint32_t i = 0; i < count; i++) {
		if (strlen(text->chars) + strlen(words[i].chars) > text_bytes)
			continue;
		zi_text_append(text, "%s", words[i].chars);
		return;
	}
}

static uint64_t held_bytes(const struct zero_job *job, const struct tier_segment *segment)
{
	return segment ? tier_segment_bytes_on(segment, job->cpu_tier) : 0;
}

/* The writable copy of a unit that a rank has. */
static const struct tier_segment *copy_of(const struct zero_rank *rank)
{
	return rank && rank->write ? rank->write->segment : rank ? rank->spare : NULL;
}

/* Free for this job, with what it has already: all of it is planned anew. */
static uint64_t cpu_room_bytes(const struct zero_job *job)
{
	uint64_t bytes = tier_charge_room_bytes(job->cpu_tier, &job->account->account);

	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		bytes += held_bytes(job, copy_of(job->group.ranks[i]));
	bytes += held_bytes(job, job->param) + held_bytes(job, job->shard) +
	         held_bytes(job, job->lent) + held_bytes(job, job->accum) +
	         held_bytes(job, job->state) + held_bytes(job, job->staging_segment) +
	         held_bytes(job, job->sums) +
	         held_bytes(job, job->staging ? job->staging->segment : NULL);
	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		bytes += held_bytes(job, job->grads[i]);
	return bytes + grad_pool_charged_bytes(job) + across_held_bytes(job);
}

static uint64_t nvme_room_bytes(const struct zero_job *job)
{
	if (!job->nvme_tier)
		return 0;
	return tier_charge_room_bytes(job->nvme_tier, &job->account->account) +
	       job->nvme_charge.bytes;
}

/* A plan has one copy, of the rank that gives first values; this one is of those that have theirs
 * when another asks for its own. */
static uint32_t more_copies(const struct zero_job *job)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < ZI_WORLD_MAX; i++)
		count += copy_of(job->group.ranks[i]) != NULL;
	return count;
}

/* What a job would like, and the room that there is for it. */
struct advice {
	const struct zi_plan_model *model;
	struct zi_plan_options wish;
	uint64_t cpu_bytes, nvme_bytes; /* free for it, copies of units taken off */
	uint64_t more_bytes;            /* of those copies */
};

/* A new job of one node may have any strategy. What it has committed stays as it is, and other
 * nodes would have to be asked. @fit: the least that its own strategy takes, or what fits. */
static void try_strategies(const struct zero_job *job, const struct advice *advice,
                           struct zi_text *fit)
{
	struct zi_plan_options found;
	struct zi_text words = { "" };
	struct zi_plan plan;

	/* Ranks of dp are lanes of one process, which another strategy does not have. */
	if (job->committed_step >= 0 || job_spans_nodes(job) ||
	    job->training.strategy == ZI_STRATEGY_DP ||
	    zi_plan_fit_strategy(advice->model, &advice->wish, advice->cpu_bytes,
	                         advice->nvme_bytes, &found, &words) ||
	    zi_plan_make(advice->model, &found, &plan, NULL))
		return;
	zi_text_set(fit, "strategy %s takes %s: %s", zi_strategy_name(found.training.strategy),
	            zi_format_bytes(plan.cpu_bytes + advice->more_bytes).chars, words.chars);
}

/* The nearest setting that fits; "" none that is to be had where the ranks are. */
static void find_fit(const struct zero_job *job, const struct advice *advice, struct zi_text *fit)
{
	const struct zi_plan_options *wish = &advice->wish;
	struct zi_job_config config = job->config;
	int r;

	r = zi_plan_fit(advice->model, wish, advice->cpu_bytes, advice->nvme_bytes, &config, fit);
	if (r == -ENOSPC)
		try_strategies(job, advice, fit);
	else if (!r &&
	         zi_check_training(&job->training, &config, job->world, wish->local_ranks, NULL))
		fit->chars[0] = '\0';
}

static void append(const struct zero_job *job, const struct zi_plan_model *model,
                   struct zi_text *text)
{
	struct advice advice = {
		.model = model,
		.wish = {
			.config = job->config,
			.training = job->training,
			.local_ranks = (uint32_t)__builtin_popcountll(job->here_mask),
			.world_size = job->world,
			.here_mask = job->here_mask,
			.node_count = job->meeting.node_count,
			.default_staging_bytes = job->zero->options.default_staging_bytes,
			.wants_huge = job->cpu_tier->wants_huge,
			/* What is committed stays where it is (attach.c). What is not ends with its
			 * ranks, and may begin anew anywhere. */
			.stays_on_nvme = job->committed_step >= 0,
		},
		.cpu_bytes = cpu_room_bytes(job),
		.nvme_bytes = nvme_room_bytes(job),
	};
	struct zi_text words[3], fit = { "" }; /* both, what fits, what it takes */
	struct zi_plan plan;

	if (zi_plan_make(model, &advice.wish, &plan, NULL))
		return;
	advice.more_bytes = more_copies(job) * plan.copy_cpu_bytes;
	advice.cpu_bytes -= ZI_MIN(advice.cpu_bytes, advice.more_bytes);
	if (plan.cpu_bytes <= advice.cpu_bytes && plan.reserved_nvme_bytes <= advice.nvme_bytes)
		return;
	zi_text_set(&words[2], "; in all %s",
	            zi_format_bytes(plan.cpu_bytes + advice.more_bytes).chars);
	if (plan.reserved_nvme_bytes > advice.nvme_bytes)
		zi_text_append(&words[2], " and %s of NVMe",
		               zi_format_bytes(plan.reserved_nvme_bytes).chars);
	find_fit(job, &advice, &fit);
	if (fit.chars[0]) {
		zi_text_set(&words[0], "%s; %s", words[2].chars, fit.chars);
		zi_text_set(&words[1], "; %s", fit.chars);
	} else {
		words[0] = words[1] = words[2];
	}
	append_whole(job, text, words, ZI_COUNT_OF(words));
}

/* As the ranks have streamed it: what is built of it may not be there yet. (unit_count,) each. */
static void take_layout(const struct zero_layout *layout, struct zi_plan_model *model,
                        uint64_t *padded, uint32_t *unit_sets)
{
	uint32_t param = 0;

	for (uint32_t i = 0; i < layout->unit_count; i++) {
		padded[i] = layout_padded_from(layout, &param);
		model->padded_count += padded[i];
		unit_sets[i] = layout->units[i].member_set;
	}
	for (uint32_t i = 0; i < layout->param_count; i++) {
		uint64_t count = 0;

		(void)zi_geometry_elements(layout->params[i].shape, layout->params[i].dim_count,
		                           &count); /* Checked. */
		model->element_count += count;
	}
	model->unit_padded = padded;
	model->unit_sets = unit_sets;
}

/* See advice.h. */
void advice_append(const struct zero_job *job, struct zi_text *text)
{
	const struct zero_layout *layout = &job->layout;
	_cleanup_(zi_freep) uint64_t *padded = NULL;
	_cleanup_(zi_freep) uint32_t *unit_sets = NULL;
	_cleanup_(zi_freep) uint64_t *members = NULL;
	struct zi_plan_model model = { .unit_count = layout->unit_count,
		                       .param_count = layout->param_count,
		                       .set_count = sets_are_named(job) ? layout->set_count : 0 };

	/* Where state is in memory for good, nothing is left to concede. */
	if (!text || (job->committed_step >= 0 && !job_is_nvme(job)))
		return;
	padded = calloc(layout->unit_count, sizeof(*padded));
	unit_sets = calloc(layout->unit_count, sizeof(*unit_sets));
	members = calloc(ZI_MAX(model.set_count, 1u), sizeof(*members));
	if (!padded || !unit_sets || !members)
		return;
	take_layout(layout, &model, padded, unit_sets);
	if (job_spans_nodes(job) && model.padded_count > ADVICE_DEALT_MAX)
		return;
	for (uint32_t i = 0; i < model.set_count; i++)
		members[i] = layout->sets[i].members;
	model.set_members = members;
	append(job, &model, text);
}
