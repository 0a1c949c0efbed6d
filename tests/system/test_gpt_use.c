/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job that was trained writes text and tells its loss on a file, from wherever its
 * parameters lie, and stands as it stood. Method: zinf-gpt and zctl as commands; what they print,
 * and dumps of training that went on, compared with those of training that nothing interrupted.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/system/gpt.h"

#define MODEL "--layers 2 --heads 2 --d-model 16 --seq-len 16 --batch-size 2 --bf16 --staging 4M "
#define PLAIN "--layers 2 --heads 2 --d-model 16 --seq-len 16 --batch-size 2 --staging 4M "
#define TRAIN MODEL "--ranks 2 --warmup 1 --lr 1e-3 --min-lr 1e-3 --log-every 1 "

static void start_large(void)
{
	gpt_start_with("192M");
}

TestSuite(use_tight, .init = start_large, .fini = files_stop, .timeout = 120);
TestSuite(use, .init = gpt_start, .fini = files_stop, .timeout = 120);

static char former[1 << 16]; /* what an earlier run printed */

static void remember(void)
{
	memcpy(former, words, sizeof(former));
}

Test(use, text_is_the_same_from_everywhere_and_training_goes_on)
{
	gpt_run(0, "zinf-gpt", TRAIN "--job whole --steps 6 --dump whole.dump");
	gpt_run(0, "zinf-gpt", TRAIN "--job half --steps 3");
	gpt_run(0, "zinf-gpt", MODEL "--job half --generate 40 --prompt 'The free' --seed 3");
	cr_expect_eq(strncmp(words, "The free", 8), 0, "%s", words);
	cr_expect_eq(strlen(words), 8 + 40 + 1, "%s", words);
	remember();
	gpt_run(0, "zinf-gpt",
	        MODEL "--job half --generate 40 --prompt 'The free' --seed 3 --offload-param nvme");
	cr_expect_str_eq(words, former);
	gpt_run(0, "zinf-gpt", MODEL "--job half --generate 40 --prompt 'The free' --seed 4");
	cr_expect_str_neq(words, former);
	gpt_run(0, "zinf-gpt", MODEL "--job half --generate 5 --temperature 0 --json");
	system_expect_text(words, "{\"event\":\"text\",\"step\":3,\"text\":\"\\u000a");
	gpt_run(0, "zinf-gpt", TRAIN "--job half --steps 6 --dump half.dump");
	(void)snprintf(former, sizeof(former), "cmp %s %s", path_of("whole.dump"),
	               path_of("half.dump"));
	cr_expect_eq(system(former), 0);
}

Test(use, the_loss_of_a_text_is_the_same_from_everywhere)
{
	FILE *file = fopen(path_of("text"), "we");

	cr_assert_not_null(file);
	for (unsigned i = 0; i < 40; i++)
		fprintf(file, "line %u of a text that nobody trained on\n", i * i);
	fclose(file);
	gpt_run(0, "zinf-gpt", TRAIN "--job gpt --steps 3");
	gpt_run(0, "zinf-gpt", MODEL "--job gpt --eval text --json");
	system_expect_text(words, "{\"event\":\"eval_text\",\"step\":3,\"bytes\":1664,");
	remember();
	gpt_run(0, "zinf-gpt", MODEL "--job gpt --eval text --json --offload-param cpu");
	cr_expect_str_eq(words, former);
	gpt_run(0, "zinf-gpt", MODEL "--job gpt --eval text --json --offload-param nvme");
	cr_expect_str_eq(words, former);
	/* Several ranks, also without a page that they share. */
	gpt_run(0, "zinf-gpt", MODEL "--job gpt --eval text --ranks 3");
	system_expect_text(words, "text: loss 5.");
	remember();
	gpt_run(0, "zctl",
	        "launch --nproc-per-node 3 --job gpt $(dirname $program)/zinf-gpt " MODEL
	        "--eval text");
	former[strcspn(former, "(")] = '\0'; /* what zctl puts before and behind it is its own */
	system_expect_text(words, former);
	gpt_run(1, "zinf-gpt", MODEL "--job gpt --eval nowhere");
	system_expect_text(words, "--eval nowhere: No such file");
	file = fopen(path_of("short"), "we");
	cr_assert_not_null(file);
	fputs("sixteen bytes...", file);
	fclose(file);
	gpt_run(1, "zinf-gpt", MODEL "--job gpt --eval short");
	system_expect_text(words, "--eval short holds 16 bytes; --seq-len 16 needs at least 17");
}

Test(use, a_snapshot_is_used_under_another_name)
{
	gpt_run(0, "zinf-gpt", TRAIN "--job base --steps 2");
	gpt_run(0, "zctl", "snapshot base --name early");
	gpt_run(0, "zinf-gpt", MODEL "--job base --generate 20 --temperature 0");
	remember();
	gpt_run(0, "zinf-gpt", TRAIN "--job base --steps 5");
	gpt_run(0, "zinf-gpt",
	        MODEL "--job look --load base/early --generate 20 --temperature 0 --delete-job");
	cr_expect_str_eq(words, former);
	gpt_run(0, "zctl", "jobs");
	cr_expect_null(strstr(words, "look"), "%s", words);
	/* It may stay: there is nothing of training in it. */
	gpt_run(0, "zinf-gpt",
	        MODEL "--job look --load base/early --generate 20 --temperature 0 "
	              "--offload-param nvme --strategy zero3");
	cr_expect_str_eq(words, former);
	gpt_run(0, "zctl", "jobs look");
	system_expect_text(words, "forward only: neither gradients nor optimizer state");
	gpt_run(0, "zinf-gpt", MODEL "--job look --generate 20 --temperature 0");
	cr_expect_str_eq(words, former);
	gpt_run(1, "zinf-gpt", TRAIN "--job look --steps 5");
	system_expect_text(
		words, "job 'look' was created with is_forward_only and has no optimizer state");
	/* As it says: from its parameters alone, and an optimizer that begins anew. */
	gpt_run(0, "zctl", "export look look.safetensors");
	gpt_run(0, "zctl", "load look.safetensors tuned/plain");
	gpt_run(0, "zctl", "export look look --format zinf");
	gpt_run(0, "zctl", "load look tuned/whole");
	gpt_run(0, "zinf-gpt", TRAIN "--job one --load tuned/plain --steps 2 --dump one.dump");
	gpt_run(0, "zinf-gpt", TRAIN "--job two --load tuned/whole --steps 4");
	system_expect_text(words, "resumed at step 2");
}

/* What was trained with another optimizer is used without its flag, and from all places alike; a
 * snapshot of state in memory too. */
Test(use, the_loss_is_that_of_training_wherever_parameters_lie)
{
	static const char *const places[] = { "", "--offload-param cpu", "--offload-param nvme" };
	char line[400];

	gpt_run(0, "zinf-gpt",
	        TRAIN "--job lion --optimizer lion --steps 3 --offload-optimizer cpu");
	gpt_run(0, "zinf-gpt",
	        MODEL "--job lion --eval /usr/share/common-licenses/BSD --json "
	              "--offload-optimizer cpu");
	system_expect_text(words, "{\"event\":\"eval_text\",\"step\":3,");
	remember();
	gpt_run(0, "zctl", "jobs lion");
	system_expect_text(words, "last used forward only, as it stands");
	gpt_run(0, "zctl", "snapshot lion --name a");
	for (size_t i = 0; i < 3; i++) {
		(void)snprintf(line, sizeof(line),
		               MODEL "--job look --load lion/a --delete-job --json %s "
		                     "--eval /usr/share/common-licenses/BSD",
		               places[i]);
		gpt_run(0, "zinf-gpt", line);
		cr_expect_str_eq(words, former);
	}
	/* It is as it was. */
	gpt_run(0, "zinf-gpt",
	        TRAIN "--job lion --optimizer lion --steps 6 --offload-optimizer cpu "
	              "--dump half.dump");
	gpt_run(0, "zinf-gpt",
	        TRAIN "--job whole --optimizer lion --steps 6 --offload-optimizer cpu "
	              "--dump whole.dump");
	gpt_expect_equal_dumps("half.dump", "whole.dump");
}

/* The type of parameters and the tier of the optimizer's state are the job's. */
Test(use, flags_that_the_job_knows_need_not_be_repeated)
{
	static const char *const flags[] = { "--bf16", "--fp16", "--bf16 --offload-optimizer cpu",
		                             "--fp16 --offload-optimizer none",
		                             "--offload-optimizer cpu" };
	char line[400];

	for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		(void)snprintf(line, sizeof(line), PLAIN "--steps 2 --quiet --job j%u %s", i,
		               flags[i]);
		gpt_run(0, "zinf-gpt", line);
		(void)snprintf(line, sizeof(line), PLAIN "--job j%u --generate 20 %s", i, flags[i]);
		gpt_run(0, "zinf-gpt", line);
		remember();
		(void)snprintf(line, sizeof(line), PLAIN "--job j%u --generate 20", i);
		gpt_run(0, "zinf-gpt", line);
		cr_expect_str_eq(words, former, "%s", flags[i]);
		(void)snprintf(line, sizeof(line),
		               PLAIN "--job j%u --eval /usr/share/common-licenses/BSD --ranks 2",
		               i);
		gpt_run(0, "zinf-gpt", line);
	}
	/* What is given is given, and a model of another shape has its own words. */
	gpt_run(1, "zinf-gpt", PLAIN "--job j4 --generate 20 --bf16");
	system_expect_text(words, "param_dtype is bf16, but f32 in the stored job");
	gpt_run(1, "zinf-gpt", PLAIN "--job j0 --generate 20 --layers 1");
	system_expect_text(words, "block.1");
	/* Training says what it trains. */
	gpt_run(1, "zinf-gpt", PLAIN "--job j0 --steps 3");
	system_expect_text(words, "param_dtype is f32, but bf16 in the stored job");
}

/* 5 M elements, 9.6 MiB: beside as many of gradients there is no room. */
#define WIDE "--layers 4 --heads 4 --d-model 320 --seq-len 16 --batch-size 1 --bf16 --ranks 1 "

Test(use_tight, text_takes_no_memory_for_gradients)
{
	gpt_run(0, "zinf-gpt", WIDE "--job wide --steps 1 --warmup 0 --staging 10M");
	gpt_run(0, "zinf-gpt", WIDE "--job wide --generate 4 --temperature 0");
	remember();
	cr_assert_eq(harness_halt(&harness), 0);
	harness.options.cpu_capacity = "16M";
	cr_assert_eq(harness_restart(&harness), 0);
	gpt_run(1, "zinf-gpt", WIDE "--job wide --steps 2 --staging 10M");
	system_expect_text(words, "free of 16 MiB");
	gpt_run(0, "zinf-gpt", WIDE "--job wide --generate 4 --temperature 0");
	cr_expect_str_eq(words, former);
	gpt_run(0, "zinf-gpt", WIDE "--job wide --generate 4 --temperature 0 --offload-param nvme");
	cr_expect_str_eq(words, former);
}

/* Somebody trains it, or is about to. */
static void expect_refused_beside(struct zinf *trainer, const char *why)
{
	gpt_run(1, "zinf-gpt", MODEL "--job base --generate 20");
	system_expect_text(words, why);
	gpt_run(1, "zinf-gpt", MODEL "--job base --eval /usr/share/common-licenses/BSD");
	system_expect_text(words, why);
	cr_expect_eq(zinf_ping(trainer), 0, "%s", zinf_error_text(trainer));
	gpt_run(0, "zctl", "jobs base");
}

Test(use, a_job_that_is_being_trained_is_left_alone)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct zinf *trainer;

	options.job = "base";
	options.incarnation = "alive";
	options.rank = 0;
	options.world_size = 1;
	options.param_dtype = options.grad_dtype = ZINF_BF16;
	options.offload_optimizer = ZINF_OFFLOAD_NVME;
	options.staging_bytes = 4 << 20;
	cr_assert_eq(zinf_attach(&options, &trainer), 0, "%s", zinf_attach_error());
	expect_refused_beside(trainer, "has 1 living ranks");
	zinf_detach(trainer);
}

Test(use, a_job_that_holds_nothing_is_said_and_not_left_behind)
{
	gpt_run(1, "zinf-gpt", MODEL "--job nothing --generate 20");
	system_expect_text(words, "the job has no parameters yet: train it first");
	gpt_run(1, "zinf-gpt",
	        MODEL "--job nothing --ranks 2 --eval /usr/share/common-licenses/BSD");
	system_expect_text(words, "the job has no parameters yet: train it first");
	gpt_run(0, "zctl", "jobs");
	cr_expect_null(strstr(words, "nothing"), "%s", words);
	gpt_run(0, "zinf-gpt", TRAIN "--job gpt --steps 1");
	gpt_run(1, "zctl",
	        "launch --nproc-per-node 2 --job gpt $(dirname $program)/zinf-gpt " MODEL
	        "--generate 9");
	system_expect_text(words, "--generate takes one rank, and 2 were started");
	gpt_run(0, "zctl", "jobs gpt");
}
