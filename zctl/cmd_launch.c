/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zctl launch: starts the ranks of a program on this node (docs/LAUNCH.md). It needs no daemon: the
 * ranks themselves may.
 *
 *   launch/options.c    the command line; values.c: lists, signals, counts
 *   launch/plan.c       what ranks are started with: command, variables; port.c: MASTER_PORT;
 *                       place.c: NUMA nodes; logs.c: directories
 *   launch/dry_run.c    … printed
 *   launch/keeper.c     the process that the user started, and the supervisor beside it
 *   launch/supervise.c  the supervisor: starts ranks, sees to their end; report.c: words about it;
 *                       strays.c: what they leave behind
 *   launch/group.c      all ranks
 *   launch/rank.c       one rank's process; stream.c: what it prints; sink.c: where that goes
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "common/wire/control.h"
#include "zctl/get.h"
#include "zctl/launch/dry_run.h"
#include "zctl/launch/keeper.h"
#include "zctl/launch/options.h"
#include "zctl/launch/plan.h"
#include "zctl/zctl.h"

/* Ranks of another run that live: ours would replace them, which a forgotten --job may not mean. */
static void look_for_job(const struct zctl_context *context, const struct launch_options *options)
{
	const char *name = options->job ? options->job : getenv("ZINF_JOB");
	json_t *jobs = zctl_ask(context, "jobs"), *job, *rank;
	uint64_t pid = 0;
	uint32_t count = 0;
	size_t index, number;

	name = name && *name ? name : "default";
	json_array_foreach(jobs, index, job)
	{
		if (strcmp(get_word(job, "name"), name) != 0)
			continue;
		json_array_foreach(json_object_get(job, "ranks"), number, rank)
		{
			if (!json_is_true(json_object_get(rank, "is_attached")))
				continue;
			pid = get_count(rank, "pid");
			count++;
		}
	}
	json_decref(jobs);
	if (count)
		zctl_complain("job '%s' has %u living ranks of another start (such as pid %" PRIu64
		              "); "
		              "ranks of this start replace them. To run beside them give --job "
		              "with another name",
		              name, count, pid);
}

/* Who names a job or a socket means zinfd; that it is not there (yet) is no error of a launcher. */
static void look_for_daemon(const struct zctl_context *context,
                            const struct launch_options *options)
{
	const char *path = options->socket_path ? options->socket_path : context->socket_path;
	_cleanup_(zi_closep) int fd = -1;

	if (zi_control_connect(path, &fd)) {
		if (options->job || options->socket_path)
			zctl_complain("no zinfd listens at %s yet; starting the ranks "
			              "nevertheless",
			              path);
		return;
	}
	look_for_job(&(struct zctl_context){ .socket_path = path }, options);
}

/* What the user may not expect. */
static void tell_choices(const struct launch_plan *plan)
{
	const struct launch_options *options = plan->options;

	if (options->is_rank_count_cut)
		zctl_complain("starting %u ranks, fewer than CPUs: a job has at most so many",
		              LAUNCH_RANKS_MAX);
	if (options->named_by && options->named_rank >= options->rank_count)
		zctl_complain("--%s names rank %u, but of %u ranks the last is rank %u",
		              options->named_by, options->named_rank, options->rank_count,
		              options->rank_count - 1);
	if (options->rdzv_given)
		zctl_complain("--%s has no effect on one node, ignoring", options->rdzv_given);
	if (!options->is_standalone && options->master_port &&
	    plan->master_port != options->master_port)
		zctl_complain("port %u is in use; MASTER_PORT is %u", options->master_port,
		              plan->master_port);
	if (plan->is_omp_one)
		zctl_complain("OMP_NUM_THREADS=1 for each rank, because it was not set; set it to "
		              "the threads that a rank shall use");
	if (plan->logs.is_kept)
		zctl_complain("log files are in %s", plan->logs.directory);
}

/**
 * zctl_launch() - start the ranks of this node and wait for them
 * @context: --socket and --json of zctl itself
 * @argc: words
 * @argv: "launch", its options, the program and its words
 *
 * Return: exit code: launch_supervise()'s; 2 wrong usage.
 */
int zctl_launch(const struct zctl_context *context, int argc, char **argv)
{
	struct launch_options options;
	struct launch_plan plan;
	struct zi_text text = { "" };
	int code = 1;

	(void)argc;
	if (launch_options_parse(&options, argv, &text)) {
		zctl_complain("%s", text.chars);
		return 2;
	}
	if (options.is_help) {
		launch_options_help(stdout);
		return 0;
	}
	if (!options.socket_path && context->is_socket_named)
		options.socket_path = context->socket_path;
	if (launch_plan_make(&plan, &options, &text)) {
		zctl_complain("%s", text.chars);
	} else if (options.is_dry_run) {
		code = launch_dry_run(&plan, context->is_json);
	} else {
		look_for_daemon(context, &options);
		tell_choices(&plan);
		(void)fflush(NULL); /* Or the supervisor would have it, too. */
		code = launch_keep(&plan);
	}
	launch_plan_free(&plan);
	return code;
}
