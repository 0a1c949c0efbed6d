/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zctl, the administrator's tool: one file per command, each a function from arguments to an exit
 * code. What the daemon knows comes as JSON over the control socket (docs/ADMIN.md); people see it
 * as tables, programs as it came. Single-threaded.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define ZCTL_SECONDS_MAX 60u

struct zctl_context {
	const char *socket_path; /* where the daemon is asked */
	bool is_socket_named;    /* --socket */
	bool is_json;
	bool is_quiet;    /* a question that fails says nothing on stderr */
	bool is_colour;   /* stdout is a terminal and NO_COLOR is not set */
	unsigned seconds; /* --seconds: how long a measurement takes; 0: not given */
};

/* A command gets its own words: argv[0] is its name. Exit codes: 0, 1 failed, 2 wrong usage. */
typedef int (*zctl_command_fn)(const struct zctl_context *context, int argc, char **argv);

int zctl_status(const struct zctl_context *context, int argc, char **argv);
int zctl_tiers(const struct zctl_context *context, int argc, char **argv);
int zctl_jobs(const struct zctl_context *context, int argc, char **argv);
int zctl_delete(const struct zctl_context *context, int argc, char **argv);
int zctl_drain(const struct zctl_context *context, int argc, char **argv);
int zctl_limits(const struct zctl_context *context, int argc, char **argv);
int zctl_bench(const struct zctl_context *context, int argc, char **argv);
int zctl_snapshot(const struct zctl_context *context, int argc, char **argv);
int zctl_export(const struct zctl_context *context, int argc, char **argv);
int zctl_load(const struct zctl_context *context, int argc, char **argv);
int zctl_estimate(const struct zctl_context *context, int argc, char **argv);
int zctl_launch(const struct zctl_context *context, int argc, char **argv);
int zctl_topo(const struct zctl_context *context, int argc, char **argv);
int zctl_doctor(const struct zctl_context *context, int argc, char **argv);

/* Asks the daemon (admin.c). On failure says why on stderr and returns NULL. @command: words. */
json_t *zctl_ask(const struct zctl_context *context, const char *command);
/* A question whose answer takes @work_s more than others. */
json_t *zctl_ask_long(const struct zctl_context *context, const char *command, unsigned work_s);
/* Prints the --help of @command on stdout (help.c). */
void zctl_help(const char *command);
/* Prints the usage lines of @command on stderr, for wrong words. Return: 2, the exit code. */
int zctl_usage(const char *command);
/* Prints @json and a newline; 0. Borrows @json. */
int zctl_print_json(const json_t *json);

/* A connection for several questions, which what they began belongs to (admin.c). NULL after saying
 * why on stderr. */
struct zctl_link;
struct zctl_link *zctl_link_open(const struct zctl_context *context);
struct zctl_link *zctl_link_close(struct zctl_link *link);
/* A question, not waiting for its answer; answers come in the order of the questions. 0, or 1 after
 * saying why. */
int zctl_link_tell(struct zctl_link *link, const char *command);
/* The next answer, as of zctl_ask_long(). @ret_fd: a descriptor that came with the answer, the
 * caller's, else -1; NULL: none is awaited. */
json_t *zctl_link_hear(struct zctl_link *link, unsigned work_s, int *ret_fd);
/* Both. */
json_t *zctl_link_ask(struct zctl_link *link, const char *command, unsigned work_s, int *ret_fd);

/* ---- progress.c ---- */

/* From now on Ctrl-C and SIGTERM ask for the end. */
void zctl_catch_cancel(void);
bool zctl_is_cancelled(void);
/* A bar on stderr with rate and time left, drawn over the former one a few times a second; its line
 * ends when all is done. One at a time. */
void zctl_show_progress(const char *label, uint64_t done_bytes, uint64_t total_bytes);
/* "zctl: ", the sentence and a newline on stderr, on a line of its own: a bar's line ends first. */
void zctl_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
