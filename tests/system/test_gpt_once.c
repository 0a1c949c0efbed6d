/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks read a text once, and those whose part of it is at its end first wait in zinf_join();
 * parameters end in the bits of the reference, from every place, also when ranks were killed.
 * Method: zinf-gpt as a command on a text of 21 batches; dumps compared.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/system/gpt.h"

#define TINY                                                                          \
	"--layers 1 --heads 1 --d-model 16 --seq-len 16 --batch-size 1 --staging 4M " \
	"--warmup 1 --log-every 1 --data text --once "

/* 9 of 10 bytes are trained on: 21 windows of 16, and 14 bytes more. */
static void start(void)
{
	FILE *file;

	gpt_start();
	file = fopen(path_of("text"), "we");
	cr_assert_not_null(file);
	for (unsigned i = 0; i < 390; i++)
		fputc(i % 39 == 38 ? '\n' : 'a' + (int)(i * i % 26), file);
	fclose(file);
}

TestSuite(once, .init = start, .fini = files_stop, .timeout = 120);

static void expect_same_bits(const char *flags)
{
	char line[512];

	(void)snprintf(line, sizeof(line), TINY "%s --reference --dump plain", flags);
	gpt_run(0, "zinf-gpt", line);
	(void)snprintf(line, sizeof(line), TINY "%s --delete-job --dump once", flags);
	gpt_run(0, "zinf-gpt", line);
	gpt_expect_equal_dumps("plain", "once");
}

Test(once, ranks_without_text_leave_the_bits_of_the_reference)
{
	/* 21 batches: of 4 ranks one has a sixth; of 5 also; of 3 all have seven. */
	expect_same_bits("--ranks 4");
	system_expect_text(words, "step 6/6");
	expect_same_bits("--ranks 5 --bf16 --strategy zero2 --clip 0");
	expect_same_bits("--ranks 3");
	system_expect_text(words, "step 7/7");
	expect_same_bits(
		"--ranks 2 --grad-accum 2 --grad-reduction per_micro_batch --offload-param nvme");
	expect_same_bits("--ranks 4 --strategy dp --no-sync --grad-accum 2");
	/* More ranks than batches. */
	expect_same_bits("--ranks 3 --batch-size 8");
}

Test(once, a_killed_rank_goes_on_to_the_same_end)
{
	gpt_run(0, "zinf-gpt", TINY "--ranks 4 --reference --dump plain");
	gpt_run(0, "zinf-gpt",
	        TINY "--ranks 4 --job killed --restarts 1 --exit-after-step 4 --exit-rank 3 "
	             "--dump killed");
	system_expect_text(words, "starting all 4 ranks again");
	gpt_expect_equal_dumps("plain", "killed");
	/* All of it was read: there is nothing left to do. */
	gpt_run(0, "zinf-gpt", TINY "--ranks 4 --job killed --dump again");
	system_expect_text(words, "resumed at step 6");
	gpt_expect_equal_dumps("plain", "again");
}

Test(once, ranks_of_a_launcher_do_so_too)
{
	gpt_run(0, "zinf-gpt", TINY "--ranks 4 --reference --dump plain");
	gpt_run(0, "zctl",
	        "launch --nproc-per-node 4 --job launched $(dirname $program)/zinf-gpt " TINY
	        "--dump launched");
	gpt_expect_equal_dumps("plain", "launched");
}

Test(once, what_does_not_go_with_it_is_said)
{
	gpt_run(2, "zinf-gpt", TINY "--steps 3");
	system_expect_text(words, "--once beside --steps: the text gives the number of steps");
	gpt_run(2, "zinf-gpt", TINY "--eval-every 2");
	system_expect_text(words, "--once beside --eval-every");
	gpt_run(2, "zinf-gpt", TINY "--generate 2");
	system_expect_text(words, "--once beside --eval and --generate");
	gpt_run(1, "zinf-gpt", TINY "--batch-size 22");
	system_expect_text(words, "less than one batch of 22 sequences of 16");
	gpt_run(1, "zinf-gpt", TINY "--lr-schedule polynomial --lr-total 3 --warmup 3");
	system_expect_text(words, "--lr-schedule ");
}
