/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the example trains by a file of DeepSpeed's as it does by the flags that mean the same, to
 * the bit, and says once what of it does nothing. Method: zinf-gpt as a command, by itself and
 * under zctl launch; dumps compared with those of flags and of the reference.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/system/gpt.h"

/* A file of the kind that Hugging Face's documents show. */
static const char infinity[] =
	"{ \"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2,"
	"  \"bf16\": { \"enabled\": true }, \"gradient_clipping\": 0.5,"
	"  \"zero_optimization\": { \"stage\": 3, \"sub_group_size\": 1e6,"
	"    \"offload_optimizer\": { \"device\": \"nvme\", \"nvme_path\": \"/local_nvme\" },"
	"    \"offload_param\": { \"device\": \"nvme\", \"nvme_path\": \"/local_nvme\" } },"
	"  \"aio\": { \"block_size\": 262144, \"queue_depth\": 32 },"
	"  \"optimizer\": { \"type\": \"AdamW\", \"params\": { \"lr\": 1e-3,"
	"    \"betas\": [0.9, 0.99], \"weight_decay\": 0.05 } },"
	"  \"scheduler\": { \"type\": \"WarmupDecayLR\", \"params\": { \"total_num_steps\": 9,"
	"    \"warmup_max_lr\": 1e-3, \"warmup_num_steps\": 3, \"warmup_type\": \"linear\" } },"
	"  \"activation_checkpointing\": { \"number_checkpoints\": 2 },"
	"  \"steps_per_print\": 1 }";

#define MODEL "--layers 3 --heads 1 --d-model 16 --seq-len 16 --staging 4M --ranks 2 --steps 5 "
#define FLAGS                                                               \
	"--batch-size 2 --grad-accum 2 --bf16 --clip 0.5 --strategy zero3 " \
	"--offload-param nvme --lr 1e-3 --beta2 0.99 --weight-decay 0.05 "  \
	"--lr-schedule WarmupDecayLR --lr-total 9 --warmup 3 --lr-warmup-shape linear "

static void start(void)
{
	FILE *file;

	gpt_start();
	file = fopen(path_of("ds.json"), "we");
	cr_assert_not_null(file);
	fputs(infinity, file);
	fclose(file);
}

TestSuite(gpt_deepspeed, .init = start, .fini = files_stop, .timeout = 120);

static void expect_once(const char *text)
{
	const char *at = strstr(words, text);

	cr_assert_not_null(at, "'%s' is not in: %s", text, words);
	cr_expect_null(strstr(at + 1, text), "'%s' is twice in: %s", text, words);
}

Test(gpt_deepspeed, a_file_trains_as_the_flags_do)
{
	gpt_run(0, "zinf-gpt", MODEL FLAGS "--job flags --dump flags.dump");
	gpt_run(0, "zinf-gpt", MODEL "--job file --deepspeed-config ds.json --dump file.dump");
	expect_once("zinf-gpt: note: ds.json: zero_optimization.sub_group_size 1000000");
	expect_once("zinf-gpt: note: ds.json: aio.queue_depth 32: ");
	system_expect_text(words, "step 1/5  "); /* steps_per_print */
	system_expect_text(words, "step 2/5  ");
	gpt_expect_equal_dumps("flags.dump", "file.dump");
	gpt_run(0, "zinf-gpt",
	        MODEL "--deepspeed-config ds.json --reference --dump reference.dump");
	gpt_expect_equal_dumps("flags.dump", "reference.dump");
	/* It goes on where it stood. */
	gpt_run(0, "zinf-gpt", MODEL "--job part --deepspeed-config ds.json --steps 2");
	gpt_run(0, "zinf-gpt", MODEL "--job part --deepspeed-config ds.json --dump part.dump");
	system_expect_text(words, "resumed at step 2");
	gpt_expect_equal_dumps("flags.dump", "part.dump");
}

Test(gpt_deepspeed, mics_divides_over_groups_of_ranks)
{
	FILE *file = fopen(path_of("mics.json"), "we");

	cr_assert_not_null(file);
	fputs("{ \"train_batch_size\": 8, \"bf16\": { \"enabled\": true },"
	      "  \"zero_optimization\": { \"stage\": 3, \"mics_shard_size\": 2,"
	      "    \"offload_param\": { \"device\": \"nvme\" } } }",
	      file);
	fclose(file);
	gpt_run(0, "zinf-gpt",
	        MODEL "--ranks 4 --job mics --deepspeed-config mics.json --dump mics.dump");
	expect_once("note: mics.json: zero_optimization.offload_optimizer.device none: with "
	            "parameters on nvme");
	gpt_run(0, "zinf-gpt",
	        MODEL "--ranks 4 --batch-size 2 --bf16 --clip 1 --strategy zero3 --shard-size 2 "
	              "--offload-param nvme --job flags --dump flags.dump");
	gpt_expect_equal_dumps("flags.dump", "mics.dump");
	gpt_run(0, "zctl", "jobs mics");
	system_expect_text(words, "strategy hybrid, shards over 2 ranks");
}

Test(gpt_deepspeed, a_launchers_ranks_say_it_once)
{
	gpt_run(0, "zctl",
	        "launch --nproc-per-node 2 $(dirname $program)/zinf-gpt --layers 1 --heads 1 "
	        "--d-model 16 --seq-len 16 --staging 4M --steps 1 --deepspeed-config ds.json "
	        "--clip 2");
	expect_once("note: ds.json: aio.queue_depth 32: ");
	expect_once("note: --clip 2 overrides gradient_clipping of ds.json, which is 0.5");
}

Test(gpt_deepspeed, a_file_that_cannot_be_followed_is_a_wrong_flag)
{
	gpt_run(2, "zinf-gpt", MODEL "--deepspeed-config nowhere.json");
	system_expect_text(words, "zinf-gpt: --deepspeed-config nowhere.json: ");
	gpt_run(2, "zinf-gpt", MODEL "--deepspeed-config ds.json --ranks 3");
	system_expect_text(words, "train_batch_size");
	gpt_run(0, "zctl", "jobs");
	cr_expect_null(strstr(words, "gpt"), "%s", words);
}
