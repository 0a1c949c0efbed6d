/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nearest setting with which a job fits (plan.h): each concession is kept while the next one is
 * tried, the cheapest for a step's speed first.
 */
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/plan.h"

/* Enough for any number of slots; those of the plan are fewer. */
#define FIT_STAGING_BYTES (1ull << 62)

struct fit {
	const struct zi_plan_model *model;
	const struct zi_job_config *wish;
	struct zi_plan_options options; /* as far as conceded */
	struct zi_plan plan;            /* of these */
	uint64_t cpu_bytes, nvme_bytes;
};

static bool fits(const struct fit *fit)
{
	return fit->plan.cpu_bytes <= fit->cpu_bytes &&
	       fit->plan.reserved_nvme_bytes <= fit->nvme_bytes;
}

/* With what is conceded so far. What is written between commits takes a third set of extents: where
 * the store has no room for one, whatever was moved there before, each step is committed. */
static int plan(struct fit *fit, struct zi_text *text)
{
	struct zi_job_config *config = &fit->options.config;
	int r = zi_plan_make(fit->model, &fit->options, &fit->plan, text);

	if (r || config->offload_optimizer != ZI_OFFLOAD_NVME || config->commit_interval <= 1 ||
	    fit->plan.reserved_nvme_bytes <= fit->nvme_bytes)
		return err_trace(r);
	config->commit_interval = 1;
	return err_trace(zi_plan_make(fit->model, &fit->options, &fit->plan, text));
}

/* Of the least staging: it depends on all else. */
static int plan_least(struct fit *fit, uint64_t *ret_staging_bytes, struct zi_text *text)
{
	int r;

	fit->options.config.staging_bytes = FIT_STAGING_BYTES;
	r = plan(fit, text);
	if (r)
		return err_trace(r);
	*ret_staging_bytes = fit->plan.staging_min_bytes;
	return 0;
}

/* With the staging that was wished, or where that is too little now, the least. */
static int plan_staged(struct fit *fit, struct zi_text *text)
{
	struct zi_job_config *config = &fit->options.config;
	uint64_t wish_bytes = config->staging_bytes, least_bytes = 0;
	uint64_t given_bytes = wish_bytes;
	int r = plan_least(fit, &least_bytes, text);

	if (r)
		return err_trace(r);
	if (!given_bytes)
		given_bytes = fit->options.default_staging_bytes;
	if (!given_bytes)
		given_bytes = ZI_PLAN_STAGING_BYTES;
	config->staging_bytes = given_bytes < least_bytes ? least_bytes : wish_bytes;
	return err_trace(plan(fit, text));
}

static int plan_in_memory(struct fit *fit, struct zi_text *text)
{
	struct zi_job_config *config = &fit->options.config;

	config->offload_optimizer = ZI_OFFLOAD_CPU;
	if (config->offload_param == ZI_OFFLOAD_NVME)
		config->offload_param = fit->wish->offload_param == ZI_OFFLOAD_NVME
		                                ? ZI_OFFLOAD_CPU
		                                : fit->wish->offload_param;
	config->param_budget_bytes = 0;
	config->resident_bytes = fit->wish->resident_bytes; /* Without effect, */
	config->staging_bytes = fit->wish->staging_bytes;
	config->commit_interval = fit->wish->commit_interval; /* all three. */
	return err_trace(plan(fit, text));
}

/* Where the store is too small for any job of this size, memory may do. */
static int concede_store(struct fit *fit, struct zi_text *text)
{
	if (fit->options.stays_on_nvme ||
	    fit->options.config.offload_optimizer != ZI_OFFLOAD_NVME ||
	    fit->plan.reserved_nvme_bytes <= fit->nvme_bytes)
		return 0;
	return err_trace(plan_in_memory(fit, text));
}

/* Less state stays in memory: by what is too much, then none. */
static int concede_resident(struct fit *fit, struct zi_text *text)
{
	struct zi_job_config *config = &fit->options.config;
	uint64_t held_bytes = ZI_MIN(fit->plan.state_cpu_bytes, config->resident_bytes);
	uint64_t excess_bytes = fit->plan.cpu_bytes - fit->cpu_bytes;
	int r;

	if (config->offload_optimizer != ZI_OFFLOAD_NVME || !config->resident_bytes ||
	    fit->plan.cpu_bytes <= fit->cpu_bytes)
		return 0;
	config->resident_bytes = held_bytes > excess_bytes ? held_bytes - excess_bytes : 0;
	r = plan_staged(fit, text);
	if (r)
		return err_trace(r);
	/* Whole subgroups are resident: no more is said than what they take. */
	config->resident_bytes = ZI_MIN(config->resident_bytes, fit->plan.state_cpu_bytes);
	if (fits(fit))
		return 0;
	config->resident_bytes = 0;
	return err_trace(plan_staged(fit, text));
}

/* The least with which a step is possible. */
static int concede_staging(struct fit *fit, struct zi_text *text)
{
	struct zi_job_config *config = &fit->options.config;
	uint64_t least_bytes = 0;
	int r;

	if (config->offload_optimizer != ZI_OFFLOAD_NVME)
		return 0;
	r = plan_least(fit, &least_bytes, text);
	if (r)
		return err_trace(r);
	config->staging_bytes = least_bytes;
	return err_trace(plan(fit, text));
}

static int concede_state(struct fit *fit, struct zi_text *text)
{
	struct zi_job_config *config = &fit->options.config;

	int r;

	if (config->offload_optimizer == ZI_OFFLOAD_NVME)
		return 0;
	config->offload_optimizer = ZI_OFFLOAD_NVME;
	config->resident_bytes = 0;
	r = plan_staged(fit, text);
	if (r || fits(fit))
		return err_trace(r);
	return err_trace(concede_staging(fit, text));
}

static int concede_param(struct fit *fit, struct zi_text *text)
{
	/* Of pools the largest that fits: the daemon's own choice, two of the largest unit, which
	 * do where a rank has one at a time, the least. */
	static const uint64_t largest_counts[] = { 0, 2, 1 };
	struct zi_job_config *config = &fit->options.config;
	uint64_t least_bytes = 0;
	int r = 0;

	config->offload_param = ZI_OFFLOAD_NVME;
	for (size_t i = 0; i < ZI_COUNT_OF(largest_counts) && !r; i++) {
		config->param_budget_bytes = 0;
		r = plan_least(fit, &least_bytes, text);
		if (r)
			break;
		config->param_budget_bytes = largest_counts[i] * fit->plan.pool_min_bytes;
		r = concede_staging(fit, text);
		if (fits(fit))
			break;
	}
	return err_trace(r);
}

/* All state of a model of few subgroups may be less than three slots of its largest one. Last, as
 * where it is not, the words are those of the least there is on NVMe. */
static int concede_nvme(struct fit *fit, struct zi_text *text)
{
	const struct fit before = *fit;
	int r;

	if (fit->options.stays_on_nvme || fit->wish->offload_optimizer != ZI_OFFLOAD_NVME)
		return 0;
	r = plan_in_memory(fit, text);
	if (!r && !fits(fit))
		*fit = before;
	return err_trace(r);
}

/* What a later concession has made room for again. */
static int give_back_staging(struct fit *fit, uint64_t wish_bytes, struct zi_text *text)
{
	struct zi_job_config *config = &fit->options.config;
	uint64_t conceded_bytes = config->staging_bytes;

	if (conceded_bytes == wish_bytes)
		return 0;
	config->staging_bytes = wish_bytes;
	if (!plan(fit, NULL) && fits(fit))
		return 0;
	config->staging_bytes = conceded_bytes;
	return err_trace(plan(fit, text));
}

/* Fields by name, so that who reads it can set them. */
static void tell(const struct zi_job_config *from, const struct zi_job_config *to,
                 struct zi_text *text)
{
	const struct {
		const char *name;
		uint32_t from, to;
	} offloads[] = {
		{ "offload_optimizer", from->offload_optimizer, to->offload_optimizer },
		{ "offload_param", from->offload_param, to->offload_param },
	};
	const struct {
		const char *name;
		uint64_t from, to;
	} budgets[] = {
		{ "commit_interval", from->commit_interval, to->commit_interval },
		{ "param_budget_bytes", from->param_budget_bytes, to->param_budget_bytes },
		{ "resident_bytes", from->resident_bytes, to->resident_bytes },
		{ "staging_bytes", from->staging_bytes, to->staging_bytes },
	};
	const char *between = " with ";

	zi_text_set(text, "it fits");
	for (size_t i = 0; i < ZI_COUNT_OF(offloads); i++) {
		if (offloads[i].from == offloads[i].to)
			continue;
		zi_text_append(text, "%s%s %s", between, offloads[i].name,
		               zi_offload_name((enum zi_offload)offloads[i].to));
		between = ", ";
	}
	for (size_t i = 0; i < ZI_COUNT_OF(budgets); i++) {
		if (budgets[i].from == budgets[i].to)
			continue;
		zi_text_append(text, "%s%s %llu", between, budgets[i].name,
		               (unsigned long long)budgets[i].to);
		between = ", ";
	}
}

static int tell_least(const struct fit *fit, struct zi_text *text)
{
	zi_text_set(text,
	            "no setting fits: with all on NVMe it takes %s of memory (there are %s) and %s "
	            "of NVMe",
	            zi_format_bytes(fit->plan.cpu_bytes).chars,
	            zi_format_bytes(fit->cpu_bytes).chars,
	            zi_format_bytes(fit->plan.reserved_nvme_bytes).chars);
	if (text && fit->nvme_bytes != UINT64_MAX)
		zi_text_append(text, " (there are %s)", zi_format_bytes(fit->nvme_bytes).chars);
	return -ENOSPC;
}

/**
 * zi_plan_fit() - the nearest configuration that fits
 * @options: what is wished
 * @cpu_bytes: that are there; @nvme_bytes: to reserve; UINT64_MAX: any
 * @ret_config: written: the wish with, in this order and as far as it takes, each step committed,
 * all in memory where the store is too small, a smaller resident share, the least staging, the
 * optimizer's state on NVMe, parameters there with a pool that fits; or else all in memory, where
 * that takes less than staging would; of what stays on NVMe nothing of the state goes to memory
 * @text: 0: what was changed, field by field; -ENOSPC: what the last of these needs. May be NULL
 *
 * Return: 0; -ENOSPC none fits; else as zi_plan_make() of the wish. Context: any thread.
 */
int zi_plan_fit(const struct zi_plan_model *model, const struct zi_plan_options *options,
                uint64_t cpu_bytes, uint64_t nvme_bytes, struct zi_job_config *ret_config,
                struct zi_text *text)
{
	static int (*const concessions[])(struct fit * fit, struct zi_text * text) = {
		concede_store, concede_resident, concede_staging,
		concede_state, concede_param,    concede_nvme,
	};
	struct fit fit = {
		.model = model,
		.wish = &options->config,
		.options = *options,
		.cpu_bytes = cpu_bytes,
		.nvme_bytes = nvme_bytes,
	};
	int r = plan(&fit, text);

	for (size_t i = 0; i < ZI_COUNT_OF(concessions) && !r && !fits(&fit); i++)
		r = concessions[i](&fit, text);
	if (r)
		return err_trace(r);
	if (!fits(&fit))
		return err_origin(tell_least(&fit, text));
	r = give_back_staging(&fit, options->config.staging_bytes, text);
	if (r)
		return err_trace(r);
	tell(&options->config, &fit.options.config, text);
	*ret_config = fit.options.config;
	return 0;
}

/**
 * zi_plan_fit_strategy() - the first other strategy with which a job fits
 * @options: what is wished, for which zi_plan_fit() found nothing
 * @cpu_bytes: that are there; @nvme_bytes: to reserve; UINT64_MAX: any
 * @ret_found: @options with another strategy, over all ranks, and the configuration that fits
 * @text: 0: what was changed beside the strategy, as of zi_plan_fit(). May be NULL
 *
 * Ranks of the strategies that are tried hold less and less: zero1, zero2, zero3.
 * Return: 0; -ENOSPC none fits. Context: any thread.
 */
int zi_plan_fit_strategy(const struct zi_plan_model *model, const struct zi_plan_options *options,
                         uint64_t cpu_bytes, uint64_t nvme_bytes, struct zi_plan_options *ret_found,
                         struct zi_text *text)
{
	const uint32_t wished = options->training.strategy;

	for (uint32_t strategy = ZI_STRATEGY_ZERO1; strategy <= ZI_STRATEGY_ZERO3; strategy++) {
		struct zi_plan_options found = *options;

		if (strategy == wished)
			continue;
		found.training.strategy = strategy;
		found.training.shard_size = 0;
		if (zi_plan_fit(model, &found, cpu_bytes, nvme_bytes, &found.config, text) ||
		    zi_check_training(&found.training, &found.config, found.world_size,
		                      found.local_ranks, NULL))
			continue;
		*ret_found = found;
		return 0;
	}
	return err_origin(-ENOSPC);
}
