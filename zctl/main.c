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
#include "common/base/console.h"
#include "common/wire/control.h"
#include "zctl/zctl.h"

struct command {
	const char *name;
	const char *summary;
	zctl_command_fn run;
	bool has_options; /* of its own */
};

static const struct command commands[] = {
	{ "status", "the daemon: version, threads, sessions, engine", zctl_status, false },
	{ "tiers", "capacity and use of each tier of memory, bytes moved", zctl_tiers, false },
	{ "jobs", "jobs, their steps and what they hold; one job in detail", zctl_jobs, true },
	{ "delete", "deletes a job that nobody uses; its snapshots stay", zctl_delete, true },
	{ "limits", "every limit, its value and its use", zctl_limits, false },
	{ "bench", "measures stores; zinfd uses what was fastest", zctl_bench, false },
	{ "drain", "takes a path of a store out of use, moves its data", zctl_drain, false },
	{ "undrain", "uses a path again, also one that had failed", zctl_drain, false },
	{ "snapshot", "keeps a committed step; lists, removes, restores", zctl_snapshot, true },
	{ "export", "writes parameters, or all state, of a step into files", zctl_export, true },
	{ "load", "makes a snapshot of what export wrote", zctl_load, true },
	{ "estimate", "what a job would hold in each tier, before it exists", zctl_estimate, true },
	{ "launch", "starts the ranks of a program on this node", zctl_launch, true },
	{ "topo", "NUMA nodes, GPUs, disks, and what hangs on what", zctl_topo, false },
	{ "doctor", "what this machine offers zinf, and what is missing", zctl_doctor, false },
};

static int usage(FILE *stream, int code)
{
	fprintf(stream, "usage: zctl [--socket PATH] [--json] COMMAND [WORDS]\n"
	                "       zctl help [COMMAND]\n\n");
	for (size_t i = 0; i < ZI_COUNT_OF(commands); i++)
		fprintf(stream, "  %-8s  %s\n", commands[i].name, commands[i].summary);
	fprintf(stream,
	        "\n"
	        "  --socket PATH  the daemon's socket (else $ZINF_SOCKET, else the user's,\n"
	        "                 else /run/zinf/zinfd.sock)\n"
	        "  --json         for programs\n"
	        "  --help         with a COMMAND: its words and options\n"
	        "  --version\n"
	        "\n"
	        "example: zctl jobs --help\n");
	return code;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < ZI_COUNT_OF(commands); i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

/* Options may stand before or after the command; what is left are the command's words.
 * @ret_wants_help: --help was among them. */
static int parse(struct zctl_context *context, int argc, char **argv, int *ret_count,
                 bool *ret_wants_help)
{
	int count = 0, i;

	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json")) {
			context->is_json = true;
		} else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			*ret_wants_help = true;
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

/* @argc, @argv: the words without options. */
static int help(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[0], "help")) {
		argv++;
		argc--;
	}
	if (!argc || !strcmp(argv[0], "help"))
		return usage(stdout, 0);
	if (!find_command(argv[0])) {
		zctl_complain("unknown command '%s'", argv[0]);
		return usage(stderr, 2);
	}
	zctl_help(argv[0]);
	return 0;
}

static int run(struct zctl_context *context, int argc, char **argv)
{
	static char default_path[108]; /* sun_path */
	const struct command *command;
	bool wants_help = false;
	int count = 0;
	int r;

	if (argc == 2 && !strcmp(argv[1], "--version")) {
		puts("zctl " ZINF_VERSION);
		return 0;
	}
	r = parse(context, argc, argv, &count, &wants_help);
	if (r)
		return r;
	if (wants_help || (count && !strcmp(argv[0], "help")))
		return help(count, argv);
	if (!count)
		return usage(stderr, 2);
	command = find_command(argv[0]);
	if (!command) {
		zctl_complain("unknown command '%s'", argv[0]);
		return usage(stderr, 2);
	}
	if (!context->socket_path) {
		r = zi_control_default_path(default_path, sizeof default_path);
		if (r) {
			zctl_complain("the default socket path is too long: %s", strerror(-r));
			return 1;
		}
		context->socket_path = default_path;
	}
	return command->run(context, count, argv);
}

/* An answer that was not written is no success. Return: the exit code. */
static int end_output(int code)
{
	int r = zi_console_flush();

	if (!r)
		return code;
	if (r < 0)
		zctl_complain("writing to standard output failed: %s", strerror(-r));
	return code ? code : 1;
}

int main(int argc, char **argv)
{
	struct zctl_context context = {
		.is_colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR"),
	};

	zi_console_open();
	return end_output(run(&context, argc, argv));
}
