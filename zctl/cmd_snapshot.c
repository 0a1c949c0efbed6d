/* SPDX-License-Identifier: Apache-2.0 */
/* zctl snapshot: keep a job's committed step, list what is kept, let go of it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "common/wire/control.h"
#include "zctl/get.h"
#include "zctl/table.h"
#include "zctl/zctl.h"

/* Of a job over several nodes: whose it is. */
static void print_nodes(const json_t *answer)
{
	uint64_t nodes = get_count(answer, "nodes");

	if (nodes < 2)
		return;
	if (get_count(answer, "kept_nodes") == nodes)
		printf("each of its %" PRIu64 " nodes has kept its part\n", nodes);
	else
		printf("this is one node's part, of %" PRIu64
		       ": its daemons do not talk now, ask each of them\n",
		       nodes);
}

/* Asks; prints the answer as JSON, or @format with its names, step and bytes. */
static int change(const struct zctl_context *context, const char *command, const char *format)
{
	/* State in memory alone is written. */
	json_t *answer = zctl_ask_long(context, command, 600);
	int code = 0;

	if (!answer)
		return 1;
	if (context->is_json)
		code = zctl_print_json(answer);
	else
		printf("%s %s/%s%s%s, step %" PRId64 ", %s\n", format, get_word(answer, "job"),
		       get_word(answer, "name"), *get_word(answer, "as") ? " as job " : "",
		       get_word(answer, "as"), get_signed(answer, "step"),
		       zi_format_bytes(get_count(answer, "held_bytes")).chars);
	if (!context->is_json)
		print_nodes(answer);
	json_decref(answer);
	return code;
}

static int create(const struct zctl_context *context, int argc, char **argv)
{
	const char *name = NULL, *keep = NULL, *job = NULL;
	char command[ZI_ADMIN_COMMAND_BYTES];

	for (int i = 0; i < argc; i++) {
		const char **value = !strcmp(argv[i], "--name")   ? &name
		                     : !strcmp(argv[i], "--keep") ? &keep
		                                                  : NULL;

		if (value && i + 1 < argc)
			*value = argv[++i];
		else if (value || job || argv[i][0] == '-')
			return zctl_usage("snapshot");
		else
			job = argv[i];
	}
	if (!job)
		return zctl_usage("snapshot");
	if (snprintf(command, sizeof command, "snapshot create %s%s%s%s%s", job, name ? "/" : "",
	             name ? name : "", keep ? " auto keep=" : "",
	             keep ? keep : "") >= (int)sizeof command)
		return zctl_usage("snapshot");
	return change(context, command, "kept");
}

/* "automatic, in use, damaged: …": what there is to say beside the figures. */
static void describe(const json_t *snapshot, char *text, size_t capacity)
{
	const char *refusal = get_word(snapshot, "refusal");
	const char *const words[] = {
		json_is_true(json_object_get(snapshot, "is_automatic")) ? "automatic" : "",
		json_is_true(json_object_get(snapshot, "is_in_use")) ? "in use" : "",
		refusal,
	};
	size_t bytes = 0;

	*text = '\0';
	for (size_t i = 0; i < ZI_COUNT_OF(words); i++)
		if (*words[i] && bytes < capacity)
			bytes += (size_t)snprintf(text + bytes, capacity - bytes, "%s%s",
			                          bytes ? ", " : "", words[i]);
}

static int list(const struct zctl_context *context, const char *job)
{
	static const char *const headings[] = { "snapshot", ">step",   ">uid", ">held",
		                                "made",     "remarks", NULL };
	char command[ZI_ADMIN_COMMAND_BYTES];
	struct table *table;
	json_t *snapshots, *snapshot;
	size_t index;
	int code = 0;

	if (snprintf(command, sizeof command, "snapshot list %s", job ? job : "") >=
	    (int)sizeof command)
		return zctl_usage("snapshot");
	snapshots = zctl_ask(context, command);
	if (!snapshots)
		return 1;
	if (context->is_json) {
		code = zctl_print_json(snapshots);
		json_decref(snapshots);
		return code;
	}
	if (job && !json_array_size(snapshots))
		printf("There is no snapshot of a job '%s'.\n", job);
	table = table_new(headings);
	json_array_foreach(snapshots, index, snapshot)
	{
		time_t made = (time_t)get_count(snapshot, "created_s");
		struct tm local;
		char when[32] = "";
		char remarks[512];

		if (localtime_r(&made, &local))
			(void)strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
		table_cell(table, "%s/%s", get_word(snapshot, "job"), get_word(snapshot, "name"));
		table_cell(table, "%" PRId64, get_signed(snapshot, "step"));
		table_cell(table, "%" PRIu64, get_count(snapshot, "uid"));
		table_cell(table, "%s", zi_format_bytes(get_count(snapshot, "held_bytes")).chars);
		table_cell(table, "%s", when);
		describe(snapshot, remarks, sizeof remarks);
		table_cell(table, "%s", remarks);
	}
	if (!job || json_array_size(snapshots))
		table_print(table, context->is_colour);
	(void)table_free(table);
	json_decref(snapshots);
	return code;
}

/**
 * zctl_snapshot() - make, list, remove snapshots, go back to one
 * @context: socket and output options
 * @argc: words
 * @argv: "snapshot", then as help.c says; of a job named "list", "rm" or "restore" by "create JOB"
 *
 * Return: exit code.
 */
int zctl_snapshot(const struct zctl_context *context, int argc, char **argv)
{
	char command[ZI_ADMIN_COMMAND_BYTES];
	const char *as = NULL;
	bool is_restore;

	if (argc < 2)
		return zctl_usage("snapshot");
	if (!strcmp(argv[1], "list"))
		return argc > 3 ? zctl_usage("snapshot")
		                : list(context, argc == 3 ? argv[2] : NULL);
	if (!strcmp(argv[1], "create"))
		return create(context, argc - 2, argv + 2);
	is_restore = !strcmp(argv[1], "restore");
	if (strcmp(argv[1], "rm") != 0 && !is_restore)
		return create(context, argc - 1, argv + 1);
	if (is_restore && argc == 5 && !strcmp(argv[3], "--as"))
		as = argv[4];
	else if (argc != 3)
		return zctl_usage("snapshot");
	if (!strchr(argv[2], '/')) {
		zctl_complain("'%s' names no snapshot; each is JOB/NAME: zctl snapshot list",
		              argv[2]);
		return 2;
	}
	if (snprintf(command, sizeof command, "snapshot %s %s%s%s", argv[1], argv[2],
	             as ? " as=" : "", as ? as : "") >= (int)sizeof command)
		return zctl_usage("snapshot");
	return change(context, command, is_restore ? "restored" : "removed");
}
