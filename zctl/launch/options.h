/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of zctl launch: torchrun's options with their spellings and defaults, a few of
 * our own, then the program and its words. Texts point into argv or the environment.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/text.h"

/* A job of zinf has no more (ZINF_WORLD_MAX). */
#define LAUNCH_RANKS_MAX   64u
#define LAUNCH_SIGNALS_MAX 32u

/* Which streams of a rank; torchrun's numbers. */
enum launch_std { LAUNCH_STD_NONE = 0, LAUNCH_STD_OUT = 1, LAUNCH_STD_ERR = 2, LAUNCH_STD_ALL = 3 };

enum launch_binding { LAUNCH_BINDING_AUTO, LAUNCH_BINDING_NODE, LAUNCH_BINDING_NONE };

struct launch_options {
	uint32_t rank_count;
	bool is_rank_count_cut; /* of "auto" or "cpu": there are more CPUs than ranks of a job */
	uint32_t restart_max;
	double grace_s; /* between SIGTERM and SIGKILL */
	const char *master_addr, *local_addr;
	uint32_t master_port; /* 0: any free one */
	bool is_port_named;   /* else another one may take its place */
	bool is_standalone;
	const char *run_id;     /* --rdzv-id; NULL: made up */
	const char *rdzv_given; /* one of the options of a rendezvous that mean nothing here */
	const char *role;
	const char *log_directory;                                   /* NULL: none */
	uint8_t redirects[LAUNCH_RANKS_MAX], tees[LAUNCH_RANKS_MAX]; /* enum launch_std */
	bool is_shown[LAUNCH_RANKS_MAX];                             /* --local-ranks-filter */
	uint32_t named_rank;                                         /* the highest in a list */
	const char *named_by;      /* the option with that list; NULL: there is none */
	bool is_module, is_direct; /* -m; --no-python */
	bool is_without_stdin;     /* --stdin none */
	enum launch_binding binding;
	int signals[LAUNCH_SIGNALS_MAX]; /* passed on, and all end; ended by 0 */
	bool are_signals_named;          /* then also those that were ignored before us */
	const char *job, *socket_path; /* for libzinf in the ranks; NULL: as the environment says */
	bool is_dry_run, is_help;
	char **program; /* its words, ended by NULL */
};

/* What would be said. @argv: "launch" and what follows, ended by NULL. Return: 0; -EINVAL with the
 * reason. */
int launch_options_parse(struct launch_options *options, char **argv, struct zi_text *text);
void launch_options_help(FILE *stream);
