/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the example of collectives does what it says under each launcher; ranks find out who they
 * are by its variables, and say so when these cannot be. Method: zinf-allreduce, which compares its
 * sums itself, as a command over a real zinfd.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/system/far.h"

static struct harness harness;
static char words[1 << 16];

static void start(void)
{
	char path[300];

	system_start(&harness, &(struct harness_options){ 0 });
	cr_assert_eq(setenv("ZINF_SOCKET", harness.socket_path, 1), 0);
	cr_assert_eq(setenv("ALLREDUCE", harness_program("zinf-allreduce", path, sizeof(path)), 1),
	             0);
	cr_assert_eq(setenv("ZCTL", harness_program("zctl", path, sizeof(path)), 1), 0);
}

static void stop(void)
{
	cr_assert_eq(harness_stop(&harness), 0);
}

TestSuite(allreduce, .init = start, .fini = stop, .timeout = 120);

/* What is skipped is not ended by .fini. */
static void skip(const char *why)
{
	stop();
	cr_skip_test("%s", why);
}

/* A line of sh; its words are kept. Must end with @code, -1: with another one than 0. */
static void run(int code, const char *line)
{
	char command[1024];
	size_t bytes;
	FILE *pipe;
	int got;

	(void)snprintf(command, sizeof(command), "exec 2>&1; %s", line);
	pipe = popen(command, "r");
	cr_assert_not_null(pipe);
	bytes = fread(words, 1, sizeof(words) - 1, pipe);
	words[bytes] = '\0';
	got = pclose(pipe);
	cr_assert(WIFEXITED(got), "%s", words);
	cr_assert(code < 0 ? WEXITSTATUS(got) != 0 : WEXITSTATUS(got) == code,
	          "%s ended with %d: %s", line, WEXITSTATUS(got), words);
}

Test(allreduce, ranks_of_zctl_launch_have_their_sum)
{
	run(0, "$ZCTL launch --nproc-per-node 2 --job sums $ALLREDUCE");
	system_expect_text(words, "[rank 0]: all sums are 3; the last rank is 1\n");
	run(0, "$ZCTL launch --nproc-per-node 3 --job sums $ALLREDUCE");
	system_expect_text(words, "[rank 0]: all sums are 6; the last rank is 2\n");
	run(0, "$ALLREDUCE");
	system_expect_text(words, "all sums are 1; the last rank is 0\n");
}

Test(allreduce, help_is_no_benchmark_and_there_are_no_options)
{
	run(0, "$ALLREDUCE --help");
	cr_expect_eq(strncmp(words, "usage: zctl launch ", 19), 0, "%s", words);
	cr_expect_null(strstr(words, "round 0"), "%s", words);
	run(2, "$ALLREDUCE --rounds 5");
	system_expect_text(words, "is unknown: --help is the only option\n");
	run(2, "$ALLREDUCE x");
	system_expect_text(words, "zinf-allreduce: \"x\" is unknown");
	run(2, "$ALLREDUCE --help x");
	run(1, "$ALLREDUCE --help 2>&1 >/dev/full");
	system_expect_text(words, "writing to standard output failed: No space left on device");
	run(1, "$ALLREDUCE 2>&1 >/dev/full");
	system_expect_text(words, "writing to standard output failed");
}

Test(allreduce, ranks_of_srun_have_their_sum)
{
	/* No Slurm here: what srun leaves to its tasks. */
	run(0, "export SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=2; "
	       "SLURM_PROCID=1 $ALLREDUCE & SLURM_PROCID=0 $ALLREDUCE && wait $!");
	system_expect_text(words, "all sums are 3; the last rank is 1\n");
}

#define MPIRUN "mpirun $([ $(id -u) = 0 ] && echo --allow-run-as-root) --oversubscribe -n 2 "

Test(allreduce, ranks_of_mpirun_have_their_sum)
{
	if (system("command -v mpirun >/dev/null 2>&1"))
		skip("mpirun is not installed");
	run(0, MPIRUN "$ALLREDUCE");
	system_expect_text(words, "all sums are 3; the last rank is 1\n");
	run(-1, "RANK=0 WORLD_SIZE=2 " MPIRUN "$ALLREDUCE");
	system_expect_text(words,
	                   "$RANK and $WORLD_SIZE say 0 of 2, mpirun's $OMPI_COMM_WORLD_RANK and "
	                   "$OMPI_COMM_WORLD_SIZE 1 of 2: unset those that are wrong");
}

#define TORCHRUN SYSTEM_TORCHRUN "--nproc_per_node 2 "

Test(allreduce, ranks_of_torchrun_have_their_sum, .timeout = 400)
{
	if (!system_has_torchrun())
		skip("no torchrun that starts a program is installed");
	run(0, TORCHRUN "$ALLREDUCE");
	system_expect_text(words, "all sums are 3; the last rank is 1\n");
	if (!system_torchrun_restarts())
		skip("this torchrun starts nothing again");
	/* What it starts again is another start to the daemon. */
	run(0, TORCHRUN "--max-restarts 1 sh -c '[ $TORCHELASTIC_RESTART_COUNT$RANK = 01 ] && "
	                "exit 3; exec $ALLREDUCE'");
	system_expect_text(words, "all sums are 3; the last rank is 1\n");
}

/* Two tasks, one on each of two nodes, by the variables that srun leaves to them. */
Test(allreduce, ranks_of_srun_on_two_nodes_have_their_sum)
{
	struct harness other;
	char port[16];

	if (!far_is_built())
		skip("zinf-net is not built (libgloo-dev)");
	system_start(&other, &(struct harness_options){ 0 });
	cr_assert_eq(setenv("OTHER_SOCKET", other.socket_path, 1), 0);
	(void)snprintf(port, sizeof(port), "%u", harness_free_port());
	cr_assert_eq(setenv("ZINF_PORT", port, 1), 0);
	run(0, "export MASTER_ADDR=127.0.0.1 "
	       "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=2 'SLURM_STEP_TASKS_PER_NODE=1(x2)'; "
	       "ZINF_SOCKET=$OTHER_SOCKET SLURM_NODEID=1 SLURM_PROCID=1 $ALLREDUCE & "
	       "SLURM_NODEID=0 SLURM_PROCID=0 $ALLREDUCE && wait $!");
	system_expect_text(words, "all sums are 3; the last rank is 1\n");
	cr_assert_eq(harness_stop(&other), 0);
}

/* Ranks that wait for another one, which never comes, until the second start takes their place. */
Test(allreduce, a_second_start_of_one_job_says_whom_it_replaces)
{
	run(-1, "{ $ZCTL launch --nproc-per-node 2 --job sums sh -c "
	        "'[ $RANK = 1 ] && exec sleep 60; exec $ALLREDUCE'; echo first ended with $?; } & "
	        "until $ZCTL jobs sums 2>&1 | grep coll_open; do :; done; $ZCTL jobs sums; "
	        "$ZCTL launch --nproc-per-node 2 --job sums $ALLREDUCE; "
	        "$ZCTL launch --job other $ALLREDUCE; wait $! && false");
	system_expect_text(words, "job 'sums' has 1 living ranks of another start (such "
	                          "as pid ");
	system_expect_text(words, "of job 'sums' has taken over: two runs at the same time need "
	                          "two names (ZINF_JOB)");
	system_expect_text(words, "[rank 0]: all sums are 3; the last rank is 1\n");
	system_expect_text(words, "model: none yet");
	system_expect_text(words, "first ended with 1\n");
	cr_expect(!strstr(words, "job 'other'"), "%s", words);
}

Test(allreduce, a_rank_that_does_not_come_ends_the_others)
{
	run(3, "$ZCTL launch --nproc-per-node 2 --job sums sh -c "
	       "'[ $RANK = 1 ] && exit 3; exec $ALLREDUCE'");
	system_expect_text(words, "ended with code 3 after ");
	/* The next start finds nothing in its way. */
	run(0, "$ZCTL launch --nproc-per-node 2 --job sums $ALLREDUCE");
}
