/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whole files, as people who come from DeepSpeed and Hugging Face bring them, mean what they
 * mean there. Method: files of those kinds, written anew (tests/unit/libclient/deepspeed/), and
 * what of each matters, with the notes on it. Run from the root of the tree. */
#include <dirent.h>
#include <stdlib.h>

#include "tests/unit/libclient/deepspeed.h"

static int open_config(const char *name)
{
	struct zinf_deepspeed_facts facts = all_facts();
	char path[128];
	int r;

	(void)snprintf(path, sizeof(path), "tests/unit/libclient/deepspeed/%s.json", name);
	why[0] = '\0';
	reader = NULL;
	r = zinf_deepspeed_open(path, &facts, why, sizeof(why), &reader);
	config = (struct zinf_deepspeed_config){ .bytes = sizeof(config) };
	if (!r)
		zinf_deepspeed_get(reader, &config);
	return r;
}

Test(deepspeed_files, stage_two_that_hugging_face_fills_in)
{
	cr_assert_eq(open_config("stage2_auto"), 0, "%s", why);
	cr_expect_eq(config.train_batch, 24);
	cr_expect_eq(config.zero_stage, 2);
	cr_expect_eq(config.param_dtype, ZINF_BF16);
	cr_expect_eq(config.offload_optimizer, ZINF_OFFLOAD_CPU);
	cr_expect_eq(config.optimizer, ZINF_ADAMW);
	cr_expect_eq(config.step.lr, 2e-4);
	cr_expect_eq(config.lr.kind, ZINF_LR_WARMUP_DECAY);
	cr_expect_eq(config.lr.max_lr, 2e-4);
	cr_expect_eq(config.print_interval, 2000);
	NOTED("zero_optimization.allgather_bucket_size", "zero_optimization.reduce_bucket_size");
}

Test(deepspeed_files, stage_three_with_everything_on_nvme)
{
	cr_assert_eq(open_config("stage3_infinity"), 0, "%s", why);
	cr_expect_eq(config.train_batch, 64);
	cr_expect_eq(config.offload_optimizer, ZINF_OFFLOAD_NVME);
	cr_expect_eq(config.offload_param, ZINF_OFFLOAD_NVME);
	cr_expect_str_eq(config.param_path, "/local_nvme");
	cr_expect_eq(config.param_budget_bytes, 2000000000);
	cr_expect_eq(config.persistent_elements, 100000);
	cr_expect_eq(config.step.beta2, 0.95);
	cr_expect(config.step.skip_nonfinite);
	NOTED("zero_optimization.offload_optimizer.nvme_path",
	      "zero_optimization.offload_optimizer.buffer_count",
	      "zero_optimization.offload_param.nvme_path",
	      "zero_optimization.offload_param.buffer_size",
	      "zero_optimization.stage3_gather_16bit_weights_on_model_save", "aio.block_size",
	      "aio.queue_depth");
}

Test(deepspeed_files, sgd_over_one_cycle)
{
	cr_assert_eq(open_config("stage1_sgd"), 0, "%s", why);
	cr_expect_eq(config.micro_batch, 256);
	cr_expect_eq(config.optimizer, ZINF_SGD);
	cr_expect_eq(config.step.beta1, 0.9);
	cr_expect(config.step.nesterov);
	cr_expect_eq(config.step.max_norm, 0);
	cr_expect_eq(config.lr.first_count, 1000);
	cr_expect_not(config.lr.cycles_momentum);
	NOTED("dump_state", "tensorboard", "scheduler.params.cycle_momentum");
}

Test(deepspeed_files, plain_adam_without_zero)
{
	cr_assert_eq(open_config("plain"), 0, "%s", why);
	cr_expect_eq(config.accumulation_count, 4);
	cr_expect_eq(config.optimizer, ZINF_ADAM);
	cr_expect_eq(config.step.weight_decay, 0);
	NOTED("optimizer.params.torch_adam", "gradient_clipping");
}

Test(deepspeed_files, lion_that_looks_for_its_lr)
{
	cr_assert_eq(open_config("lion_range_test"), 0, "%s", why);
	cr_expect_eq(config.micro_batch, 4);
	cr_expect_eq(config.grad_dtype, ZINF_F32);
	cr_expect_eq(config.optimizer, ZINF_LION);
	cr_expect_eq(config.step.beta1, 0.95);
	cr_expect_eq(config.lr.step_count, 200);
	NOTED("gradient_clipping", "optimizer.type");
}

Test(deepspeed_files, a_cosine_with_activations_in_cpu_memory)
{
	cr_assert_eq(open_config("cosine_checkpointing"), 0, "%s", why);
	cr_expect_eq(config.reduce_dtype, ZINF_F32);
	cr_expect_eq(config.lr.total_count, 10000);
	cr_expect_eq(config.lr.min_ratio, 0.1);
	cr_expect_eq(config.step.max_norm, 0.5);
	cr_expect(config.checkpoints_to_cpu);
	cr_expect_eq(config.checkpoint_count, 24);
	cr_expect(config.shows_times);
	NOTED("zero_optimization.overlap_comm", "activation_checkpointing.partition_activations",
	      "activation_checkpointing.contiguous_memory_optimization", "flops_profiler");
}

Test(deepspeed_files, adagrad_and_switches_that_change_nothing)
{
	cr_assert_eq(open_config("adagrad"), 0, "%s", why);
	cr_expect_eq(config.optimizer, ZINF_ADAGRAD);
	cr_expect_eq(config.step.lr, 0.02);
	cr_expect_eq(config.step.eps, 1e-9);
	NOTED("checkpoint.tag_validation", "checkpoint.use_node_local_storage", "comms_logger",
	      "gradient_clipping");
}

Test(deepspeed_files, half_precision_with_a_loss_scale_that_hesitates)
{
	cr_assert_eq(open_config("fp16_hysteresis"), 0, "%s", why);
	cr_expect_eq(config.param_dtype, ZINF_F16);
	cr_expect_eq(config.grad_dtype, ZINF_F16);
	cr_expect_eq(config.scaler.kind, ZINF_SCALER_DEEPSPEED);
	cr_expect_eq(config.scaler.init, 0x1p32);
	cr_expect_eq(config.scaler.window, 500);
	cr_expect_eq(config.scaler.hysteresis, 4);
	cr_expect_eq(config.scaler.min, 1);
	cr_expect_eq(config.offload_optimizer, ZINF_OFFLOAD_CPU);
	cr_expect_eq(config.optimizer, ZINF_ADAMW);
	cr_expect_eq(config.lr.kind, ZINF_LR_WARMUP);
	NOTED("gradient_clipping");
}

Test(deepspeed_files, mics)
{
	cr_assert_eq(open_config("mics"), 0, "%s", why);
	cr_expect_eq(config.zero_stage, 3);
	cr_expect_eq(config.shard_ranks, 2);
	NOTED("zero_optimization.mics_hierarchical_params_gather",
	      "zero_optimization.memory_efficient_linear", "gradient_clipping");
}

Test(deepspeed_files, quantized)
{
	cr_assert_eq(open_config("quantized"), 0, "%s", why);
	cr_expect_eq(config.shard_ranks, 0);
	NOTED("zero_optimization.zero_quantized_weights",
	      "zero_optimization.zero_hpz_partition_size",
	      "zero_optimization.zero_quantized_gradients", "gradient_clipping");
}

Test(deepspeed_files, accelerate_stage_three_with_offload)
{
	cr_assert_eq(open_config("accelerate_stage3"), 0, "%s", why);
	cr_expect_eq(config.train_batch, 24);
	cr_expect_eq(config.zero_stage, 3);
	cr_expect_eq(config.offload_optimizer, ZINF_OFFLOAD_CPU);
	cr_expect_eq(config.offload_param, ZINF_OFFLOAD_CPU);
	cr_expect_eq(config.param_dtype, ZINF_F16);
	NOTED("zero_optimization.stage3_gather_16bit_weights_on_model_save",
	      "zero_optimization.stage3_prefetch_bucket_size",
	      "zero_optimization.stage3_param_persistence_threshold",
	      "zero_optimization.reduce_bucket_size");
}

Test(deepspeed_files, a_file_with_comments_and_without_a_batch_size)
{
	cr_assert_eq(open_config("commented_nvme"), 0, "%s", why);
	cr_expect_eq(config.train_batch, 24);
	cr_expect_eq(config.offload_param, ZINF_OFFLOAD_NVME);
	cr_expect_str_eq(config.param_path, "/local_nvme");
	NOTED("zero_optimization.stage3_max_live_parameters",
	      "zero_optimization.offload_param.nvme_path",
	      "zero_optimization.offload_param.buffer_size",
	      "zero_optimization.offload_optimizer.device", "train_micro_batch_size_per_gpu");
}

static void refused_file(const char *name, const char *words)
{
	cr_expect_eq(open_config(name), -EOPNOTSUPP, "%s", name);
	cr_expect(strstr(why, words), "'%s' is not in '%s'", words, why);
	cr_expect(strstr(why, name), "'%s' is not in '%s'", name, why);
}

Test(deepspeed_files, what_cannot_be_done_is_refused_with_the_file_and_the_key)
{
	refused_file("megatron", "tensor_parallel");
}

Test(deepspeed_files, no_file_is_forgotten)
{
	DIR *folder = opendir("tests/unit/libclient/deepspeed");
	struct dirent *entry;
	uint32_t count = 0;

	cr_assert_not_null(folder);
	while ((entry = readdir(folder)))
		count += strstr(entry->d_name, ".json") != NULL;
	closedir(folder);
	cr_expect_eq(count, 13);
}
