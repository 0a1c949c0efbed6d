/* SPDX-License-Identifier: Apache-2.0 */
/* The text of --help of each command, in 80 columns. */
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "zctl/estimate/options.h"
#include "zctl/launch/options.h"
#include "zctl/zctl.h"

struct help {
	const char *name;
	const char *usage; /* lines, each with its newline */
	const char *text;
	void (*print)(FILE *stream); /* all of it; NULL: usage and text */
};

static const struct help helps[] = {
	{ .name = "status",
	  .usage = "usage: zctl status\n",
	  .text = "Shows the daemon: version, socket, engine, sessions, jobs, threads.\n"
	          "\n"
	          "  --json  the same as JSON\n"
	          "\n"
	          "example: zctl status\n" },
	{ .name = "tiers",
	  .usage = "usage: zctl tiers\n",
	  .text = "Shows each tier of memory: capacity, use, and bytes moved since zinfd\n"
	          "started. gpu:UUID is memory of a GPU, without [gpu] reserve. A tier with\n"
	          "several paths, or with a path in trouble, has a row for each path.\n"
	          "\n"
	          "  --json  the same as JSON\n"
	          "\n"
	          "example: zctl tiers\n" },
	{ .name = "jobs",
	  .usage = "usage: zctl jobs [JOB [--collectives]]\n",
	  .text = "Without JOB: one line for each job. With JOB: all about it.\n"
	          "  --collectives  its groups of ranks, and which rank waits for which\n"
	          "  --json         the same as JSON\n"
	          "\n"
	          "phase       what the job does now\n"
	          "  IDLE        no rank is attached; the job keeps its last committed step\n"
	          "  FORMING     ranks attach and describe the model\n"
	          "  READY       all ranks are attached, between two steps\n"
	          "  STEPPING    forward and backward: ranks use parameters and give gradients\n"
	          "  UPDATING    all gradients are here: the optimizer runs\n"
	          "  COMMITTING  the step is written to the store and to the catalog\n"
	          "  BROKEN      a rank died or left; the others are about to leave\n"
	          "  DAMAGED     stored state cannot be read; `refusal` says why\n"
	          "  LOST        its state was in memory, and zinfd was restarted: the next start\n"
	          "              of the job begins at step 0\n"
	          "  REFUSED     nobody may attach; `refusal` says why\n"
	          "strategy    `hybrid` is zero3 whose shards are repeated in each group of ranks\n"
	          "ranks       attached / all\n"
	          "step        the last committed step; in brackets the newest one, if later\n"
	          "params      elements of all parameters\n"
	          "logical     bytes that the strategy gives to all ranks together\n"
	          "held        bytes that this node really uses; its ranks share one copy\n"
	          "read        bytes read from NVMe since zinfd started\n"
	          "written     bytes written to NVMe since zinfd started\n"
	          "\n"
	          "example: zctl jobs gpt --collectives\n" },
	{ .name = "delete",
	  .usage = "usage: zctl delete JOB [--yes]\n",
	  .text = "Deletes a job that nobody uses, with all its state. Snapshots stay.\n"
	          "\n"
	          "  --yes   without asking first\n"
	          "  --json  the answer as JSON\n"
	          "\n"
	          "example: zctl delete gpt --yes\n" },
	{ .name = "limits",
	  .usage = "usage: zctl limits\n",
	  .text = "Shows every limit, its present use, and the configuration key that sets it.\n"
	          "\n"
	          "  --json  the same as JSON\n"
	          "\n"
	          "example: zctl limits\n" },
	{ .name = "bench",
	  .usage = "usage: zctl bench nvme [NAME] [--seconds N]\n",
	  .text = "Measures the store NAME, or all stores, while jobs run. zinfd then uses the\n"
	          "block sizes and depths that were fastest.\n"
	          "\n"
	          "  --seconds N  time for each store, 1 to 60 (3)\n"
	          "  --json       the answer as JSON\n"
	          "\n"
	          "example: zctl bench nvme disk --seconds 10\n" },
	{ .name = "drain",
	  .usage = "usage: zctl drain nvme:NAME\n",
	  .text = "Takes the path NAME of a store out of use. New data goes to other paths. The\n"
	          "data on this path moves with the next step of each job. zctl tiers shows how\n"
	          "much is left.\n"
	          "\n"
	          "  --json  the answer as JSON\n"
	          "\n"
	          "example: zctl drain nvme:disk2\n" },
	{ .name = "undrain",
	  .usage = "usage: zctl undrain nvme:NAME\n",
	  .text = "Uses the path NAME of a store again, also after it failed.\n"
	          "\n"
	          "  --json  the answer as JSON\n"
	          "\n"
	          "example: zctl undrain nvme:disk2\n" },
	{ .name = "snapshot",
	  .usage = "usage: zctl snapshot JOB [--name NAME] [--keep N]\n"
	           "       zctl snapshot list [JOB]\n"
	           "       zctl snapshot rm JOB/NAME\n"
	           "       zctl snapshot restore JOB/NAME [--as OTHER]\n",
	  .text = "Keeps a job's last committed step as a snapshot, lists or removes snapshots,\n"
	          "or takes a job back to one.\n"
	          "\n"
	          "  --name NAME  name of the snapshot (step-N)\n"
	          "  --keep N     makes an automatic snapshot: only the newest N automatic ones\n"
	          "               of the job stay\n"
	          "  --as OTHER   a new job OTHER begins with the snapshot; JOB stays as it is\n"
	          "  --json       the answer as JSON\n"
	          "\n"
	          "example: zctl snapshot gpt --name before-finetune\n" },
	{ .name = "export",
	  .usage = "usage: zctl export JOB[/SNAPSHOT] TARGET [--format safetensors|zinf]\n",
	  .text = "Writes a committed step of a job, or one of its snapshots, into files.\n"
	          "\n"
	          "  --format safetensors  the parameters, one file (the default)\n"
	          "  --format zinf         everything, a directory (docs/CHECKPOINT.md)\n"
	          "  --json                the answer as JSON\n"
	          "\n"
	          "example: zctl export gpt gpt.safetensors\n" },
	{ .name = "load",
	  .usage = "usage: zctl load TARGET JOB[/NAME] [--snapshot NAME] [--like JOB[/NAME]]\n"
	           "                 [--allow-missing]\n",
	  .text = "Makes the snapshot JOB/NAME from exported files. A new job begins with it when\n"
	          "its trainer asks for it: zinf_load(), or zinf-gpt --load JOB/NAME. NAME is\n"
	          "step-N by default.\n"
	          "\n"
	          "  TARGET           a directory (everything) or safetensors file (parameters)\n"
	          "                   that zctl export wrote, or the parent of all nodes' parts\n"
	          "  --snapshot NAME  the snapshot's name\n"
	          "  --like JOB       the file was written by another program: its tensors have\n"
	          "                   the names and shapes of this job's model\n"
	          "  --allow-missing  a part may be missing if other parts have all its units\n"
	          "  --json           the answer as JSON\n"
	          "\n"
	          "example: zctl load gpt.safetensors gpt/imported\n" },
	{ .name = "estimate",
	  .usage = "usage: zctl estimate SOURCE [OPTIONS]\n",
	  .print = estimate_options_help },
	{ .name = "launch",
	  .usage = "usage: zctl launch [OPTIONS] PROGRAM [WORDS]\n",
	  .print = launch_options_help },
	{ .name = "topo",
	  .usage = "usage: zctl topo\n",
	  .text = "Shows the NUMA nodes of the machine as zinfd sees it, and the GPUs, disks and\n"
	          "tiers of memory that hang on each node. A GPU with a UUID is one that zinfd\n"
	          "has.\n"
	          "\n"
	          "  --json  the same as JSON\n"
	          "\n"
	          "example: zctl topo\n" },
	{ .name = "doctor",
	  .usage = "usage: zctl doctor [DIRECTORY]\n",
	  .text = "Checks what this machine offers zinf, and says how to get what is missing.\n"
	          "DIRECTORY is where you plan a store (the current directory). The exit code is\n"
	          "1 if something is missing. It needs no daemon.\n"
	          "\n"
	          "  --json  the same as JSON\n"
	          "\n"
	          "example: zctl doctor /mnt/nvme\n" },
};

static const struct help *find(const char *command)
{
	for (size_t i = 0; i < ZI_COUNT_OF(helps); i++)
		if (!strcmp(helps[i].name, command))
			return &helps[i];
	return NULL;
}

/* See zctl.h. */
void zctl_help(const char *command)
{
	const struct help *help = find(command);

	if (help && help->print)
		help->print(stdout);
	else if (help)
		printf("%s%s", help->usage, help->text);
}

/* See zctl.h. */
int zctl_usage(const char *command)
{
	const struct help *help = find(command);

	fprintf(stderr, "%s(zctl %s --help says more)\n", help ? help->usage : "", command);
	return 2;
}
