/* SPDX-License-Identifier: Apache-2.0 */
/* What is decided before a rank is started, and stays over restarts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "zctl/launch/logs.h"
#include "zctl/launch/options.h"
#include "zctl/launch/place.h"

#define LAUNCH_START_BYTES 32u

struct launch_plan {
	const struct launch_options *options;
	const char *master_addr;
	uint32_t master_port;
	char start[LAUNCH_START_BYTES]; /* of this run, never used before */
	const char *run_id;
	bool is_omp_one;              /* OMP_NUM_THREADS was not set and there are several ranks */
	struct launch_places *places; /* NULL: unbound */
	struct launch_logs logs;
	char **command; /* the program's words and the interpreter's, ended by NULL */
};

/* Return: 0; -errno with the reason. @options must stay. */
int launch_plan_make(struct launch_plan *plan, const struct launch_options *options,
                     struct zi_text *text);
void launch_plan_free(struct launch_plan *plan);

/* The variables that a rank gets in addition to ours. @attempt: counts restarts, from 0. */
typedef void (*launch_variable_fn)(void *arg, const char *name, const char *value);
void launch_plan_variables(const struct launch_plan *plan, uint32_t rank, uint32_t attempt,
                           launch_variable_fn each, void *arg);
