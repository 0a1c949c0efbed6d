/* SPDX-License-Identifier: Apache-2.0 */
/* See advice.h. The arithmetic is common/wire/plan.h's, which a test compares with memory.c. */
#include "daemon/zero/job/advice.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/wire/plan.h"
#include "daemon/zero/grad/pool.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

/* Beside @text, or not at all: half a figure would be another one. */
static void append_whole(struct zi_text *text, const struct zi_text *words)
{
	if (strlen(text->chars) + strlen(words->chars) < sizeof(text->chars))
		zi_text_append(text, "%s", words->chars);
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
	return bytes + grad_pool_charged_bytes(job);
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

static void append(const struct zero_job *job, const struct zi_plan_model *model,
                   struct zi_text *text)
{
	struct zi_plan_options wish = {
		.config = job->config,
		.training = job->training,
		.local_ranks = (uint32_t)__builtin_popcountll(job->here_mask),
		.world_size = job->world,
		.here_mask = job->here_mask,
		.node_count = job->meeting.node_count,
		.default_staging_bytes = job->zero->options.default_staging_bytes,
		.wants_huge = job->cpu_tier->wants_huge,
		/* What is committed stays where it is (attach.c). What is not ends with its ranks,
		 * and may begin anew anywhere. */
		.stays_on_nvme = job->committed_step >= 0,
	};
	uint64_t cpu_bytes = cpu_room_bytes(job), nvme_bytes = nvme_room_bytes(job);
	struct zi_text words = { "" }, fit = { "" };
	struct zi_job_config config = job->config;
	struct zi_plan plan;
	uint64_t more_bytes;

	if (zi_plan_make(model, &wish, &plan, NULL))
		return;
	more_bytes = more_copies(job) * plan.copy_cpu_bytes;
	cpu_bytes -= ZI_MIN(cpu_bytes, more_bytes);
	if (plan.cpu_bytes <= cpu_bytes && plan.reserved_nvme_bytes <= nvme_bytes)
		return;
	/* Its own words when nothing fits. */
	(void)zi_plan_fit(model, &wish, cpu_bytes, nvme_bytes, &config, &fit);
	zi_text_set(&words, "; in all %s", zi_format_bytes(plan.cpu_bytes + more_bytes).chars);
	if (plan.reserved_nvme_bytes > nvme_bytes)
		zi_text_append(&words, " and %s of NVMe",
		               zi_format_bytes(plan.reserved_nvme_bytes).chars);
	zi_text_append(&words, "; %s", fit.chars);
	append_whole(text, &words);
}

/* See advice.h. */
void advice_append(const struct zero_job *job, struct zi_text *text)
{
	_cleanup_(zi_freep) uint64_t *padded = NULL;
	_cleanup_(zi_freep) uint32_t *unit_sets = NULL;
	_cleanup_(zi_freep) uint64_t *members = NULL;
	struct zi_plan_model model = { .element_count = job->element_count,
		                       .padded_count = job->padded_count,
		                       .unit_count = job->layout.unit_count,
		                       .param_count = job->layout.param_count };

	/* Of a job over several nodes each has another part; and where state is in memory for good,
	 * nothing is left to concede. */
	if (!text || job->here_count != job->subgroup_count ||
	    (job->committed_step >= 0 && !job_is_nvme(job)))
		return;
	padded = calloc(job->layout.unit_count, sizeof(*padded));
	unit_sets = calloc(job->layout.unit_count, sizeof(*unit_sets));
	members = calloc(job->set_count, sizeof(*members));
	if (!padded || !unit_sets || !members)
		return;
	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		padded[i] = job->units[i].padded_count;
		unit_sets[i] = (uint32_t)(set_of(job, i) - job->sets);
	}
	for (uint32_t i = 0; i < job->set_count; i++)
		members[i] = job->sets[i].members;
	if (sets_are_named(job))
		model.set_count = job->set_count;
	model.unit_padded = padded;
	model.unit_sets = unit_sets;
	model.set_members = members;
	append(job, &model, text);
}
