/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank this process is: what launchers leave in the environment. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "examples/gpt/args.h"
#include "examples/gpt/number.h"
#include "zinf/zinf.h"

/* zinf_attach() would read the same (zinf.h, rank); here it decides who starts the ranks. */
static const struct launcher {
	const char *rank_name, *world_name;
	const char *mark_name; /* srun's: a batch script has the others too; NULL: none */
} launchers[] = {
	{ "RANK", "WORLD_SIZE", NULL }, /* torchrun, zctl launch; overrides the next */
	{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL }, /* mpirun */
	{ "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID" },      /* srun */
};
#define LAUNCHER_COUNT (sizeof(launchers) / sizeof(launchers[0]))

static const struct launcher *find_launcher(void)
{
	for (size_t i = 0; i < LAUNCHER_COUNT; i++)
		if ((!launchers[i].mark_name || getenv(launchers[i].mark_name)) &&
		    (getenv(launchers[i].rank_name) || getenv(launchers[i].world_name)))
			return &launchers[i];
	return NULL;
}

/* A launcher that started all ranks again: they may have been broken off by the daemon's end. */
static void read_restart(struct gpt_args *args)
{
	const char *text = getenv("TORCHELASTIC_RESTART_COUNT");
	uint64_t count = 0;

	if (!text || gpt_parse_u64(text, &count) || count > UINT32_MAX)
		return;
	args->restart_index = (uint32_t)count;
	args->is_waiting_for_daemon |= count > 0;
}

/* Which rank of how many: a launcher's variables, else --ranks. Return: 0, -EINVAL with the
 * reason. */
int gpt_args_environment(struct gpt_args *args, struct gpt_problem *problem)
{
	const struct launcher *launcher = args->is_reference ? NULL : find_launcher();
	const char *rank_text, *world_text;
	uint64_t rank = 0, world = 0;

	args->rank = -1;
	args->world_count = args->rank_count ? args->rank_count : 1;
	if (!launcher)
		return 0;
	rank_text = getenv(launcher->rank_name);
	world_text = getenv(launcher->world_name);
	if (!rank_text || !world_text)
		return gpt_problem_set(problem, -EINVAL, "%s and %s go together, but %s is not set",
		                       launcher->rank_name, launcher->world_name,
		                       rank_text ? launcher->world_name : launcher->rank_name);
	if (gpt_parse_u64(rank_text, &rank) || gpt_parse_u64(world_text, &world) || world < 1 ||
	    world > ZINF_WORLD_MAX || rank >= world)
		return gpt_problem_set(problem, -EINVAL,
		                       "%s=%s %s=%s: allowed are 1 to %d ranks, counted from 0",
		                       launcher->rank_name, rank_text, launcher->world_name,
		                       world_text, ZINF_WORLD_MAX);
	if (launcher != &launchers[0] && world == 1)
		return 0; /* An interactive shell of srun's: the ranks may be started here. */
	if (args->rank_count && args->rank_count != world)
		return gpt_problem_set(problem, -EINVAL, "--ranks %u, but %s is %s",
		                       args->rank_count, launcher->world_name, world_text);
	args->rank = (int32_t)rank;
	args->is_launched = true;
	args->world_count = (uint32_t)world;
	read_restart(args);
	return 0;
}
