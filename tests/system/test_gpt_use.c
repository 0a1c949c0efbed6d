/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job that was trained writes text and tells its loss on a file, from wherever its
 * parameters lie, and stands as it stood. Method: zinf-gpt and zctl as commands; what they print,
 * and dumps of training that went on, compared with those of training that nothing interrupted.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/system/files.h"

#define MODEL "--layers 2 --heads 2 --d-model 16 --seq-len 16 --batch-size 2 --bf16 --staging 4M "
#define TRAIN MODEL "--ranks 2 --warmup 1 --lr 1e-3 --min-lr 1e-3 --log-every 1 "

static void start(void)
{
	files_start();
	cr_assert_eq(setenv("ZINF_SOCKET", harness.socket_path, 1), 0);
}

TestSuite(use, .init = start, .fini = files_stop, .timeout = 120);

/* Runs a program of this build in the folder, its errors behind its output; must end with @code. */
static void run(int code, const char *program, const char *arguments)
{
	char path[300], command[1024];
	size_t bytes;
	FILE *pipe;
	int got;

	harness_program(program, path, sizeof(path));
	if (access(path, X_OK)) {
		files_stop(); /* .fini does not run. */
		cr_skip_test("zinf-gpt was not built");
	}
	(void)snprintf(command, sizeof(command), "program=$(realpath %s); cd %s; $program %s 2>&1",
	               path, folder, arguments);
	pipe = popen(command, "r");
	cr_assert_not_null(pipe);
	bytes = fread(words, 1, sizeof(words) - 1, pipe);
	words[bytes] = '\0';
	got = pclose(pipe);
	cr_assert(WIFEXITED(got) && WEXITSTATUS(got) == code, "%s %s ended with %d: %s", program,
	          arguments, got, words);
}

static char former[1 << 16]; /* what an earlier run printed */

static void remember(void)
{
	memcpy(former, words, sizeof(former));
}

Test(use, text_is_the_same_from_everywhere_and_training_goes_on)
{
	run(0, "zinf-gpt", TRAIN "--job whole --steps 6 --dump whole.dump");
	run(0, "zinf-gpt", TRAIN "--job half --steps 3");
	run(0, "zinf-gpt", MODEL "--job half --generate 40 --prompt 'The free' --seed 3");
	cr_expect_eq(strncmp(words, "The free", 8), 0, "%s", words);
	cr_expect_eq(strlen(words), 8 + 40 + 1, "%s", words);
	remember();
	run(0, "zinf-gpt",
	    MODEL "--job half --generate 40 --prompt 'The free' --seed 3 --offload-param nvme");
	cr_expect_str_eq(words, former);
	run(0, "zinf-gpt", MODEL "--job half --generate 40 --prompt 'The free' --seed 4");
	cr_expect_str_neq(words, former);
	run(0, "zinf-gpt", MODEL "--job half --generate 5 --temperature 0 --json");
	system_expect_text(words, "{\"event\":\"text\",\"step\":3,\"text\":\"\\u000a");
	run(0, "zinf-gpt", TRAIN "--job half --steps 6 --dump half.dump");
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
	run(0, "zinf-gpt", TRAIN "--job gpt --steps 3");
	run(0, "zinf-gpt", MODEL "--job gpt --eval text --json");
	system_expect_text(words, "{\"event\":\"eval_text\",\"step\":3,\"bytes\":1664,");
	remember();
	run(0, "zinf-gpt", MODEL "--job gpt --eval text --json --offload-param cpu");
	cr_expect_str_eq(words, former);
	run(0, "zinf-gpt", MODEL "--job gpt --eval text --json --offload-param nvme");
	cr_expect_str_eq(words, former);
	/* Several ranks, also without a page that they share. */
	run(0, "zinf-gpt", MODEL "--job gpt --eval text --ranks 3");
	system_expect_text(words, "text: loss 5.");
	remember();
	run(0, "zctl",
	    "launch --nproc-per-node 3 --job gpt $(dirname $program)/zinf-gpt " MODEL
	    "--eval text");
	former[strcspn(former, "(")] = '\0'; /* what zctl puts before and behind it is its own */
	system_expect_text(words, former);
	run(1, "zinf-gpt", MODEL "--job gpt --eval nowhere");
	system_expect_text(words, "--eval nowhere: No such file");
	file = fopen(path_of("short"), "we");
	cr_assert_not_null(file);
	fputs("sixteen bytes...", file);
	fclose(file);
	run(1, "zinf-gpt", MODEL "--job gpt --eval short");
	system_expect_text(words, "--eval short holds 16 bytes; --seq-len 16 needs at least 17");
}

Test(use, a_snapshot_is_used_under_another_name)
{
	run(0, "zinf-gpt", TRAIN "--job base --steps 2");
	run(0, "zctl", "snapshot base --name early");
	run(0, "zinf-gpt", MODEL "--job base --generate 20 --temperature 0");
	remember();
	run(0, "zinf-gpt", TRAIN "--job base --steps 5");
	run(0, "zinf-gpt",
	    MODEL "--job look --load base/early --generate 20 --temperature 0 --delete-job");
	cr_expect_str_eq(words, former);
	run(0, "zctl", "jobs");
	cr_expect_null(strstr(words, "look"), "%s", words);
}

Test(use, a_job_that_holds_nothing_is_said_and_not_left_behind)
{
	run(1, "zinf-gpt", MODEL "--job nothing --generate 20");
	system_expect_text(words, "the job has no parameters yet: train it first");
	run(1, "zinf-gpt", MODEL "--job nothing --ranks 2 --eval /usr/share/common-licenses/BSD");
	system_expect_text(words, "the job has no parameters yet: train it first");
	run(0, "zctl", "jobs");
	cr_expect_null(strstr(words, "nothing"), "%s", words);
	run(0, "zinf-gpt", TRAIN "--job gpt --steps 1");
	run(1, "zctl",
	    "launch --nproc-per-node 2 --job gpt $(dirname $program)/zinf-gpt " MODEL
	    "--generate 9");
	system_expect_text(words, "--generate takes one rank, and 2 were started");
	run(0, "zctl", "jobs gpt");
}
