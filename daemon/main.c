/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zinfd: the command line. Floor 7. Exit codes: 0; 1 it could not start, or was not stopped
 * gracefully; 2 wrong usage.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/console.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "daemon/daemon.h"
#include "daemon/limits.h"

#define MAIN_SETS_MAX 32u
/* Of the allocator: for the control thread, the shard's, and all others. */
#define MAIN_ARENAS_MAX 3

struct arguments {
	const char *config_path;
	const char *directory;
	uint64_t store_bytes;
	const char *sets[MAIN_SETS_MAX];
	uint32_t set_count;
	int ready_fd;
	bool is_user, is_check, is_doc, is_example;
};

static int usage(FILE *stream, int code)
{
	fputs("usage: zinfd [--config FILE | --user [--dir DIR] [--size BYTES]] [OPTION]...\n"
	      "The daemon that keeps parameters and optimizer state of this node's jobs.\n"
	      "\n"
	      "  --config FILE            configuration of the system's daemon\n"
	      "                           (root's default: " CONFIG_SYSTEM_PATH ")\n"
	      "  --user                   run for a plain user, without a file: socket in\n"
	      "                           $XDG_RUNTIME_DIR/zinf, state and store in\n"
	      "                           ~/.local/state/zinf (the default when not root and\n"
	      "                           without --config)\n"
	      "  --dir DIR                with --user: socket, state and store in DIR\n"
	      "  --size BYTES             with --user: make, or grow, a store of that size\n"
	      "                           (64M, 4G). Without it a store made before is used\n"
	      "  --set SECTION.KEY=VALUE  overrides the file; may be repeated\n"
	      "  --check-config           check the configuration and stop\n"
	      "  --print-config-doc       every key as a table (docs/CONFIG.md)\n"
	      "  --print-config-example   a configuration file with every key at its default\n"
	      "  --ready-fd N             write \"ready\" to descriptor N when it accepts clients\n"
	      "  --version, --help\n"
	      "\n"
	      "example: zinfd --user --size 4G\n",
	      stream);
	return code;
}

static int wrong(const char *option, const char *value, const char *wanted)
{
	fprintf(stderr, "zinfd: %s %s: %s\n", option, value, wanted);
	return 2;
}

/* An open descriptor's number. */
static int parse_fd(const char *value, int *ret_fd)
{
	char *end;
	long fd = strtol(value, &end, 10);

	if (*end || !*value || fd < 0 || fd > 65535 || fcntl((int)fd, F_SETFD, FD_CLOEXEC))
		return wrong("--ready-fd", value, "an open descriptor is expected");
	*ret_fd = (int)fd;
	return 0;
}

static int take_option(struct arguments *arguments, int option)
{
	switch (option) {
	case 'c':
		arguments->config_path = optarg;
		return 0;
	case 'u':
		arguments->is_user = true;
		return 0;
	case 'd':
		arguments->directory = optarg;
		return 0;
	case 's':
		if (zi_parse_bytes(optarg, &arguments->store_bytes) ||
		    arguments->store_bytes < 1ull << 20)
			return wrong("--size", optarg, "bytes are expected, 1M at least");
		return 0;
	case 'S':
		if (arguments->set_count == MAIN_SETS_MAX)
			return wrong("--set", optarg, "too many of them");
		arguments->sets[arguments->set_count++] = optarg;
		return 0;
	case 'k':
		arguments->is_check = true;
		return 0;
	case 'D':
		arguments->is_doc = true;
		return 0;
	case 'E':
		arguments->is_example = true;
		return 0;
	case 'r':
		return parse_fd(optarg, &arguments->ready_fd);
	default: /* getopt_long() has said what is wrong. */
		return usage(stderr, 2);
	}
}

/* Return: 0; 2 after saying what is wrong; -1 done (--help, --version). */
static int parse(struct arguments *arguments, int argc, char **argv)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "user", no_argument, NULL, 'u' },
		{ "dir", required_argument, NULL, 'd' },
		{ "size", required_argument, NULL, 's' },
		{ "set", required_argument, NULL, 'S' },
		{ "check-config", no_argument, NULL, 'k' },
		{ "print-config-doc", no_argument, NULL, 'D' },
		{ "print-config-example", no_argument, NULL, 'E' },
		{ "ready-fd", required_argument, NULL, 'r' },
		{ "version", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;
	int r = 0;

	while (!r && (option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == 'h') {
			(void)usage(stdout, 0);
			return -1;
		}
		if (option == 'v') {
			puts("zinfd " ZINF_VERSION);
			return -1;
		}
		r = take_option(arguments, option);
	}
	if (r)
		return r;
	if (optind < argc)
		return wrong("unexpected word", argv[optind], "see zinfd --help");
	if (arguments->is_user && arguments->config_path)
		return wrong("--user", "--config", "one of them, not both");
	if (!arguments->config_path && geteuid() != 0)
		arguments->is_user = true;
	if (!arguments->is_user && (arguments->directory || arguments->store_bytes))
		return wrong("--dir or --size", "without --user", "they belong to --user");
	return 0;
}

/* From wherever the arguments say. */
static int configure(const struct arguments *arguments, struct config *config, struct zi_text *text)
{
	int r;

	config_init(config);
	if (arguments->is_user)
		r = config_set_user(config, arguments->directory, arguments->store_bytes, text);
	else
		r = config_load(
			config,
			arguments->config_path ? arguments->config_path : CONFIG_SYSTEM_PATH, text);
	for (uint32_t i = 0; !r && i < arguments->set_count; i++)
		r = config_set(config, arguments->sets[i], text);
	if (!r)
		r = config_check(config, text);
	return r;
}

static enum zi_log_level log_level_of(const struct config *config)
{
	static const enum zi_log_level levels[] = { ZI_LOG_ERROR, ZI_LOG_WARNING, ZI_LOG_INFO,
		                                    ZI_LOG_DEBUG };

	return levels[config->log_level];
}

/* A user asked for the text on standard output. Return: the exit code. */
static int end_output(void)
{
	int r = zi_console_flush();

	if (r < 0)
		fprintf(stderr, "zinfd: writing to standard output failed: %s\n", strerror(-r));
	return r ? 1 : 0;
}

static int run(const struct config *config, int ready_fd)
{
	static struct daemon daemon; /* Large: tiers, stores, nodes. */
	struct zi_text text;
	int code;
	int r;

	daemon = (struct daemon){ .config = config, .notify = NOTIFY_INIT, .signal_fd = -1 };
	r = notify_open(&daemon.notify, &text);
	if (r) {
		log_error("%s", text.chars);
		return 1;
	}
	r = daemon_take_signals(&daemon);
	if (r)
		return log_error_errno(r, "Taking signals failed"), 1;
	r = daemon_make(&daemon, &text);
	if (r == -ECANCELED && daemon_is_told_to_stop(&daemon, 0)) {
		log_info("Stopped during the start: unfinished files are removed");
		notify_send(&daemon.notify, "STOPPING=1");
		code = 0;
	} else if (r) {
		log_error("zinfd cannot start: %s", text.chars);
		notify_send(&daemon.notify, "STATUS=%s\nERRNO=%d", text.chars, -r);
		code = 1;
	} else {
		r = daemon_run(&daemon, ready_fd);
		if (r == 1 || r == -ECANCELED) {
			if (daemon.owns_socket)
				(void)unlink(config->socket); /* Gone already: as wanted. */
			_exit(r == 1);
		}
		code = r < 0;
		if (r < 0)
			(void)log_error_errno(r, "zinfd cannot continue");
	}
	daemon_free(&daemon);
	daemon.signal_fd = zi_close(daemon.signal_fd);
	notify_close(&daemon.notify);
	return code;
}

int main(int argc, char **argv)
{
	static struct config config;
	struct arguments arguments = { .ready_fd = -1 };
	struct zi_text text;
	int r;

	r = parse(&arguments, argc, argv);
	if (r)
		return r < 0 ? end_output() : r;
	if (arguments.is_doc || arguments.is_example) {
		(arguments.is_doc ? config_print_doc : config_print_example)(stdout);
		return end_output();
	}
	r = configure(&arguments, &config, &text);
	if (r) {
		log_error("%s", text.chars);
		return 1;
	}
	if (arguments.is_check) {
		printf("%s: ok\n", config.file[0] ? config.file : "configuration");
		return end_output();
	}
	if (arguments.is_user && config_make_user(&config, &text)) {
		log_error("%s", text.chars);
		return 1;
	}
	zi_log_set_level(log_level_of(&config));
	json_object_seed(0); /* Before there are threads: jansson does it on first use otherwise. */
	/* A limit of file sizes is to be an error of the write (EFBIG), not the end. */
	(void)signal(SIGXFSZ, SIG_IGN);
	limits_raise();
	/* Each arena keeps what its threads needed once. */
	(void)mallopt(M_ARENA_MAX, MAIN_ARENAS_MAX);
	return run(&config, arguments.ready_fd);
}
