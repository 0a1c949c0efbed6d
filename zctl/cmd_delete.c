/* SPDX-License-Identifier: Apache-2.0 */
/* zctl delete: ends a job that nobody uses. What goes is shown, and asked for on a terminal. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/text.h"
#include "common/wire/control.h"
#include "zctl/get.h"
#include "zctl/zctl.h"

/* Of all planes of `held`. */
static uint64_t held_bytes(const json_t *job, const char *key)
{
	const char *name;
	json_t *plane;
	uint64_t bytes = 0;

	json_object_foreach(json_object_get(job, "held"), name, plane) bytes +=
		get_count(plane, key);
	return bytes;
}

/* What is about to go; and what does not. */
static void describe(const json_t *job)
{
	uint64_t nodes = get_count(job, "nodes");

	printf("job %s of uid %" PRIu64 ", %s", get_word(job, "name"), get_count(job, "uid"),
	       get_word(job, "phase"));
	if (get_signed(job, "committed_step") >= 0)
		printf(" at step %" PRId64, get_signed(job, "committed_step"));
	printf(": %" PRIu64 " parameters, %s on NVMe, %s in memory; its snapshots stay\n",
	       get_count(job, "elements"), zi_format_bytes(held_bytes(job, "nvme_bytes")).chars,
	       zi_format_bytes(held_bytes(job, "cpu_bytes")).chars);
	if (nodes > 1)
		printf("this is node %" PRIu64 " of %" PRIu64
		       ": the others keep their part until it is deleted there as well\n",
		       get_count(job, "node"), nodes);
}

/* Anything but a clear yes is none. */
static bool is_confirmed(const char *job)
{
	char answer[8] = "";

	printf("Delete job %s and all its state? [y/N] ", job);
	fflush(stdout);
	if (!fgets(answer, sizeof answer, stdin))
		return false;
	return !strcmp(answer, "y\n") || !strcmp(answer, "yes\n");
}

/* Return: 0; an exit code, and why is said. */
static int confirm(const struct zctl_context *context, const char *name)
{
	char command[ZI_ADMIN_COMMAND_BYTES];
	json_t *jobs;
	bool is_sure;

	if (context->is_json || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		zctl_complain("deletion is final, and there is no terminal to ask for consent: "
		              "zctl delete %s --yes",
		              name);
		return 2;
	}
	if (snprintf(command, sizeof command, "jobs %s", name) >= (int)sizeof command)
		return zctl_usage("delete");
	jobs = zctl_ask(context, command);
	if (!jobs)
		return 1;
	describe(json_array_get(jobs, 0));
	json_decref(jobs);
	is_sure = is_confirmed(name);
	if (!is_sure)
		printf("nothing was deleted\n");
	return is_sure ? 0 : 1;
}

/**
 * zctl_delete() - end a job with all its state
 * @context: socket and output options
 * @argc: words
 * @argv: "delete", the job, and perhaps --yes
 *
 * Return: exit code.
 */
int zctl_delete(const struct zctl_context *context, int argc, char **argv)
{
	char command[ZI_ADMIN_COMMAND_BYTES];
	const char *job = NULL;
	bool is_sure = false;
	json_t *answer;
	int code = 0;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--yes"))
			is_sure = true;
		else if (job || argv[i][0] == '-')
			return zctl_usage("delete");
		else
			job = argv[i];
	}
	if (!job)
		return zctl_usage("delete");
	if (strchr(job, '/')) {
		zctl_complain("'%s' names a snapshot: zctl snapshot rm %s", job, job);
		return 2;
	}
	code = is_sure ? 0 : confirm(context, job);
	if (code)
		return code;
	if (snprintf(command, sizeof command, "delete %s", job) >= (int)sizeof command)
		return zctl_usage("delete");
	answer = zctl_ask_long(context, command, 60);
	if (!answer)
		return 1;
	if (context->is_json)
		code = zctl_print_json(answer);
	else if (json_is_true(json_object_get(answer, "is_space_kept")))
		printf("deleted job %s: what it has on NVMe is free when zinfd starts again\n",
		       get_word(answer, "job"));
	else
		printf("deleted job %s, step %" PRId64 ": %s are free\n", get_word(answer, "job"),
		       get_signed(answer, "step"),
		       zi_format_bytes(get_count(answer, "freed_bytes")).chars);
	json_decref(answer);
	return code;
}
