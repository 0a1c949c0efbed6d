/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: --resume goes on from where it says, with the bits of a run that nothing interrupted, and
 * where the job does not stand there it is refused with what to do instead; nothing is lost.
 * Method: zinf-gpt and zctl as commands.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/system/gpt.h"

#define MODEL "--layers 1 --heads 1 --d-model 16 --seq-len 16 --batch-size 1 --bf16 --staging 4M "
#define TRAIN MODEL "--ranks 2 --warmup 1 --lr 1e-3 --min-lr 1e-3 --log-every 1 "

TestSuite(gpt_resume, .init = gpt_start, .fini = files_stop, .timeout = 120);

Test(gpt_resume, latest_goes_on_where_the_job_stands)
{
	gpt_run(0, "zinf-gpt", TRAIN "--job whole --steps 4 --dump whole.dump");
	gpt_run(1, "zinf-gpt", TRAIN "--job half --resume latest --steps 4");
	system_expect_text(words, "--resume latest: job 'half' has no committed step");
	gpt_run(0, "zctl", "jobs");
	cr_expect_null(strstr(words, "half"), "%s", words);
	gpt_run(0, "zinf-gpt", TRAIN "--job half --steps 2");
	gpt_run(0, "zinf-gpt", TRAIN "--job half --resume latest --steps 4 --dump half.dump");
	system_expect_text(words, "resumed at step 2");
	gpt_expect_equal_dumps("whole.dump", "half.dump");
}

Test(gpt_resume, a_step_is_the_one_that_the_job_stands_at)
{
	gpt_run(0, "zinf-gpt", TRAIN "--job whole --steps 4 --dump whole.dump");
	gpt_run(0, "zinf-gpt", TRAIN "--job half --steps 2");
	gpt_run(1, "zinf-gpt", TRAIN "--job half --resume 1 --steps 4");
	system_expect_text(words, "--resume 1: job 'half' is at step 2; if that step was kept");
	system_expect_text(words, "(--job NAME --resume half/step-1)");
	gpt_run(1, "zinf-gpt", TRAIN "--job new --resume 1 --steps 4");
	system_expect_text(words, "--resume 1: job 'new' is new, and there is neither a snapshot "
	                          "new/step-1 nor new/auto-000001");
	gpt_run(0, "zctl", "jobs");
	cr_expect_null(strstr(words, "new"), "%s", words);
	gpt_run(0, "zinf-gpt", TRAIN "--job half --resume 2 --steps 4 --dump half.dump");
	gpt_expect_equal_dumps("whole.dump", "half.dump");
}

Test(gpt_resume, a_step_that_was_kept_is_gone_on_from_when_its_job_is_gone)
{
	char line[400];

	gpt_run(0, "zinf-gpt", TRAIN "--job whole --steps 4 --dump whole.dump");
	/* By itself, and by who asked for it. */
	for (size_t i = 0; i < 2; i++) {
		(void)snprintf(line, sizeof(line), TRAIN "--job kept --steps 2 %s",
		               i ? "" : "--snapshot-interval 2");
		gpt_run(0, "zinf-gpt", line);
		if (i)
			gpt_run(0, "zctl", "snapshot kept");
		gpt_run(0, "zinf-gpt", TRAIN "--job kept --steps 3 --delete-job");
		gpt_run(0, "zinf-gpt",
		        TRAIN "--job kept --resume 2 --steps 4 --dump kept.dump --delete-job");
		system_expect_text(words, "resumed at step 2");
		gpt_expect_equal_dumps("whole.dump", "kept.dump");
		gpt_run(0, "zctl", i ? "snapshot rm kept/step-2" : "snapshot rm kept/auto-000002");
	}
}

/* Whether it is of any use is asked only where it is needed. */
Test(gpt_resume, a_snapshot_that_is_of_no_use_is_no_matter_where_the_job_stands)
{
	gpt_run(0, "zinf-gpt", TRAIN "--job kept --steps 2 --optimizer sgd");
	gpt_run(0, "zctl", "snapshot kept");
	gpt_run(0, "zinf-gpt", TRAIN "--job kept --steps 2 --optimizer sgd --delete-job");
	gpt_run(1, "zinf-gpt", TRAIN "--job kept --resume 2 --steps 4");
	system_expect_text(words,
	                   "--resume 2: job 'kept' is new, and its snapshot cannot be gone on "
	                   "from: 'kept/step-2' is a snapshot with other optimizer state");
	gpt_run(0, "zinf-gpt", TRAIN "--job kept --steps 2");
	gpt_run(0, "zinf-gpt", TRAIN "--job kept --resume 2 --steps 3");
	system_expect_text(words, "resumed at step 2");
}

Test(gpt_resume, a_snapshot_is_gone_on_from_under_another_name)
{
	gpt_run(0, "zinf-gpt", TRAIN "--job whole --steps 4 --dump whole.dump");
	gpt_run(0, "zinf-gpt", TRAIN "--job base --steps 2");
	gpt_run(0, "zctl", "snapshot base --name best");
	gpt_run(0, "zinf-gpt", TRAIN "--job base --steps 3");
	gpt_run(0, "zinf-gpt", TRAIN "--job other --resume base/best --steps 4 --dump other.dump");
	system_expect_text(words, "resumed at step 2");
	gpt_expect_equal_dumps("whole.dump", "other.dump");
	/* One of fewer ranks has no word for the others: the step names the batches. */
	gpt_run(0, "zinf-gpt", TRAIN "--job wide --resume base/best --steps 3");
	gpt_run(1, "zinf-gpt", TRAIN "--job none --resume base/worst --steps 4");
	system_expect_text(words, "no snapshot 'base/worst'");
	/* What was trained is used from there as well. */
	gpt_run(0, "zinf-gpt",
	        MODEL "--job look --resume base/best --generate 5 --temperature 0 --json");
	system_expect_text(words, "{\"event\":\"text\",\"step\":2,");
	gpt_run(1, "zinf-gpt", MODEL "--job base --resume 2 --generate 5");
	system_expect_text(words, "job 'base' is at step 3");
	gpt_run(0, "zinf-gpt", MODEL "--job base --resume 3 --generate 5");
}

/* They were further than what was asked for. */
Test(gpt_resume, ranks_that_are_started_again_go_on_from_where_they_were)
{
	gpt_run(0, "zinf-gpt", TRAIN "--job whole --steps 5 --dump whole.dump");
	gpt_run(0, "zinf-gpt", TRAIN "--job killed --steps 1");
	gpt_run(0, "zinf-gpt",
	        TRAIN "--job killed --resume 1 --steps 5 --restarts 1 --exit-after-step 3 "
	              "--exit-rank 1 --dump killed.dump");
	system_expect_text(words, "starting all 2 ranks again");
	gpt_expect_equal_dumps("whole.dump", "killed.dump");
}

/* A refused start is a new job as well, so each of them loses its own. */
Test(gpt_resume, state_that_ended_with_the_daemon_is_not_begun_anew_in_silence)
{
#define IN_MEMORY                                                                  \
	"--layers 1 --heads 1 --d-model 16 --seq-len 16 --batch-size 1 --ranks 2 " \
	"--offload-optimizer cpu "
	gpt_run(0, "zinf-gpt", IN_MEMORY "--job again --steps 2");
	cr_expect_null(strstr(words, "was lost"), "%s", words);
	gpt_run(0, "zinf-gpt", IN_MEMORY "--job latest --steps 3");
	cr_assert_eq(harness_halt(&harness), 0);
	cr_assert_eq(harness_restart(&harness), 0);
	gpt_run(1, "zinf-gpt", IN_MEMORY "--job latest --resume latest");
	system_expect_text(words, "--resume latest: job 'latest' was at step 3 with its state in "
	                          "memory, which was lost when zinfd ended");
	gpt_run(0, "zinf-gpt", IN_MEMORY "--job again --steps 1");
	system_expect_text(words, "job 'again' was at step 2 with its state in memory, which was "
	                          "lost when zinfd ended: it starts at step 0. ");
	gpt_run(0, "zinf-gpt", IN_MEMORY "--job again --steps 2");
	cr_expect_null(strstr(words, "was lost"), "%s", words);
}

Test(gpt_resume, a_run_that_is_over_already_says_so)
{
	gpt_run(0, "zinf-gpt", TRAIN "--job over --steps 2");
	cr_expect_null(strstr(words, "nothing to do"), "%s", words);
	gpt_run(0, "zinf-gpt", TRAIN "--job over --steps 2");
	system_expect_text(words, "resumed at step 2");
	system_expect_text(words, "nothing to do: --steps 2 is reached\n");
	gpt_run(0, "zinf-gpt", TRAIN "--job over --steps 1 --json");
	system_expect_text(words, "{\"event\":\"nothing_to_do\",\"step\":2,\"steps\":1}\n");
}

/* SIGINT behind the second step. @environment: of a launcher's rank, or "". A shell's background
 * jobs ignore the signal: env gives it back. */
static void interrupt(const char *environment, const char *job)
{
	char line[700];

	(void)snprintf(
		line, sizeof(line),
		"--version; rm -f steps; mkfifo steps; env --default-signal=INT %s $program " TRAIN
		"%s --job %s --steps 1000000 --watch steps 2>errors & pid=$!; "
		"exec 3<steps; read step <&3; read step <&3; kill -INT $pid; "
		"cat <&3 >/dev/null; wait $pid; echo code $?; cat errors",
		environment, *environment ? "--ranks 1" : "", job);
	gpt_run(0, "zinf-gpt", line);
	system_expect_text(words, "code 130\n");
	system_expect_text(words, "zinf-gpt: stopped at step ");
	system_expect_text(words, ", which is committed; the same command goes on from there\n");
	cr_expect_null(strstr(words, "ending the others"), "%s", words);
}

Test(gpt_resume, ctrl_c_names_the_step_that_the_same_command_goes_on_from)
{
	interrupt("", "plain");
	gpt_run(0, "zinf-gpt", TRAIN "--job plain --steps 3");
	system_expect_text(words, "resumed at step ");
	/* As the one rank of a launcher's job, without a parent of its own. */
	interrupt("RANK=0 WORLD_SIZE=1", "launched");
	gpt_run(0, "zinf-gpt", MODEL "--job launched --steps 3");
	system_expect_text(words, "resumed at step ");
}

Test(gpt_resume, what_cannot_be_is_said_at_once)
{
	static const struct {
		const char *flags, *words;
	} cases[] = {
		{ "--resume never",
		  "--resume never: allowed are the number of a step, \"latest\", or JOB/NAME" },
		{ "--resume -1", "--resume -1: allowed are the number of a step" },
		{ "--resume 9223372036854775808", "the number of a step" },
		{ "--resume 1 --load a/b", "--resume 1 and --load a/b exclude each other" },
		{ "--resume latest --reference", "--reference has none" },
	};
	char line[300];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		(void)snprintf(line, sizeof(line), TRAIN "--steps 1 %s", cases[i].flags);
		gpt_run(2, "zinf-gpt", line);
		system_expect_text(words, cases[i].words);
	}
	/* A name alone is no snapshot. */
	gpt_run(1, "zinf-gpt", TRAIN "--steps 1 --resume base/");
	system_expect_text(words, "'base/' is not JOB/NAME of a snapshot");
}
