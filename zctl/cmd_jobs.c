/* SPDX-License-Identifier: Apache-2.0 */
/* zctl jobs: a line per job; with a name, all there is to know about one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "common/base/types.h"
#include "zctl/get.h"
#include "zctl/jobs.h"
#include "zctl/table.h"
#include "zctl/zctl.h"

static uint32_t attached_count(const json_t *job)
{
	uint32_t count = 0;
	size_t index;
	json_t *rank;

	json_array_foreach(json_object_get(job, "ranks"), index, rank) count +=
		json_is_true(json_object_get(rank, "is_attached"));
	return count;
}

static bool have_gpu_memory(const json_t *jobs)
{
	size_t index;
	json_t *job;

	json_array_foreach(jobs, index, job) if (get_count(job, "gpu_bytes")) return true;
	return false;
}

static void print_table(const struct zctl_context *context, const json_t *jobs)
{
	/* The last column only where a job has GPU memory. */
	const char *headings[] = { "job",   ">uid",     "phase",     "strategy",  ">ranks",
		                   ">step", ">params",  ">logical",  ">held cpu", ">held nvme",
		                   ">read", ">written", ">held gpu", NULL };
	bool has_gpus = have_gpu_memory(jobs);
	struct table *table;
	size_t index;
	json_t *job;

	if (!has_gpus)
		headings[ZI_COUNT_OF(headings) - 2] = NULL;
	table = table_new(headings);

	json_array_foreach(jobs, index, job)
	{
		table_cell(table, "%s", get_word(job, "name"));
		table_cell(table, "%" PRIu64, get_count(job, "uid"));
		table_cell(table, "%s", get_word(job, "phase"));
		table_cell(table, "%s", jobs_strategy(job));
		table_cell(table, "%u/%" PRIu64, attached_count(job), get_count(job, "world_size"));
		table_cell(table, "%s", jobs_step(job).chars);
		table_cell(table, "%.2f M", (double)get_count(job, "elements") / 1e6);
		table_cell(table, "%s", zi_format_bytes(jobs_logical_bytes(job)).chars);
		table_cell(table, "%s", zi_format_bytes(jobs_held_bytes(job, "cpu_bytes")).chars);
		table_cell(table, "%s", zi_format_bytes(jobs_held_bytes(job, "nvme_bytes")).chars);
		table_cell(table, "%s", zi_format_bytes(get_count(job, "read_bytes")).chars);
		table_cell(table, "%s", zi_format_bytes(get_count(job, "write_bytes")).chars);
		if (has_gpus)
			table_cell(table, "%s", zi_format_bytes(get_count(job, "gpu_bytes")).chars);
	}
	table_print(table, context->is_colour);
	(void)table_free(table);
	if (json_array_size(jobs))
		jobs_print_legend();
	json_array_foreach(jobs, index, job) jobs_print_flush(job, true);
}

/**
 * zctl_jobs() - jobs, their steps and what they hold
 * @context: socket and output options
 * @argc: words
 * @argv: "jobs", and optionally the name of one, with "--collectives" for its groups of ranks
 *
 * Return: exit code.
 */
int zctl_jobs(const struct zctl_context *context, int argc, char **argv)
{
	const char *name = NULL;
	char command[ZI_NAME_BYTES + 24];
	bool wants_collectives = false;
	bool is_wrong = false;
	json_t *jobs;
	int code = 0;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--collectives"))
			wants_collectives = true;
		else if (name || zi_check_name(argv[i], ZI_NAME_BYTES))
			is_wrong = true;
		else
			name = argv[i];
	}
	if (is_wrong || (wants_collectives && !name))
		return zctl_usage("jobs");
	(void)snprintf(command, sizeof command, "jobs%s%s%s", name ? " " : "", name ? name : "",
	               wants_collectives ? " collectives" : "");
	jobs = zctl_ask(context, command);
	if (!jobs)
		return 1;
	if (context->is_json)
		code = zctl_print_json(jobs);
	else if (wants_collectives && json_array_size(jobs))
		zctl_print_collectives(context, json_array_get(jobs, 0));
	else if (name && json_array_size(jobs))
		jobs_print_detail(context, json_array_get(jobs, 0));
	else
		print_table(context, jobs);
	json_decref(jobs);
	return code;
}
