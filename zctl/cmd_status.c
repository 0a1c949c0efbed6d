/* SPDX-License-Identifier: Apache-2.0 */
/* zctl status and zctl limits: the daemon itself. */
#include <inttypes.h>
#include <stdio.h>

#include "common/base/text.h"
#include "zctl/get.h"
#include "zctl/table.h"
#include "zctl/zctl.h"

/* Only where there is something to say: most nodes have none, and want none. */
static void print_gpus(const json_t *status)
{
	uint64_t count = get_count(status, "gpus");

	if (count)
		printf("GPUs      %" PRIu64 "%s%s\n", count,
		       *get_word(status, "gpus_missing") ? "; " : "",
		       get_word(status, "gpus_missing"));
}

static void print_status(const json_t *status)
{
	uint64_t uptime_s = get_count(status, "uptime_s");
	size_t index;
	json_t *thread;

	printf("zinfd %s, pid %" PRIu64 ", uid %" PRIu64 ", up %" PRIu64 ":%02" PRIu64 ":%02" PRIu64
	       "%s\n",
	       get_word(status, "version"), get_count(status, "pid"), get_count(status, "uid"),
	       uptime_s / 3600, uptime_s / 60 % 60, uptime_s % 60,
	       json_is_true(json_object_get(status, "is_stopping")) ? ", stopping" : "");
	printf("socket    %s\nstate     %s\n", get_word(status, "socket"),
	       get_word(status, "state_dir"));
	printf("protocol  %s\nengine    %s\nkernels   %s\n", get_word(status, "protocol"),
	       get_word(status, "engine"), get_word(status, "isa"));
	printf("sessions  %" PRIu64 " of %" PRIu64 "\njobs      %" PRIu64 " of %" PRIu64 "\n",
	       get_count(status, "sessions"), get_count(status, "sessions_max"),
	       get_count(status, "jobs"), get_count(status, "jobs_max"));
	print_gpus(status);
	printf("requests  %" PRIu64 ", wake-ups %" PRIu64 ", spinning %" PRIu64 " us\n",
	       get_count(status, "requests"), get_count(status, "wakeups"),
	       get_count(status, "spin_us"));
	printf("threads  ");
	json_array_foreach(json_object_get(status, "threads"), index, thread)
		printf(" %s (%.2f s)", get_word(thread, "name"),
	               (double)get_count(thread, "cpu_ns") / 1e9);
	putchar('\n');
}

/**
 * zctl_status() - the daemon: version, threads, sessions, engine
 * @context: socket and output options
 * @argc: words
 * @argv: "status"
 *
 * Return: exit code.
 */
int zctl_status(const struct zctl_context *context, int argc, char **argv)
{
	json_t *status;
	int code = 0;

	(void)argv;
	if (argc > 1)
		return zctl_usage("status");
	status = zctl_ask(context, "status");
	if (!status)
		return 1;
	if (context->is_json)
		code = zctl_print_json(status);
	else
		print_status(status);
	json_decref(status);
	return code;
}

/**
 * zctl_limits() - every limit, its value, its use, and the key that sets it
 * @context: socket and output options
 * @argc: words
 * @argv: "limits"
 *
 * Return: exit code.
 */
int zctl_limits(const struct zctl_context *context, int argc, char **argv)
{
	static const char *const headings[] = { "limit", ">value", ">used", ">uid", "key", NULL };
	struct table *table;
	json_t *limits, *limit;
	size_t index;
	int code = 0;

	(void)argv;
	if (argc > 1)
		return zctl_usage("limits");
	limits = zctl_ask(context, "limits");
	if (!limits)
		return 1;
	if (context->is_json) {
		code = zctl_print_json(limits);
	} else {
		table = table_new(headings);
		json_array_foreach(limits, index, limit)
		{
			table_cell(table, "%s", get_word(limit, "name"));
			if (get_count(limit, "value") == INT64_MAX) /* JSON's largest: no limit */
				table_cell(table, "none");
			else
				table_cell(table, "%" PRIu64, get_count(limit, "value"));
			if (json_is_integer(json_object_get(limit, "used")))
				table_cell(table, "%" PRIu64, get_count(limit, "used"));
			else
				table_cell(table, "-");
			if (json_is_integer(json_object_get(limit, "uid")))
				table_cell(table, "%" PRIu64, get_count(limit, "uid"));
			else
				table_cell(table, "-");
			table_cell(table, "%s", get_word(limit, "key"));
		}
		table_print(table, context->is_colour);
		(void)table_free(table);
	}
	json_decref(limits);
	return code;
}
