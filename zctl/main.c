/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zctl: options, then a command of its own file (zctl.h). Unknown words are answered with what is
 * allowed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/wire/control.h"
#include "zctl/zctl.h"

struct command {
	const char *name;
	const char *arguments;
	const char *summary;
	zctl_command_fn run;
	bool has_options; /* of its own */
};

static const struct command commands[] = {
	{ "status", "", "the daemon: version, threads, sessions, engine", zctl_status, false },
	{ "tiers", "", "capacity and use of each tier of memory, bytes moved", zctl_tiers, false },
	{ "jobs", "[JOB [--collectives]]",
	  "jobs, their steps and what they hold; one job in detail, who waits for whom", zctl_jobs,
	  true },
	{ "delete", "JOB [--yes]",
	  "ends a job that nobody uses, with all its state; snapshots stay", zctl_delete, true },
	{ "limits", "", "every limit, its value and its use", zctl_limits, false },
	{ "bench", "nvme [NAME]",
	  "measures a store (all without NAME); zinfd works with what was found", zctl_bench,
	  false },
	{ "drain", "nvme:NAME", "nothing new goes to this path, what is there moves to the others",
	  zctl_drain, false },
	{ "undrain", "nvme:NAME", "the path is used again, also one that had failed", zctl_drain,
	  false },
	{ "snapshot", "JOB|list|rm|restore", "keeps a committed step; lists, removes, goes back",
	  zctl_snapshot, true },
	{ "export", "JOB[/NAME] TARGET", "a step's parameters, or everything, into files",
	  zctl_export, true },
	{ "load", "TARGET JOB[/NAME]", "a snapshot from what export wrote, for a job to begin with",
	  zctl_load, true },
	{ "estimate", "SOURCE", "what a job would hold in each tier, before it exists (--help)",
	  zctl_estimate, true },
	{ "launch", "[OPTIONS] PROGRAM", "starts the ranks of a program on this node (--help)",
	  zctl_launch, true },
	{ "doctor", "[DIRECTORY]", "what this machine offers zinf, and what to do about the rest",
	  zctl_doctor, false },
};

static int usage(FILE *stream, int code)
{
	fprintf(stream, "usage: zctl [--socket PATH] [--json] COMMAND\n\n");
	for (size_t i = 0; i < ZI_COUNT_OF(commands); i++)
		fprintf(stream, "  %-8s %-20s  %s\n", commands[i].name, commands[i].arguments,
		        commands[i].summary);
	fprintf(stream,
	        "\n  --socket PATH  the daemon's socket (else $ZINF_SOCKET, else the user's, "
	        "else /run/zinf/zinfd.sock)\n"
	        "  --json         for programs\n"
	        "  --seconds N    of bench: how long a store is measured (3)\n"
	        "  --version\n");
	return code;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < ZI_COUNT_OF(commands); i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

/* Options may stand before or after the command; what is left are the command's words. */
static int parse(struct zctl_context *context, int argc, char **argv, int *ret_count)
{
	int count = 0, i;

	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json")) {
			context->is_json = true;
		} else if (!strcmp(argv[i], "--socket")) {
			if (i + 1 == argc) {
				zctl_complain("--socket needs a path");
				return 2;
			}
			context->socket_path = argv[++i];
			context->is_socket_named = true;
		} else if (!strcmp(argv[i], "--seconds")) {
			char *end = NULL;

			if (i + 1 < argc)
				context->seconds = (unsigned)strtoul(argv[++i], &end, 10);
			if (!end || *end || !context->seconds ||
			    context->seconds > ZCTL_SECONDS_MAX) {
				zctl_complain("--seconds needs a number from 1 to %u",
				              ZCTL_SECONDS_MAX);
				return 2;
			}
		} else if (!strncmp(argv[i], "--", 2) && !(count && find_command(argv[0]) &&
		                                           find_command(argv[0])->has_options)) {
			zctl_complain("unknown option '%s'", argv[i]);
			return usage(stderr, 2);
		} else {
			argv[count++] = argv[i];
			if (count == 1 && !strcmp(argv[0], "launch"))
				break; /* What follows is its own, and another program's. */
		}
	}
	for (; i + 1 < argc; i++)
		argv[count++] = argv[i + 1];
	argv[count] = NULL;
	*ret_count = count;
	return 0;
}

int main(int argc, char **argv)
{
	static char default_path[108]; /* sun_path */
	struct zctl_context context = {
		.is_colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR"),
	};
	const struct command *command;
	int count = 0;
	int r;

	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
		return usage(stdout, 0);
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		puts("zctl " ZINF_VERSION);
		return 0;
	}
	r = parse(&context, argc, argv, &count);
	if (r)
		return r;
	if (!count)
		return usage(stderr, 2);
	command = find_command(argv[0]);
	if (!command) {
		zctl_complain("unknown command '%s'", argv[0]);
		return usage(stderr, 2);
	}
	if (!context.socket_path) {
		r = zi_control_default_path(default_path, sizeof default_path);
		if (r) {
			zctl_complain("the default socket path is too long: %s", strerror(-r));
			return 1;
		}
		context.socket_path = default_path;
	}
	return command->run(&context, count, argv);
}
