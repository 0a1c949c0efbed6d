/* SPDX-License-Identifier: Apache-2.0 */
/* From options to what ranks are started with (plan.h). */
#include "zctl/launch/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/err.h"
#include "zctl/launch/port.h"

#define ADDRESS_DEFAULT "127.0.0.1"

static bool ends_in(const char *text, const char *end)
{
	size_t bytes = strlen(text), end_bytes = strlen(end);

	return bytes > end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

/* Python's output is not held back (-u), as with torchrun; $PYTHON_EXEC is its, too. */
static int make_command(struct launch_plan *plan)
{
	const struct launch_options *options = plan->options;
	const char *python = getenv("PYTHON_EXEC");
	size_t count = 0, at = 0;

	while (options->program[count])
		count++;
	plan->command = calloc(count + 4, sizeof(*plan->command));
	if (!plan->command)
		return err_origin(-ENOMEM);
	if (options->is_module || (!options->is_direct && ends_in(options->program[0], ".py"))) {
		plan->command[at++] = (char *)(python && *python ? python : "python3");
		plan->command[at++] = (char *)"-u";
		if (options->is_module)
			plan->command[at++] = (char *)"-m";
	}
	memcpy(plan->command + at, options->program, count * sizeof(*plan->command));
	return 0;
}

static int make_name(struct launch_plan *plan)
{
	uint64_t chance;

	if (getrandom(&chance, sizeof(chance), 0) != sizeof(chance))
		return err_origin(-EIO);
	(void)snprintf(plan->start, sizeof(plan->start), "zctl-%016" PRIx64, chance); /* Fits. */
	plan->run_id = plan->options->run_id ? plan->options->run_id : plan->start;
	return 0;
}

/* See plan.h. */
int launch_plan_make(struct launch_plan *plan, const struct launch_options *options,
                     struct zi_text *text)
{
	int r;

	*plan = (struct launch_plan){
		.options = options,
		.master_addr = options->master_addr  ? options->master_addr
		               : options->local_addr ? options->local_addr
		                                     : ADDRESS_DEFAULT,
		.is_omp_one = options->rank_count > 1 && !getenv("OMP_NUM_THREADS"),
	};
	r = make_name(plan);
	if (!r)
		r = make_command(plan);
	if (r)
		return zi_text_error(text, r, "preparing the start failed: %s", strerror(-r));
	r = launch_port_choose(plan->master_addr, options->is_standalone ? 0 : options->master_port,
	                       options->is_port_named, &plan->master_port, text);
	if (!r)
		r = launch_places_new(options->binding, options->rank_count, text, &plan->places);
	if (!r && !options->is_dry_run)
		r = launch_logs_open(&plan->logs, options, plan->run_id, plan->start, text);
	return err_trace(r);
}

/* Also half made. */
void launch_plan_free(struct launch_plan *plan)
{
	launch_logs_close(&plan->logs);
	plan->places = launch_places_free(plan->places);
	free(plan->command);
	plan->command = NULL;
}

/* What a launcher of several nodes would say of the only one is 0 of 1. */
void launch_plan_variables(const struct launch_plan *plan, uint32_t rank, uint32_t attempt,
                           launch_variable_fn each, void *arg)
{
	const struct launch_options *options = plan->options;
	char path[PATH_MAX], own[16], count[16], text[64];

	(void)snprintf(own, sizeof(own), "%u", rank); /* Fits, as all below. */
	(void)snprintf(count, sizeof(count), "%u", options->rank_count);
	each(arg, "RANK", own);
	each(arg, "LOCAL_RANK", own);
	each(arg, "WORLD_SIZE", count);
	each(arg, "LOCAL_WORLD_SIZE", count);
	each(arg, "GROUP_RANK", "0");
	each(arg, "GROUP_WORLD_SIZE", "1");
	each(arg, "ROLE_RANK", own);
	each(arg, "ROLE_WORLD_SIZE", count);
	each(arg, "ROLE_NAME", options->role);
	each(arg, "MASTER_ADDR", plan->master_addr);
	(void)snprintf(text, sizeof(text), "%u", plan->master_port);
	each(arg, "MASTER_PORT", text);
	(void)snprintf(text, sizeof(text), "%u", attempt);
	each(arg, "TORCHELASTIC_RESTART_COUNT", text);
	(void)snprintf(text, sizeof(text), "%u", options->restart_max);
	each(arg, "TORCHELASTIC_MAX_RESTARTS", text);
	each(arg, "TORCHELASTIC_RUN_ID", plan->run_id);
	/* MASTER_PORT is rank 0's to listen on: no agent of ours keeps a store there. */
	each(arg, "TORCHELASTIC_USE_AGENT_STORE", "False");
	if (*launch_logs_path(&plan->logs, attempt, rank, "error.json", path))
		each(arg, "TORCHELASTIC_ERROR_FILE", path);
	if (plan->is_omp_one)
		each(arg, "OMP_NUM_THREADS", "1");
	(void)snprintf(text, sizeof(text), "%s.%u", plan->start, attempt);
	each(arg, "ZINF_INCARNATION", text);
	(void)snprintf(text, sizeof(text), "%u", plan->master_port + 1);
	if (!getenv("ZINF_PORT"))
		each(arg, "ZINF_PORT", text);
	if (options->job)
		each(arg, "ZINF_JOB", options->job);
	if (options->socket_path)
		each(arg, "ZINF_SOCKET", options->socket_path);
}
