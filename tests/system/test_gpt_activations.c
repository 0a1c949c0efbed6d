/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: wherever the example's activations lie between forward and backward, its parameters end in
 * the bits of those that were kept, also after a rank was killed; and the trainer takes less
 * memory. Method: zinf-gpt as a command, dumps compared with the reference's; peaks as the kernel
 * counted them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/system/gpt.h"

#define TINY                                                                            \
	"--layers 5 --heads 2 --d-model 16 --seq-len 16 --batch-size 2 --grad-accum 2 " \
	"--steps 3 --eval-every 2 --warmup 1 --staging 4M --delete-job "

static void start(void)
{
	gpt_start_with("192M");
}

static void start_without_store(void)
{
	gpt_start_with(NULL);
}

TestSuite(activations, .init = start, .fini = files_stop, .timeout = 120);
TestSuite(activations_alone, .init = start_without_store, .fini = files_stop, .timeout = 120);

/* The number behind @key in the newest output. */
static uint64_t number_of(const char *key)
{
	const char *at = strstr(words, key);

	cr_assert_not_null(at, "%s is not in: %s", key, words);
	return strtoull(at + strlen(key), NULL, 10);
}

/* @flags: of the training; the way of the reference is to keep all. */
static void expect_same_bits(const char *flags)
{
	static const char *const ways[] = { "keep",
		                            "recompute",
		                            "recompute --checkpoint-every 2",
		                            "cpu",
		                            "cpu --checkpoint-every 3",
		                            "nvme",
		                            "nvme --checkpoint-every 1",
		                            "nvme --checkpoint-every 2" };
	char line[512];

	(void)snprintf(line, sizeof(line), TINY "%s --reference --dump kept", flags);
	gpt_run(0, "zinf-gpt", line);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		(void)snprintf(line, sizeof(line), TINY "%s --activations %s --dump way", flags,
		               ways[i]);
		gpt_run(0, "zinf-gpt", line);
		gpt_expect_equal_dumps("kept", "way");
	}
}

Test(activations, every_way_ends_in_the_bits_of_keep)
{
	expect_same_bits("--ranks 2");
}

Test(activations, also_in_bf16_with_a_reduction_per_micro_batch)
{
	expect_same_bits("--ranks 3 --bf16 --grad-reduction per_micro_batch");
}

/* Without clipping units are updated during backward: what is computed again comes before that. */
Test(activations, also_with_parameters_on_nvme_that_are_updated_early)
{
	expect_same_bits("--ranks 2 --bf16 --f32-grads --clip 0 --offload-param nvme");
}

Test(activations, a_killed_rank_goes_on_with_the_same_bits)
{
	gpt_run(0, "zinf-gpt", TINY "--ranks 2 --reference --dump kept");
	gpt_run(0, "zinf-gpt",
	        TINY "--ranks 2 --activations nvme --restarts 1 --exit-after-step 2 --exit-rank 1 "
	             "--dump way");
	system_expect_text(words, "starting all 2 ranks again");
	gpt_expect_equal_dumps("kept", "way");
}

#define LARGE                                                                                  \
	"--layers 24 --heads 2 --d-model 64 --seq-len 64 --batch-size 8 --steps 2 --warmup 1 " \
	"--eval-every 1 --staging 4M --ranks 1 --json --delete-job "

Test(activations, the_trainer_takes_less_memory)
{
	uint64_t kept_peak, kept_bytes, bytes;

	gpt_run(0, "zinf-gpt", LARGE "--activations keep");
	kept_peak = number_of("\"peak_bytes\":");
	kept_bytes = number_of("\"activation_bytes\":");
	cr_assert_gt(kept_bytes, 50u << 20, "what is saved must be seen beside the rest");
	cr_assert_geq(kept_peak, kept_bytes);
	gpt_run(0, "zinf-gpt", LARGE "--activations recompute");
	bytes = number_of("\"activation_bytes\":");
	cr_expect_lt(bytes, kept_bytes / 8);
	cr_expect_lt(number_of("\"peak_bytes\":"), kept_peak - (kept_bytes - bytes) * 9 / 10);
	/* The tensors that are in memory are mapped here as well, and counted. */
	gpt_run(0, "zinf-gpt", LARGE "--activations nvme");
	bytes = number_of("\"activation_bytes\":") + number_of("\"tensor_bytes\":");
	cr_expect_lt(bytes, kept_bytes / 5);
	cr_expect_lt(number_of("\"peak_bytes\":"), kept_peak - (kept_bytes - bytes) * 9 / 10);
	gpt_run(0, "zinf-gpt", LARGE "--activations cpu");
	cr_expect_lt(number_of("\"activation_bytes\":"), kept_bytes / 50);
	cr_expect_geq(number_of("\"tensor_bytes\":"), kept_bytes - kept_bytes / 20);
}

Test(activations, what_has_no_room_is_refused_with_figures)
{
	/* 24 blocks of 24 MB. */
	gpt_run(1, "zinf-gpt", LARGE "--batch-size 64 --activations nvme");
	system_expect_text(words, "asked for on nvme:disk");
	system_expect_text(words, "free of 192 MiB");
	gpt_run(1, "zinf-gpt", LARGE "--batch-size 64 --activations cpu");
	system_expect_text(words, "rank 0: ");
	system_expect_text(words, "256 MiB");
}

Test(activations_alone, without_a_store_all_has_to_fit_into_memory)
{
	gpt_run(0, "zinf-gpt", TINY "--offload-optimizer cpu --reference --dump kept");
	gpt_run(0, "zinf-gpt", TINY "--offload-optimizer cpu --activations cpu --dump way");
	gpt_expect_equal_dumps("kept", "way");
	gpt_run(1, "zinf-gpt", TINY "--offload-optimizer cpu --activations nvme");
	system_expect_text(words, "has no room in the budget of");
}
