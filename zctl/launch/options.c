/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of zctl launch: a table of options, and one walk over it. As with torchrun an
 * option may be written with '-' or '_' between its words, and its default comes from $PET_NAME.
 */
#include "zctl/launch/options.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/nearest.h"
#include "common/base/types.h"
#include "zctl/launch/values.h"

enum option_kind {
	KIND_RANKS, /* number, auto, cpu */
	KIND_COUNT, /* up to ->most */
	KIND_PORT,  /* and that it was named */
	KIND_SECONDS,
	KIND_TEXT,
	KIND_STDS,
	KIND_FILTER,
	KIND_SIGNALS,
	KIND_BINDING,
	KIND_STDIN,
	KIND_NODES,   /* one is all there is */
	KIND_FIRST,   /* 0 is all there is */
	KIND_NOTHING, /* has a value and means nothing on one node */
	KIND_SILENT,  /* as above, and it need not be said */
	KIND_FLAG,
	KIND_HELP,
};

struct option {
	const char *name;
	char letter; /* -x; 0: none */
	enum option_kind kind;
	size_t offset;
	uint32_t most;
	const char *value; /* word for it; NULL: a flag */
	const char
		*help; /* lines after the first are indented by whoever prints; NULL: not listed */
};

#define AT(field)    offsetof(struct launch_options, field)
#define PORT_DEFAULT 29500u

static const struct option table[] = {
	{ "nproc-per-node", 0, KIND_RANKS, AT(rank_count), 0, "N",
	  "ranks: a number, auto or cpu (1)" },
	{ "nnodes", 0, KIND_NODES, 0, 0, "1", "1 or 1:1" },
	{ "max-restarts", 0, KIND_COUNT, AT(restart_max), 1000000, "N",
	  "restarts of all ranks when one fails (0)" },
	{ "grace", 0, KIND_SECONDS, AT(grace_s), 0, "SECONDS",
	  "time between SIGTERM and SIGKILL (30)" },
	{ "standalone", 0, KIND_FLAG, AT(is_standalone), 0, NULL, "MASTER_PORT is any free port" },
	{ "master-addr", 0, KIND_TEXT, AT(master_addr), 0, "ADDRESS", "MASTER_ADDR (127.0.0.1)" },
	{ "master-port", 0, KIND_PORT, AT(master_port), 65534, "PORT",
	  "MASTER_PORT; 0: any free port (29500)" },
	{ "local-addr", 0, KIND_TEXT, AT(local_addr), 0, "ADDRESS",
	  "the same as --master-addr here" },
	{ "module", 'm', KIND_FLAG, AT(is_module), 0, NULL, "PROGRAM is a Python module" },
	{ "no-python", 0, KIND_FLAG, AT(is_direct), 0, NULL,
	  "start PROGRAM itself, whatever its name ends in" },
	{ "run-path", 0, KIND_SILENT, 0, 0, NULL, NULL },
	{ "role", 0, KIND_TEXT, AT(role), 0, "NAME", "ROLE_NAME (default)" },
	{ "log-dir", 0, KIND_TEXT, AT(log_directory), 0, "DIRECTORY",
	  "log files below DIRECTORY/ID/attempt_N/RANK" },
	{ "redirects", 'r', KIND_STDS, AT(redirects), 0, "N|RANK:N,...",
	  "write to log files: 1 stdout, 2 stderr, 3 both\n"
	  "                                 (0)" },
	{ "tee", 't', KIND_STDS, AT(tees), 0, "N|RANK:N,...", "write to log files, and show (0)" },
	{ "local-ranks-filter", 0, KIND_FILTER, AT(is_shown), 0, "RANK,...",
	  "show only the output of these ranks" },
	{ "signals-to-handle", 0, KIND_SIGNALS, AT(signals), 0, "NAME,...",
	  "signals that end all ranks\n"
	  "                                 (SIGTERM,SIGINT,SIGHUP,SIGQUIT)" },
	{ "numa-binding", 0, KIND_BINDING, AT(binding), 0, "HOW",
	  "node, none, or auto: node if there are several\n"
	  "                                 NUMA nodes (auto)" },
	{ "stdin", 0, KIND_STDIN, AT(is_without_stdin), 0, "WHO",
	  "0 (rank 0 reads it) or none (0; none where it\n"
	  "                                 is a terminal)" },
	{ "job", 0, KIND_TEXT, AT(job), 0, "NAME", "ZINF_JOB: the job to which the ranks belong" },
	{ "socket", 0, KIND_TEXT, AT(socket_path), 0, "PATH", "ZINF_SOCKET: where zinfd listens" },
	{ "dry-run", 0, KIND_FLAG, AT(is_dry_run), 0, NULL,
	  "show command, variables and CPUs of each rank" },
	{ "help", 'h', KIND_HELP, AT(is_help), 0, NULL, "" },
	{ "rdzv-id", 0, KIND_TEXT, AT(run_id), 0, "NAME", "TORCHELASTIC_RUN_ID (a new name)" },
	{ "rdzv-backend", 0, KIND_NOTHING, 0, 0, "NAME", NULL },
	{ "rdzv-endpoint", 0, KIND_NOTHING, 0, 0, "ADDRESS", NULL },
	{ "rdzv-conf", 0, KIND_NOTHING, 0, 0, "KEY=VALUE,...", NULL },
	{ "node-rank", 0, KIND_FIRST, 0, 0, "0", NULL },
	{ "monitor-interval", 0, KIND_SILENT, 0, 0, "SECONDS", NULL },
	{ "start-method", 0, KIND_SILENT, 0, 0, "NAME", NULL },
};

static const struct launch_options defaults = {
	.rank_count = 1,
	.grace_s = 30,
	.master_port = PORT_DEFAULT,
	.role = "default",
	.signals = { SIGTERM, SIGINT, SIGHUP, SIGQUIT },
};

/* @name: ends at '=' or its NUL; '_' is as good as '-'. */
static bool is_named(const struct option *option, const char *name, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (option->name[i] != (name[i] == '_' ? '-' : name[i]))
			return false; /* Also at the end of option->name. */
	return option->name[bytes] == '\0';
}

static const struct option *find_option(const char *name, size_t bytes)
{
	for (size_t i = 0; i < ZI_COUNT_OF(table); i++)
		if (is_named(&table[i], name, bytes))
			return &table[i];
	return NULL;
}

/* The first whose name goes on after what was given, else the nearest. Return: -EINVAL. */
static int refuse_option(const char *name, size_t bytes, struct zi_text *text)
{
	char wanted[ZI_NEAREST_BYTES + 2]; /* One more: what is longer stays too long. */
	struct zi_nearest nearest = { .wanted = wanted };
	const char *near = NULL;

	(void)snprintf(wanted, sizeof(wanted), "%.*s", (int)bytes, name);
	for (size_t i = 0; i < ZI_COUNT_OF(table) && !near; i++) {
		zi_nearest_offer(&nearest, table[i].name);
		if (bytes && strlen(table[i].name) > bytes &&
		    strncmp(table[i].name, name, bytes) == 0)
			near = table[i].name;
	}
	near = near ? near : zi_nearest_name(&nearest);
	if (near)
		return zi_text_error(text, -EINVAL,
		                     "--%s is unknown; did you mean --%s? (zctl launch --help)",
		                     name, near);
	return zi_text_error(text, -EINVAL, "--%s is unknown (zctl launch --help)", name);
}

static int set_binding(const char *name, const char *value, enum launch_binding *ret_binding,
                       struct zi_text *text)
{
	if (strcmp(value, "node") == 0)
		*ret_binding = LAUNCH_BINDING_NODE;
	else if (strcmp(value, "none") == 0)
		*ret_binding = LAUNCH_BINDING_NONE;
	else if (strcmp(value, "auto") == 0)
		*ret_binding = LAUNCH_BINDING_AUTO;
	else
		return zi_text_error(text, -EINVAL, "%s %s: allowed are node, none, auto", name,
		                     value);
	return 0;
}

static int refuse_nodes(const char *name, const char *value, struct zi_text *text)
{
	return zi_text_error(text, -EINVAL,
	                     "%s %s: zctl launch starts the ranks of one node. For several use "
	                     "torchrun, srun or mpirun: libzinf understands their variables",
	                     name, value);
}

/* The highest rank of a list: how many there are is known when all options are. */
static void note_named(struct launch_options *options, const struct option *option, bool is_named,
                       uint32_t rank)
{
	if (!is_named || (options->named_by && options->named_rank >= rank))
		return;
	options->named_rank = rank;
	options->named_by = option->name;
}

/* @name: as it is to be told, "--tee" or "$PET_TEE". */
static int set_list(struct launch_options *options, const struct option *option, const char *name,
                    const char *value, struct zi_text *text)
{
	const uint8_t *stds = (uint8_t *)options + option->offset;
	int r;

	if (option->kind == KIND_FILTER)
		r = launch_value_filter(name, value, options->is_shown, text);
	else
		r = launch_value_stds(name, value, (uint8_t *)options + option->offset, text);
	if (r)
		return err_trace(r);
	for (uint32_t rank = 0; rank < LAUNCH_RANKS_MAX; rank++)
		note_named(options, option,
		           option->kind == KIND_FILTER ? options->is_shown[rank]
		                                       : strchr(value, ':') && stds[rank],
		           rank);
	return 0;
}

/* @name: as it is to be told, "--tee" or "$PET_TEE". */
static int set_value(struct launch_options *options, const struct option *option, const char *name,
                     const char *value, struct zi_text *text)
{
	void *field = (char *)options + option->offset;

	switch (option->kind) {
	case KIND_RANKS:
		return launch_value_ranks(name, value, field, &options->is_rank_count_cut, text);
	case KIND_PORT:
		options->is_port_named = true;
		return launch_value_count(name, value, 0, option->most, field, text);
	case KIND_COUNT:
		return launch_value_count(name, value, 0, option->most, field, text);
	case KIND_SECONDS:
		return launch_value_seconds(name, value, field, text);
	case KIND_STDS:
	case KIND_FILTER:
		return err_trace(set_list(options, option, name, value, text));
	case KIND_SIGNALS:
		options->are_signals_named = true;
		return launch_value_signals(name, value, field, text);
	case KIND_BINDING:
		return set_binding(name, value, field, text);
	case KIND_TEXT:
		*(const char **)field = value;
		return 0;
	case KIND_STDIN:
		if (strcmp(value, "0") != 0 && strcmp(value, "none") != 0)
			return zi_text_error(text, -EINVAL, "%s %s: allowed are 0 and none", name,
			                     value);
		options->is_without_stdin = strcmp(value, "none") == 0;
		return 0;
	case KIND_NODES:
		return strcmp(value, "1") && strcmp(value, "1:1") ? refuse_nodes(name, value, text)
		                                                  : 0;
	case KIND_FIRST:
		return strcmp(value, "0") ? refuse_nodes(name, value, text) : 0;
	case KIND_NOTHING:
		options->rdzv_given = option->name;
		return 0;
	case KIND_SILENT:
	case KIND_FLAG:
	case KIND_HELP:
		break;
	}
	return 0;
}

static void set_flag(struct launch_options *options, const struct option *option)
{
	if (option->kind == KIND_FLAG || option->kind == KIND_HELP)
		*(bool *)((char *)options + option->offset) = true;
}

/* torchrun's way to defaults: PET_NPROC_PER_NODE and so on; of a flag "1". */
static int set_from_environment(struct launch_options *options, struct zi_text *text)
{
	for (size_t i = 0; i < ZI_COUNT_OF(table); i++) {
		char name[64];
		const char *value;
		int r;

		(void)snprintf(name, sizeof(name), "$PET_%s", table[i].name); /* Fits. */
		for (char *at = name + 1; *at; at++) {
			if (*at >= 'a' && *at <= 'z')
				*at = (char)(*at - 'a' + 'A');
			else if (*at == '-')
				*at = '_';
		}
		value = getenv(name + 1);
		if (!value || !*value || table[i].kind == KIND_HELP)
			continue;
		if (!table[i].value) {
			if (strcmp(value, "1") == 0)
				set_flag(options, &table[i]);
			continue;
		}
		r = set_value(options, &table[i], name, value, text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

/* The option in @word: "--name", "--name=value", "-x", "-xvalue". @ret_value: NULL, or what is
 * glued to it. */
static int read_option(const char *word, const struct option **ret_option, const char **ret_value,
                       struct zi_text *text)
{
	*ret_value = NULL;
	if (word[1] != '-') {
		for (size_t i = 0; i < ZI_COUNT_OF(table); i++)
			if (table[i].letter && table[i].letter == word[1]) {
				*ret_option = &table[i];
				*ret_value = word[2] ? word + 2 : NULL;
				return 0;
			}
		return zi_text_error(text, -EINVAL, "%s is unknown (zctl launch --help)", word);
	}
	word += 2;
	*ret_option = find_option(word, strcspn(word, "="));
	if (!*ret_option)
		return err_trace(refuse_option(word, strcspn(word, "="), text));
	if (strchr(word, '='))
		*ret_value = strchr(word, '=') + 1;
	return 0;
}

/* @argv: at an option; moved to its last word. */
static int take_option(struct launch_options *options, char ***argv, struct zi_text *text)
{
	const struct option *option = NULL;
	const char *value;
	char name[64];
	int r = read_option(**argv, &option, &value, text);

	if (r)
		return err_trace(r);
	(void)snprintf(name, sizeof(name), "--%s", option->name); /* Fits. */
	if (!option->value) {
		if (value)
			return zi_text_error(text, -EINVAL, "%s takes no value, but %s has one",
			                     name, **argv);
		set_flag(options, option);
		return 0;
	}
	if (!value)
		value = *++*argv;
	if (!value)
		return zi_text_error(text, -EINVAL, "%s needs a value: %s", name, option->value);
	return err_trace(set_value(options, option, name, value, text));
}

/* What no single option can know. */
static int check_together(const struct launch_options *options, struct zi_text *text)
{
	if (!*options->program)
		return zi_text_error(text, -EINVAL,
		                     "a program is missing: zctl launch [OPTIONS] PROGRAM [WORDS]");
	if (options->is_module && options->is_direct)
		return zi_text_error(text, -EINVAL, "-m and --no-python exclude each other");
	if (options->run_id && zi_check_name(options->run_id, ZI_TEXT_BYTES))
		return zi_text_error(text, -EINVAL,
		                     "--rdzv-id %.64s: letters, digits and ._:+- are allowed",
		                     options->run_id);
	if (options->job && zi_check_name(options->job, ZI_NAME_BYTES))
		return zi_text_error(text, -EINVAL,
		                     "--job %.80s: 1 to %u of A-Z a-z 0-9 . _ : + - are allowed, "
		                     "not beginning with . or -",
		                     options->job, (unsigned)ZI_NAME_BYTES - 1);
	return 0;
}

/**
 * launch_options_parse() - read the command line
 * @options: gets all fields
 * @argv: "launch" and what follows it, ended by NULL; kept
 * @text: says what is wrong
 *
 * Return: 0; -EINVAL.
 */
int launch_options_parse(struct launch_options *options, char **argv, struct zi_text *text)
{
	int r;

	*options = defaults;
	memset(options->is_shown, true, sizeof(options->is_shown));
	r = set_from_environment(options, text);
	if (r)
		return err_trace(r);
	for (argv++; *argv && **argv == '-' && (*argv)[1]; argv++) {
		if (strcmp(*argv, "--") == 0) {
			argv++;
			break;
		}
		r = take_option(options, &argv, text);
		if (r)
			return err_trace(r);
	}
	options->program = argv;
	return options->is_help ? 0 : err_trace(check_together(options, text));
}

/* All options that do something, for people. */
void launch_options_help(FILE *stream)
{
	fprintf(stream,
	        "usage: zctl launch [OPTIONS] PROGRAM [WORDS]\n\n"
	        "Starts the ranks of one node, as torchrun does: a PROGRAM that ends in .py by\n"
	        "python3, others directly. Defaults in parentheses.\n\n");
	for (size_t i = 0; i < ZI_COUNT_OF(table); i++) {
		char left[64];

		if (!table[i].help || !*table[i].help)
			continue;
		(void)snprintf(left, sizeof(left), "--%s%s%s", table[i].name,
		               table[i].value ? " " : "", table[i].value ? table[i].value : "");
		if (table[i].letter)
			fprintf(stream, "  -%c, %-26s %s\n", table[i].letter, left, table[i].help);
		else
			fprintf(stream, "  %-30s %s\n", left, table[i].help);
	}
	fprintf(stream,
	        "\nAccepted as torchrun's options, without effect on one node:\n"
	        "--rdzv-backend --rdzv-endpoint --rdzv-conf --node-rank 0\n"
	        "--monitor-interval --start-method --run-path\n"
	        "\nexample: zctl launch --nproc-per-node 4 --job gpt train.py --steps 100\n");
}
