/* SPDX-License-Identifier: Apache-2.0 */
/* What zctl estimate answers: tables for people, JSON with the keys of `jobs` for programs. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "common/wire/plan.h"
#include "zctl/estimate/gpu.h"
#include "zctl/estimate/logical.h"
#include "zctl/estimate/model.h"
#include "zctl/estimate/options.h"

/* The nearest setting that holds what there is. */
struct estimate_fit {
	bool is_wanted; /* --fit */
	bool is_found;  /* else @text says what the least would need */
	struct zi_job_config config;
	uint32_t strategy;   /* with it: enum zi_strategy */
	struct zi_plan plan; /* of it */
	struct zi_text text;
};

struct estimate {
	const struct estimate_options *options;
	const struct estimate_model *model;
	struct zi_plan_options wish;
	struct zi_plan plan;             /* of the wish */
	struct estimate_logical logical; /* as well */
	struct estimate_fit fit;
	struct estimate_gpu gpu;
};

void estimate_show(const struct estimate *estimate, bool is_colour);
/* The caller's. */
json_t *estimate_answer(const struct estimate *estimate);
