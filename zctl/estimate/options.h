/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of zctl estimate. Texts point into argv. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/text.h"
#include "common/wire/plan.h"
#include "common/wire/training.h"
#include "zctl/estimate/model.h"

struct estimate_options {
	const char *source;
	const char *deepspeed; /* a file, whose values flags go before; NULL */
	const char *strategy;  /* a name as of zinf_strategy_by_name() */
	uint32_t shard_size;   /* 0: as the strategy's name says */
	uint32_t unit_count;   /* --units; 0: not given */
	uint32_t rank_count, node_count;
	uint32_t reduce_dtype;                           /* 0: the gradients' */
	uint32_t dtype, grad_dtype, optimizer, schedule; /* 0: as the model's source says */
	uint32_t offload_optimizer, offload_param;
	uint32_t commit_interval, snapshot_count, accumulation;
	uint64_t grad_budget_bytes;
	uint64_t resident_bytes, staging_bytes, param_budget_bytes;
	uint64_t tensor_bytes, arena_bytes;     /* of each rank */
	uint64_t fit_cpu_bytes, fit_nvme_bytes; /* UINT64_MAX: not given */
	const char *device; /* NULL: no GPU; "gpu", or the UUID of one of the daemon's */
	uint64_t gpu_param_budget_bytes, gpu_grad_budget_bytes; /* 0: libzinf chooses */
	uint64_t gpu_memory_bytes;                              /* 0: not given */
	bool has_small_pages;                                   /* tier.cpu.huge_pages = never */
	bool is_forward_only;
	bool is_help;
};

/* @argv: "estimate" and what follows. Return: 0; -EINVAL, or why a file of DeepSpeed's is none,
 * with the reason. */
int estimate_options_parse(struct estimate_options *options, int argc, char **argv,
                           struct zi_text *text);
void estimate_options_help(FILE *stream);
/* What is planned: what the options leave open as @model's source says, else as libzinf does. */
struct zi_plan_options estimate_options_plan(const struct estimate_options *options,
                                             const struct estimate_model *model);
/* The strategy and what belongs to it, on the ranks of @plan. Return: 0; -EINVAL, -EOPNOTSUPP with
 * words. */
int estimate_options_training(const struct estimate_options *options,
                              const struct zi_plan_options *plan,
                              struct zi_job_training *ret_training, struct zi_text *text);
