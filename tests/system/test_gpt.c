/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the example does what its users are told to do with snapshots: what was exported is loaded
 * under another name and trained on, with other places for its state, other numbers of ranks, or
 * from parameters alone. Method: zinf-gpt and zctl as commands; dumps of all parameters are
 * compared with those of a run that nothing interrupted. So it is under launchers, also when one of
 * them starts a killed rank again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/system/gpt.h"

#define TINY                                                                    \
	"--layers 1 --heads 1 --d-model 16 --seq-len 16 --batch-size 1 --bf16 " \
	"--warmup 1 --lr 1e-3 --min-lr 1e-3 --log-every 1 --staging 4M "

TestSuite(gpt, .init = gpt_start, .fini = files_stop, .timeout = 120);

Test(gpt, what_was_exported_goes_on_elsewhere_with_the_same_bits)
{
	gpt_run(0, "zinf-gpt", TINY "--ranks 2 --job whole --steps 6 --dump whole.dump");
	gpt_run(0, "zinf-gpt", TINY "--ranks 2 --job half --steps 3");
	gpt_run(0, "zctl", "export half half --format zinf");
	gpt_run(0, "zctl", "load half moved");
	/* Parameters on NVMe, a share of the state in memory, not every step committed. */
	gpt_run(0, "zinf-gpt",
	        TINY "--ranks 2 --job moved --load moved/step-3 --steps 6 --dump moved.dump "
	             "--offload-param nvme --resident 4M --commit-interval 2");
	system_expect_text(words, "resumed at step 3, after 96 tokens");
	gpt_expect_equal_dumps("whole.dump", "moved.dump");
	/* Started again it goes on from its own step. */
	gpt_run(0, "zinf-gpt", TINY "--ranks 2 --job moved --load moved/step-3 --steps 7");
	system_expect_text(words, "resumed at step 6");
}

Test(gpt, a_snapshot_goes_on_with_other_numbers_of_ranks)
{
	gpt_run(0, "zinf-gpt", TINY "--ranks 2 --job base --steps 3");
	gpt_run(0, "zctl", "snapshot base --name best");
	gpt_run(0, "zinf-gpt", TINY "--ranks 1 --job one --load base/best --steps 4");
	system_expect_text(words, "resumed at step 3");
	gpt_run(0, "zinf-gpt", TINY "--ranks 3 --job three --load base/best --steps 4");
	system_expect_text(words, "resumed at step 3");
	gpt_run(1, "zinf-gpt", TINY "--ranks 1 --job none --load base/worst --steps 4");
	system_expect_text(words, "no snapshot 'base/worst'");
	gpt_run(1, "zinf-gpt", TINY "--ranks 1 --job none --load base/best --steps 4 --layers 2");
	system_expect_text(words, "block.1");
}

Test(gpt, every_strategy_gives_the_same_bits_and_a_job_moves_between_them)
{
	gpt_run(0, "zinf-gpt", TINY "--reference --ranks 4 --steps 4 --dump plain.dump");
	gpt_run(0, "zinf-gpt",
	        TINY "--ranks 4 --job hybrid --strategy hybrid_shard --shard-size 2 "
	             "--steps 4 --dump hybrid.dump");
	system_expect_text(words, "strategy hybrid_shard, gradients reduced per step");
	gpt_expect_equal_dumps("plain.dump", "hybrid.dump");
	gpt_run(0, "zinf-gpt", TINY "--ranks 4 --job moved --strategy no_shard --steps 1");
	gpt_run(0, "zinf-gpt", TINY "--ranks 4 --job moved --strategy zero1 --steps 2");
	gpt_run(0, "zinf-gpt",
	        TINY "--ranks 4 --job moved --strategy shard_grad_op --steps 3 --json");
	system_expect_text(words, "\"strategy\":\"zero2\"");
	gpt_run(0, "zinf-gpt",
	        TINY "--ranks 4 --job moved --strategy fsdp --steps 4 "
	             "--offload-param nvme --dump moved.dump");
	gpt_expect_equal_dumps("plain.dump", "moved.dump");
	gpt_run(0, "zctl", "jobs moved");
	system_expect_text(words, "strategy zero3");
	gpt_run(1, "zinf-gpt",
	        TINY "--ranks 4 --job bad --strategy zero3 --shard-size 3 --steps 1");
	system_expect_text(words, "shard_size is 3: it must divide the 4 ranks");
}

/* All ranks in one process, which is killed, and started again. */
/* Biases and layer norms do not decay: a group of their own, inside every tile. */
Test(gpt, groups_of_parameters_give_the_bits_of_the_reference)
{
	char command[700];

	gpt_run(0, "zinf-gpt",
	        TINY "--reference --ranks 2 --steps 4 --weight-decay 0.5 --dump one.dump");
	gpt_run(0, "zinf-gpt",
	        TINY "--reference --ranks 2 --steps 4 --weight-decay 0.5 --weight-decay-groups "
	             "--dump two.dump");
	(void)snprintf(command, sizeof(command), "cd %s && cmp -s one.dump two.dump", folder.path);
	cr_assert_neq(system(command), 0, "it makes a difference");
	gpt_run(0, "zinf-gpt",
	        TINY "--ranks 2 --steps 4 --weight-decay 0.5 --weight-decay-groups "
	             "--job groups --dump groups.dump");
	gpt_expect_equal_dumps("two.dump", "groups.dump");
	gpt_run(0, "zinf-gpt",
	        TINY "--ranks 2 --steps 4 --weight-decay 0.5 --weight-decay-groups "
	             "--strategy zero2 --job buckets --dump buckets.dump");
	gpt_expect_equal_dumps("two.dump", "buckets.dump");
	gpt_run(0, "zinf-gpt",
	        TINY "--ranks 2 --steps 2 --weight-decay 0.5 --weight-decay-groups --clip 0 "
	             "--grad-reduction per_micro_batch --job again");
	/* A job may go on without them. */
	gpt_run(0, "zinf-gpt", TINY "--ranks 2 --steps 3 --job again");
	system_expect_text(words, "resumed at step 2");
}

Test(gpt, replicas_in_threads_give_the_same_bits)
{
	gpt_run(0, "zinf-gpt", TINY "--reference --ranks 3 --steps 4 --dump plain.dump");
	gpt_run(0, "zinf-gpt",
	        TINY "--ranks 3 --job threads --strategy dp --steps 4 --dump dp.dump");
	system_expect_text(words, "strategy dp, gradients reduced per step");
	gpt_expect_equal_dumps("plain.dump", "dp.dump");
	gpt_run(0, "zinf-gpt",
	        TINY "--ranks 3 --job killed --strategy dp --steps 4 --restarts 1 "
	             "--exit-after-step 2 --exit-rank 1 --dump killed.dump");
	system_expect_text(words, "the process of all was killed by signal 9");
	system_expect_text(words, "starting all 3 ranks again");
	gpt_expect_equal_dumps("plain.dump", "killed.dump");
	gpt_run(1, "zinf-gpt", TINY "--ranks 3 --job threads --strategy dp --steps 5 --f32-grads");
	system_expect_text(words, "the process of all ended with code 1");
}

Test(gpt, parameters_alone_begin_at_step_0)
{
	gpt_run(0, "zinf-gpt", TINY "--ranks 1 --job base --steps 2");
	gpt_run(0, "zctl", "export base base.safetensors");
	gpt_run(0, "zctl", "load base.safetensors tuned");
	gpt_run(0, "zinf-gpt", TINY "--ranks 1 --job tuned --load tuned/step-0 --steps 2");
	system_expect_text(words, "resumed at step 0, after 0 tokens");
}

/* The progress line of @step: "loss 5.1234  norm …", without the times. */
static void loss_of(const char *step, char loss[static 64])
{
	const char *line = strstr(words, step);

	cr_assert_not_null(line, "%s is not in: %s", step, words);
	line = strstr(line, "loss ");
	cr_assert_not_null(line, "%s", words);
	(void)snprintf(loss, 64, "%.*s", (int)strcspn(line, "l") + 12, line);
}

/* Of the JSON lines of a run: the rates of steps @first to @last are those of OneCycle. */
static void expect_one_cycle(uint64_t first, uint64_t last)
{
	struct zinf_lr_options options;
	struct zinf_lr_value value;

	cr_assert_eq(zinf_lr_defaults(ZINF_LR_ONE_CYCLE, &options), 0);
	options.min_lr = 1e-3;
	options.max_lr = 3e-3;
	options.first_count = 2;
	options.second_count = 3;
	for (uint64_t step = first; step <= last; step++) {
		char mark[32];
		const char *line, *rate;

		cr_assert_eq(zinf_lr_at(&options, step - 1, &value), 0);
		(void)snprintf(mark, sizeof(mark), "\"step\":%d,", (int)step);
		line = strstr(words, mark);
		cr_assert_not_null(line, "%s is not in: %s", mark, words);
		rate = strstr(line, "\"lr\":");
		cr_assert_not_null(rate, "%s", line);
		cr_assert_eq(strtod(rate + 5, NULL), value.lr, "step %d: %.60s", (int)step, rate);
	}
}

#define CYCLE                                                                         \
	"--layers 1 --heads 1 --d-model 16 --seq-len 16 --batch-size 1 --staging 4M " \
	"--ranks 2 --lr-schedule OneCycle --warmup 2 --lr-total 5 --lr 3e-3 --min-lr 1e-3 --json "

Test(gpt, a_schedule_goes_on_where_the_job_stood)
{
	gpt_run(0, "zinf-gpt", CYCLE "--job whole --steps 6 --dump whole.dump");
	expect_one_cycle(1, 6);
	gpt_run(0, "zinf-gpt", CYCLE "--job halves --steps 3");
	expect_one_cycle(1, 3);
	gpt_run(0, "zinf-gpt", CYCLE "--job halves --steps 6 --dump halves.dump");
	expect_one_cycle(4, 6);
	gpt_expect_equal_dumps("whole.dump", "halves.dump");
	/* Rates and momenta are the trainer's: the reference has the same bits by them. */
	gpt_run(0, "zinf-gpt", CYCLE "--reference --steps 6 --dump reference.dump");
	expect_one_cycle(1, 6);
	gpt_expect_equal_dumps("whole.dump", "reference.dump");
}

/* Weights times -1e12 in the first step: there is no finite gradient from then on. */
#define SKIPS                                                                                  \
	"--layers 1 --heads 1 --d-model 16 --seq-len 16 --batch-size 1 --staging 4M "          \
	"--ranks 2 --lr-schedule linear --warmup 0 --lr-total 10 --lr 1e6 --weight-decay 1e6 " \
	"--skip-nonfinite --json "

/* Both ranks' lines of @step: rate and whether it was skipped. */
static void expect_step(unsigned step, double lr, unsigned skipped)
{
	for (unsigned rank = 0; rank < 2; rank++) {
		char mark[48], wanted[64];
		const char *line;

		(void)snprintf(mark, sizeof(mark), "\"step\":%u,\"rank\":%u,", step, rank);
		line = strstr(words, mark);
		cr_assert_not_null(line, "%s is not in: %s", mark, words);
		(void)snprintf(wanted, sizeof(wanted), "\"lr\":%.17g,\"skipped\":%u,", lr, skipped);
		line = strstr(line, "\"lr\":");
		cr_assert(line && !strncmp(line, wanted, strlen(wanted)), "%s%s is not: %.60s",
		          mark, wanted, line);
	}
}

Test(gpt, skipped_steps_are_none_to_a_schedule_also_when_it_goes_on)
{
	gpt_run(0, "zinf-gpt", SKIPS "--job skips --steps 3 --dump skips.dump");
	expect_step(1, 1e6, 0);
	expect_step(2, 9e5, 1);
	expect_step(3, 9e5, 1);
	gpt_run(0, "zinf-gpt", SKIPS "--job skips --steps 5 --dump skips.dump");
	system_expect_text(words, "\"event\":\"resumed\",\"step\":3,");
	expect_step(4, 9e5, 1);
	expect_step(5, 9e5, 1);
	gpt_run(0, "zinf-gpt", SKIPS "--reference --steps 5 --dump reference.dump");
	gpt_expect_equal_dumps("skips.dump", "reference.dump");
}

/* Rank 1 is stopped when a step is committed. Rank 0 waits --timeout for it, and the run ends with
 * the code that a wrapper starts again; the stopped rank does not outlive it. */
Test(gpt, a_stopped_rank_is_named_and_the_run_may_be_started_again)
{
	gpt_run(0, "zinf-gpt",
	        "--version; mkfifo steps; $program " TINY "--ranks 2 --job hung --steps 1000000 "
	        "--timeout 3 --quiet --watch steps 2>errors & parent=$!; exec 3<steps; "
	        "read step <&3; set -- $(pgrep -P $parent); kill -STOP $2; cat <&3 >/dev/null; "
	        "wait $parent; echo code $?; kill -0 $2 2>/dev/null && echo alive; cat errors");
	system_expect_text(words, "code 75\n");
	system_expect_text(words, "rank 1");
	cr_expect_null(strstr(words, "alive"), "%s", words);
	gpt_run(0, "zctl", "jobs hung");
}

/* zinf-gpt beside the program that gpt_run() starts. */
#define GPT "$(dirname $program)/zinf-gpt "

Test(gpt, zctl_launch_starts_a_killed_rank_again_and_the_bits_are_the_same)
{
	gpt_run(0, "zinf-gpt", TINY "--ranks 2 --job whole --steps 6 --dump whole.dump");
	gpt_run(0, "zctl",
	        "launch --nproc-per-node 2 --max-restarts 1 --job killed " GPT TINY
	        "--steps 6 --exit-after-step 3 --exit-rank 1 --dump killed.dump");
	system_expect_text(words, "zctl: rank 1 (pid ");
	system_expect_text(words, ") was killed by signal 9 (Killed) after ");
	system_expect_text(words, "zctl: starting all 2 ranks again (1 of 1)\n");
	system_expect_text(words, "[rank 0]: ");
	system_expect_text(words, "resumed at step ");
	cr_assert(!strstr(words, "resumed at step 0"), "%s", words);
	gpt_expect_equal_dumps("whole.dump", "killed.dump");
	/* Without restarts it is over, and the job stays. */
	gpt_run(128 + 9, "zctl",
	        "launch --nproc-per-node 2 --job once " GPT TINY
	        "--steps 6 --exit-after-step 3 --exit-rank 0");
	gpt_run(0, "zctl", "jobs once");
}

/* Its ranks are no children of one process that could show them a page. */
Test(gpt, ranks_of_a_launcher_tell_each_other_their_losses)
{
	char plain[64], launched[64];

	gpt_run(0, "zinf-gpt", TINY "--ranks 3 --job plain --steps 3 --eval-every 3");
	loss_of("step 3/3", plain);
	gpt_run(0, "zctl",
	        "launch --nproc-per-node 3 --job launched " GPT TINY "--steps 3 --eval-every 3");
	loss_of("step 3/3", launched);
	cr_assert_str_eq(launched, plain);
}

/* Debian's 1.13 does not, under its own Python. */
Test(gpt, torchrun_starts_ranks_and_starts_them_again, .timeout = 400)
{
	if (!system_has_torchrun())
		gpt_skip("no torchrun that starts a program is installed");
	if (!system_torchrun_restarts())
		gpt_skip("this torchrun starts nothing again");
	gpt_run(0, "zinf-gpt", TINY "--ranks 2 --job whole --steps 6 --dump whole.dump");
	gpt_run(0, "zinf-gpt",
	        "--version; " SYSTEM_TORCHRUN "--nproc_per_node 2 --max-restarts 1 "
	        "$program " TINY "--job torch --steps 6 --exit-after-step 3 --exit-rank 1 "
	        "--dump torch.dump");
	cr_assert(strstr(words, "resumed at step "), "%s", words);
	gpt_expect_equal_dumps("whole.dump", "torch.dump");
}

Test(gpt, mpirun_starts_ranks_that_know_who_they_are)
{
	if (system("command -v mpirun >/dev/null 2>&1"))
		gpt_skip("mpirun is not installed");
	gpt_run(0, "zinf-gpt", TINY "--ranks 2 --job plain --steps 2 --dump plain.dump");
	gpt_run(0, "zinf-gpt",
	        "--version; mpirun $([ $(id -u) = 0 ] && echo --allow-run-as-root) --oversubscribe "
	        "-n 2 $program " TINY "--job mpi --steps 2 --dump mpi.dump");
	gpt_expect_equal_dumps("plain.dump", "mpi.dump");
}
