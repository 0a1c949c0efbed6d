/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a file of DeepSpeed means, field by field: batches, defaults, "auto", precision,
 * homes; and every refusal in words. Method: small files with one thing each (keys one by one:
 * test_deepspeed_keys.c; optimizers and schedules: test_deepspeed_steps.c).
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "tests/guard/guard.h"
#include "tests/unit/libclient/deepspeed.h"

Test(deepspeed, a_file_that_says_least_has_the_defaults_of_there)
{
	accepted("{" MICRO "}");
	cr_expect_eq(config.train_batch, 2);
	cr_expect_eq(config.accumulation_count, 1);
	cr_expect_eq(config.param_dtype, ZINF_F32);
	cr_expect_eq(config.grad_dtype, ZINF_F32);
	cr_expect_eq(config.reduce_dtype, 0);
	cr_expect_eq(config.zero_stage, 0);
	cr_expect_eq(config.offload_optimizer, ZINF_OFFLOAD_NONE);
	cr_expect_eq(config.offload_param, ZINF_OFFLOAD_NONE);
	cr_expect_null(config.optimizer_path);
	cr_expect_eq(config.bucket_bytes, 0);
	cr_expect_eq(config.param_budget_bytes, 0);
	cr_expect(config.ignores_unused);
	cr_expect_not(config.has_optimizer);
	cr_expect_not(config.has_lr);
	cr_expect_not(config.is_checkpointing);
	cr_expect_eq(config.scaler.kind, ZINF_SCALER_NONE);
	cr_expect_eq(config.print_interval, 0);
	cr_expect_eq(config.step.max_norm, 1.0);
	cr_expect_not(config.step.sum);
	cr_expect_not(config.step.skip_nonfinite);
	cr_expect(strstr(note_on("gradient_clipping"), "0.19"), "an older file meant 0");
}

static void batch(const char *json, uint32_t train, uint32_t micro, uint32_t accum)
{
	accepted(json);
	cr_expect_eq(config.train_batch, train, "%s", json);
	cr_expect_eq(config.micro_batch, micro, "%s", json);
	cr_expect_eq(config.accumulation_count, accum, "%s", json);
}

Test(deepspeed, two_sizes_of_a_batch_give_the_third)
{
	batch("{'train_batch_size': 24, 'train_micro_batch_size_per_gpu': 3}", 24, 3, 4);
	batch("{'train_batch_size': 24, 'gradient_accumulation_steps': 4}", 24, 3, 4);
	batch("{'train_micro_batch_size_per_gpu': 3, 'gradient_accumulation_steps': 4}", 24, 3, 4);
	batch("{'train_batch_size': 24}", 24, 12, 1);
	batch("{'train_micro_batch_size_per_gpu': 3}", 6, 3, 1);
	batch("{'train_batch_size': 24, 'train_micro_batch_size_per_gpu': 3, "
	      "'gradient_accumulation_steps': 4}",
	      24, 3, 4);
	batch("{'train_batch_size': 'auto', 'train_micro_batch_size_per_gpu': 'auto', "
	      "'gradient_accumulation_steps': 'auto'}",
	      24, 3, 4);
	batch("{'train_batch_size': 2147483646}", 2147483646, 1073741823, 1);
}

Test(deepspeed, an_absent_batch_is_the_trainers)
{
	struct zinf_deepspeed_note note;

	batch("{'gradient_clipping': 1}", 24, 3, 4);
	cr_assert(zinf_deepspeed_get_note(reader, 0, &note));
	cr_expect_str_eq(note.key, "train_micro_batch_size_per_gpu");
	batch("{'gradient_accumulation_steps': 2}", 12, 3, 2);
}

Test(deepspeed, batches_that_do_not_come_out_even_are_refused_with_all_figures)
{
	refused("{'train_batch_size': 25}", -EINVAL, "25 does not divide by 2");
	refused("{'train_batch_size': 24, 'gradient_accumulation_steps': 5}", -EINVAL,
	        "24 does not divide by 10");
	refused("{'train_batch_size': 24, 'train_micro_batch_size_per_gpu': 5}", -EINVAL,
	        "gradient_accumulation_steps");
	refused("{'train_batch_size': 24, 'train_micro_batch_size_per_gpu': 3, "
	        "'gradient_accumulation_steps': 5}",
	        -EINVAL,
	        "train_micro_batch_size_per_gpu = 3 x gradient_accumulation_steps = 5 x 2 rank(s) "
	        "is not train_batch_size = 24");
	refused("{'train_micro_batch_size_per_gpu': 2147483647}", -EINVAL,
	        "is more than 2147483647");
}

Test(deepspeed, auto_takes_what_the_trainer_says)
{
	accepted(
		"{" MICRO ", 'gradient_clipping': 'auto', 'bf16': {'enabled': 'auto'}, "
		"'fp16': {'enabled': 'auto'}, 'optimizer': {'type': 'AdamW', 'params': {"
		"'lr': 'auto', 'betas': 'auto', 'eps': 'auto', 'weight_decay': 'auto'}}, "
		"'scheduler': {'type': 'WarmupDecayLR', 'params': {'warmup_min_lr': 'auto', "
		"'warmup_max_lr': 'auto', 'warmup_num_steps': 'auto', 'total_num_steps': 'auto'}}, "
		"'zero_optimization': {'stage': 3, 'reduce_bucket_size': 'auto', "
		"'stage3_prefetch_bucket_size': 'auto', "
		"'stage3_param_persistence_threshold': 'auto'}}");
	cr_expect_eq(config.step.max_norm, 0.5);
	cr_expect_eq(config.param_dtype, ZINF_BF16);
	cr_expect_eq(config.grad_dtype, ZINF_BF16);
	cr_expect_eq(config.step.lr, 2e-4);
	cr_expect_eq(config.step.beta1, 0.8);
	cr_expect_eq(config.step.beta2, 0.95);
	cr_expect_eq(config.step.eps, 1e-7);
	cr_expect_eq(config.step.weight_decay, 0.1);
	cr_expect_eq(config.lr.min_lr, 0);
	cr_expect_eq(config.lr.max_lr, 2e-4);
	cr_expect_eq(config.lr.warmup_count, 50);
	cr_expect_eq(config.lr.total_count, 500);
	cr_expect_eq(config.bucket_bytes, 2 * 1000 * 1000);
	cr_expect_eq(config.persistent_elements, 10 * 1000);
}

/* With a trainer that knows its number of ranks alone. */
static void unknown(const char *json, const char *fact)
{
	struct zinf_deepspeed_facts facts = ZINF_DEEPSPEED_FACTS_INIT;
	char words[64];

	cr_expect_eq(parse_with(json, &facts), -EINVAL, "%s", json);
	(void)snprintf(words, sizeof(words), "zinf_deepspeed_facts.%s", fact);
	cr_expect(strstr(why, words), "%s: %s", json, why);
}

Test(deepspeed, auto_of_what_nobody_says_is_refused_by_name)
{
	unknown("{}", "micro_batch");
	unknown("{'gradient_accumulation_steps': 4}", "micro_batch");
	unknown("{'train_micro_batch_size_per_gpu': 'auto'}", "micro_batch");
	unknown("{" MICRO ", 'gradient_accumulation_steps': 'auto'}", "accumulation_count");
	unknown("{" MICRO ", 'gradient_clipping': 'auto'}", "max_norm");
	unknown("{" MICRO ", 'fp16': {'enabled': 'auto'}}", "dtype");
	unknown("{" MICRO ", 'bfloat16': {'enabled': 'auto'}}", "dtype");
	unknown("{" MICRO ", 'optimizer': {'type': 'adam', 'params': {'lr': 'auto'}}}", "lr");
	unknown("{" MICRO ", 'optimizer': {'type': 'adam', 'params': {'betas': 'auto'}}}", "beta1");
	unknown("{" MICRO ", 'optimizer': {'type': 'adam', 'params': {'eps': 'auto'}}}", "eps");
	unknown("{" MICRO ", 'optimizer': {'type': 'adam', 'params': {'weight_decay': 'auto'}}}",
	        "weight_decay");
	unknown("{" MICRO ", 'zero_optimization': {'reduce_bucket_size': 'auto'}}",
	        "hidden_elements");
	unknown("{" MICRO ", 'scheduler': {'type': 'WarmupLR', 'params': {'warmup_max_lr': 0.1}}}",
	        "lr");
	unknown("{" MICRO ", 'optimizer': {'type': 'lion'}, 'scheduler': {'type': 'WarmupCosineLR',"
	        " 'params': {'total_num_steps': 'auto'}}}",
	        "total_count");
	unknown("{" MICRO ", 'optimizer': {'type': 'lion'}, 'scheduler': {'type': 'WarmupLR', "
	        "'params': {'warmup_num_steps': 'auto'}}}",
	        "warmup_count");
}

Test(deepspeed, precision_is_one_of_three_with_the_scale_of_f16)
{
	accepted("{" MICRO ", 'fp16': {'enabled': true}}");
	cr_expect_eq(config.param_dtype, ZINF_F16);
	cr_expect_eq(config.grad_dtype, ZINF_F16);
	cr_expect(config.step.skip_nonfinite);
	cr_expect_eq(config.scaler.kind, ZINF_SCALER_DEEPSPEED);
	cr_expect_eq(config.scaler.init, 65536);
	cr_expect_eq(config.scaler.window, 1000);
	cr_expect_eq(config.scaler.hysteresis, 2);
	cr_expect_eq(config.scaler.min, 1);
	cr_expect_not(config.scaler.is_consecutive);
	accepted("{" MICRO
	         ", 'fp16': {'enabled': true, 'loss_scale': 0, 'initial_scale_power': 32, "
	         "'loss_scale_window': 500, 'hysteresis': 3, 'min_loss_scale': 4, "
	         "'consecutive_hysteresis': true}}");
	cr_expect_eq(config.scaler.init, 4294967296.0);
	cr_expect_eq(config.scaler.window, 500);
	cr_expect_eq(config.scaler.hysteresis, 3);
	cr_expect_eq(config.scaler.min, 4);
	cr_expect(config.scaler.is_consecutive);
	accepted("{" MICRO ", 'fp16': {'enabled': true, 'loss_scale': 128}}");
	cr_expect_eq(config.scaler.kind, ZINF_SCALER_STATIC);
	cr_expect_eq(config.scaler.init, 128);
	accepted("{" MICRO ", 'fp16': {'enabled': false, 'loss_scale': 128}}");
	cr_expect_eq(config.scaler.kind, ZINF_SCALER_NONE);
	refused("{" MICRO ", 'fp16': {'enabled': true, 'initial_scale_power': 2, "
	        "'min_loss_scale': 16}}",
	        -EINVAL, "fp16: ");
	refused("{" MICRO ", 'fp16': {'enabled': true}, 'bf16': {'enabled': true}}", -EINVAL,
	        "both true");
}

Test(deepspeed, bf16_accumulates_as_there)
{
	accepted("{" MICRO ", 'bf16': {'enabled': true}}");
	cr_expect_eq(config.param_dtype, ZINF_BF16);
	cr_expect_eq(config.grad_dtype, ZINF_F32, "without ZeRO");
	cr_expect(config.step.skip_nonfinite);
	accepted("{" MICRO ", 'bfloat16': {'enabled': true, 'check_grad_overflow': false}, "
	         "'zero_optimization': {'stage': 1}}");
	cr_expect_eq(config.grad_dtype, ZINF_BF16);
	cr_expect_not(config.step.skip_nonfinite);
	accepted("{" MICRO ", 'bf16': {'enabled': true}, 'zero_optimization': {'stage': 2}, "
	         "'data_types': {'grad_accum_dtype': 'float32'}, 'communication_data_type': "
	         "'BF16'}");
	cr_expect_eq(config.grad_dtype, ZINF_F32);
	cr_expect_eq(config.reduce_dtype, ZINF_BF16);
	accepted("{" MICRO ", 'zero_optimization': {'stage': 2}}");
	cr_expect(config.step.skip_nonfinite, "f32 looks for overflows where ZeRO steps");
}

Test(deepspeed, homes_and_sizes_are_those_of_the_stage)
{
	accepted("{" MICRO ", 'bf16': {'enabled': true}, 'zero_optimization': {'stage': 3, "
	         "'offload_param': {'device': 'nvme', 'nvme_path': '/fast', 'max_in_cpu': 1e6}, "
	         "'offload_optimizer': {'device': 'NVMe', 'nvme_path': '/big'}, "
	         "'reduce_bucket_size': 5e8, 'stage3_param_persistence_threshold': 1e5, "
	         "'ignore_unused_parameters': false}}");
	cr_expect_eq(config.offload_param, ZINF_OFFLOAD_NVME);
	cr_expect_eq(config.offload_optimizer, ZINF_OFFLOAD_NVME);
	cr_expect_str_eq(config.param_path, "/fast");
	cr_expect_str_eq(config.optimizer_path, "/big");
	cr_expect(strstr(note_on("zero_optimization.offload_param.nvme_path"), "zinfd.conf"));
	cr_expect_eq(config.param_budget_bytes, 2000000);
	cr_expect_eq(config.bucket_bytes, 1000000000);
	cr_expect_eq(config.persistent_elements, 100000);
	cr_expect_not(config.ignores_unused);
	accepted("{" MICRO ", 'zero_optimization': {'stage': 2, 'cpu_offload': true, "
	         "'offload_param': null, 'param_persistence_threshold': 7, "
	         "'reduce_bucket_size': 9223372036854775807}}");
	cr_expect_eq(config.offload_optimizer, ZINF_OFFLOAD_CPU);
	cr_expect_eq(config.persistent_elements, 0, "of stage 3 alone");
	cr_expect_eq(config.bucket_bytes, UINT64_MAX, "no bound");
	accepted("{" MICRO ", 'zero_optimization': {'stage': 3, 'mics_shard_size': 1}}");
	cr_expect_eq(config.shard_ranks, 1);
	cr_expect_null(note_on("zero_optimization.mics_shard_size"));
	accepted("{" MICRO ", 'zero_optimization': {'stage': 2, 'mics_shard_size': 1}}");
	cr_expect_eq(config.shard_ranks, 0, "of stage 3 alone");
	cr_expect(strstr(note_on("zero_optimization.mics_shard_size"), "stage 3"));
	refused("{" MICRO
	        ", 'zero_optimization': {'stage': 2, 'offload_param': {'device': 'cpu'}}}",
	        -EINVAL, "stage 2");
	refused("{" MICRO ", 'zero_optimization': {'cpu_offload': true, 'offload_optimizer': {}}}",
	        -EINVAL, "old name");
	refused("{" MICRO ", 'zero_optimization': {'stage': 3, 'mics_shard_size': 3}}", -EINVAL,
	        "2 rank(s) do not divide");
	refused("{" MICRO ", 'zero_optimization': true}", -EINVAL, "\"stage\": 1");
}

Test(deepspeed, activations_and_printing_are_told_to_the_trainer)
{
	accepted(
		"{" MICRO ", 'activation_checkpointing': {'cpu_checkpointing': true, "
		"'number_checkpoints': 4}, 'steps_per_print': 2000, 'wall_clock_breakdown': true}");
	cr_expect(config.is_checkpointing);
	cr_expect(config.checkpoints_to_cpu);
	cr_expect_eq(config.checkpoint_count, 4);
	cr_expect_eq(config.print_interval, 2000);
	cr_expect(config.shows_times);
	accepted("{" MICRO ", 'activation_checkpointing': {'cpu_checkpointing': false, "
	         "'partition_activations': false, 'number_checkpoints': null}}");
	cr_expect_not(config.is_checkpointing, "a section that changes nothing");
	accepted("{" MICRO ", 'activation_checkpointing': {'partition_activations': true}}");
	cr_expect(config.is_checkpointing);
}

/* Accelerate's own files and its questionnaire write "auto" in these places. */
Test(deepspeed, auto_of_a_key_that_nobody_fills_in_is_its_default)
{
	accepted("{" MICRO ", 'gradient_clipping': 1, "
	         "'fp16': {'enabled': true, 'loss_scale': 'auto'}, "
	         "'zero_optimization': {'stage': 'auto', 'stage3_max_live_parameters': 'auto', "
	         "'stage3_gather_16bit_weights_on_model_save': 'auto', 'offload_param': "
	         "{'device': 'auto', 'nvme_path': 'auto', 'buffer_size': 'auto'}}}");
	cr_expect_eq(config.zero_stage, 0);
	cr_expect_eq(config.offload_param, ZINF_OFFLOAD_NONE);
	cr_expect_null(config.param_path);
	NOTED("fp16.loss_scale", "zero_optimization.stage",
	      "zero_optimization.stage3_max_live_parameters",
	      "zero_optimization.stage3_gather_16bit_weights_on_model_save",
	      "zero_optimization.offload_param.device", "zero_optimization.offload_param.nvme_path",
	      "zero_optimization.offload_param.buffer_size");
	refused("{" MICRO ", 'steps_per_print': 'auto'}", -EINVAL,
	        "steps_per_print is \"auto\", which neither DeepSpeed nor Accelerate replaces");
}

Test(deepspeed, unknown_keys_are_refused_with_what_was_meant)
{
	refused("{" MICRO ", 'zero_optimisation': {}}", -EINVAL, "\"zero_optimization\"");
	refused("{" MICRO ", 'stage': 3}", -EINVAL, "did you mean zero_optimization.stage?");
	refused("{" MICRO ", 'zero_optimization': {'lr': 3}, 'optimizer': {'type': 'lion'}}",
	        -EINVAL, "did you mean optimizer.params.lr?");
	refused("{" MICRO ", 'aio': {'thread_count': 2}}", -EINVAL, "intra_op_parallelism");
	refused("{" MICRO ", 'zero_optimization': {'offload_param': {'buffer_counts': 2}}}",
	        -EINVAL, "zero_optimization.offload_param has no key \"buffer_counts\"");
	refused("{" MICRO ", 'a\\u0007b\\\\': 1}", -EINVAL, "no key \"a\\u0007b");
}

Test(deepspeed, comments_and_trailing_commas_are_read)
{
	batch("{\n'train_batch_size': 24, # of all\n}", 24, 12, 1);
	batch("{\n\n// of 'all\n'train_batch_size': 24 // two\r\n,}", 24, 12, 1);
	batch("/* { */ {'train_batch_size': 24 /* of\n * all **/ } # end", 24, 12, 1);
	batch("{'train_batch_size': 24, 'csv_monitor': {'output_path': '#/*//,}\\\\'}, // '\n}", 24,
	      12, 1);
	batch("{'train_batch_size': 24, 'optimizer': {'type': 'adam', 'params': {'betas': [0.9, "
	      "0.95, ], }, }, }",
	      24, 12, 1);
}

Test(deepspeed, what_is_no_json_is_refused_with_its_line)
{
	refused("{\n# of all\n'train_batch_size' 24 # of all\n}", -EINVAL, "line 3");
	refused("{'train_batch_size': 24 /* of all", -EINVAL, "line 1");
	refused("{'train_batch_size': 24 / 2}", -EINVAL, "line 1");
	refused("{'train_batch_size': 24,,}", -EINVAL, "line 1");
	refused("{,}", -EINVAL, "line 1");
	refused("{'train_batch_size': 24, 'a", -EINVAL, "line 1");
	refused("{'train_batch_size': 24, 'a\\\\", -EINVAL, "line 1");
	refused("#", -EINVAL, "line 1");
	refused("{'train_batch_size': 2, 'train_batch_size': 4}", -EINVAL, "duplicate");
	refused("", -EINVAL, "line 1");
	refused("[]", -EINVAL, "no object");
	refused("{'a\\u0000b': 1}", -EINVAL, "line 1");
	refused("{'train_batch_size': 1e999}", -EINVAL, "line 1");
	refused("{'train_batch_size': \xff}", -EINVAL, "line 1");
}

Test(deepspeed, wrong_facts_are_refused_with_their_figures)
{
	struct zinf_deepspeed_facts facts = ZINF_DEEPSPEED_FACTS_INIT;

	facts.world_size = 0;
	cr_expect_eq(parse_with("{}", &facts), -EINVAL);
	cr_expect(strstr(why, "world_size is 0: 1 to 64"));
	facts.world_size = 65;
	cr_expect_eq(parse_with("{}", &facts), -EINVAL);
	facts.world_size = 64;
	cr_expect_eq(parse_with("{" MICRO "}", &facts), 0);
	cr_expect_eq(config.train_batch, 64);
	facts.lr = -1;
	cr_expect_eq(parse_with("{" MICRO
	                        ", 'optimizer': {'type': 'sgd', 'params': {'lr': 'auto'}}}",
	                        &facts),
	             -EINVAL);
	cr_expect(strstr(why, "facts.lr is -1: from 0"), "%s", why);
	facts.beta1 = 1;
	cr_expect_eq(parse_with("{" MICRO ", 'optimizer': {'type': 'lion', 'params': {'betas': "
	                        "'auto'}}}",
	                        &facts),
	             -EINVAL);
	cr_expect(strstr(why, "facts.beta1 is 1"), "%s", why);
	facts.bytes = 8;
	cr_expect_eq(parse_with("{}", &facts), -EINVAL);
	cr_expect(strstr(why, "bytes is 8"));
}

/* What asks for less exact a result than there is. */
Test(deepspeed, what_is_coarser_there_is_noted_and_done_exactly)
{
	accepted("{" MICRO ", 'fp16': {'enabled': true}, "
	         "'data_types': {'grad_accum_dtype': 'bf16'}}");
	cr_expect_eq(config.grad_dtype, ZINF_F32);
	cr_expect(strstr(note_on("data_types.grad_accum_dtype"), "more exact"));
	accepted("{" MICRO ", 'data_types': {'grad_accum_dtype': 'bf16'}}");
	cr_expect_eq(config.grad_dtype, ZINF_F32);
	accepted("{" MICRO ", 'fp16': {'enabled': true}, 'zero_optimization': {'stage': 1}, "
	         "'communication_data_type': 'bf16'}");
	cr_expect_eq(config.reduce_dtype, ZINF_F32);
	cr_expect(strstr(note_on("communication_data_type"), "more exact"));
	accepted("{" MICRO ", 'communication_data_type': 'bf16'}");
	cr_expect_eq(config.reduce_dtype, ZINF_BF16, "of f32 gradients it is what it is there");
	cr_expect_null(note_on("communication_data_type"));
	accepted("{" MICRO ", 'fp16': {'enabled': true, 'fp16_master_weights_and_grads': true}}");
	cr_expect(strstr(note_on("fp16.fp16_master_weights_and_grads"), "more exact"));
	accepted("{" MICRO ", 'bf16': {'enabled': true, 'bf16_optimizer_states': true}}");
	cr_expect(strstr(note_on("bf16.bf16_optimizer_states"), "more exact"));
	accepted("{" MICRO ", 'zero_optimization': {'stage': 2, 'zenflow': {'topk_ratio': 0.1}}}");
	cr_expect_not_null(note_on("zero_optimization.zenflow"));
}

Test(deepspeed, parameters_on_nvme_take_the_state_along)
{
	accepted("{" MICRO ", 'zero_optimization': {'stage': 3, "
	         "'offload_param': {'device': 'nvme'}}}");
	cr_expect_eq(config.offload_optimizer, ZINF_OFFLOAD_NVME);
	cr_expect_not_null(note_on("zero_optimization.offload_optimizer.device"));
	accepted("{" MICRO ", 'zero_optimization': {'stage': 3, 'offload_optimizer': "
	         "{'device': 'cpu'}, 'offload_param': {'device': 'nvme'}}}");
	cr_expect_eq(config.offload_optimizer, ZINF_OFFLOAD_NVME);
	cr_expect_not_null(note_on("zero_optimization.offload_optimizer.device"));
}

static int open_file(const char *path)
{
	struct zinf_deepspeed_facts facts = all_facts();
	struct zinf_deepspeed *mine = NULL;
	int r;

	why[0] = '\0';
	r = zinf_deepspeed_open(path, &facts, why, sizeof(why), &mine);
	cr_expect_eq(r != 0, mine == NULL);
	cr_expect_eq(r != 0, why[0] != '\0');
	zinf_deepspeed_free(mine);
	return r;
}

Test(deepspeed, files_are_read_and_refused_with_their_path)
{
	static const char good[] = "{\"train_batch_size\": 2}", bad[] = "{\"train_batch_sise\": 2}";
	char path[64], missing[80];
	int fd = mkostemp(guard_path(path, sizeof(path), "json"), O_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(zi_pwrite_all(fd, good, strlen(good), 0), 0);
	cr_expect_eq(open_file(path), 0, "%s", why);
	cr_assert_eq(zi_pwrite_all(fd, bad, strlen(bad), 0), 0);
	cr_expect_eq(open_file(path), -EINVAL);
	cr_expect_eq(strncmp(why, path, strlen(path)), 0, "%s", why);
	cr_expect(strstr(why, "\"train_batch_size\""), "%s", why);
	cr_assert_eq(ftruncate(fd, 0), 0);
	cr_expect_eq(open_file(path), -EINVAL, "empty");
	cr_assert_eq(ftruncate(fd, (16 << 20) + 1), 0);
	cr_expect_eq(open_file(path), -EFBIG);
	cr_expect(strstr(why, "at most 16 MiB"), "%s", why);
	(void)zi_close(fd);
	if (geteuid()) {
		cr_assert_eq(chmod(path, 0), 0);
		cr_expect_eq(open_file(path), -EACCES);
	}
	(void)unlink(path);
	(void)snprintf(missing, sizeof(missing), "%s.none", path);
	cr_expect_eq(open_file(missing), -ENOENT);
	cr_expect(strstr(why, missing), "%s", why);
	cr_expect_eq(open_file("/"), -EISDIR);
	cr_expect_eq(open_file("/dev/null"), -EINVAL);
	cr_expect(strstr(why, "is no file"), "%s", why);
}

Test(deepspeed, a_text_is_cut_where_there_is_no_room_and_a_caller_of_old_gets_what_it_knows)
{
	struct zinf_deepspeed_facts facts = all_facts();
	struct zinf_deepspeed_config old = { .bytes = 8, .train_batch = 9, .micro_batch = 9 };
	struct zinf_deepspeed_note note;
	char text[8];

	cr_expect_eq(zinf_deepspeed_read("[]", 2, &facts, text, sizeof(text), &reader), -EINVAL);
	cr_expect_str_eq(text, "the fil");
	accepted("{" MICRO "}");
	zinf_deepspeed_get(reader, &old);
	cr_expect_eq(old.bytes, 8);
	cr_expect_eq(old.train_batch, 2);
	cr_expect_eq(old.micro_batch, 9, "beyond what it knows");
	cr_expect_not(zinf_deepspeed_get_note(reader, reader->note_count, &note));
	zinf_deepspeed_free(NULL);
}

Test(deepspeed, notes_come_in_the_order_of_the_file)
{
	struct zinf_deepspeed_note note;

	accepted("{'aio': {'queue_depth': 32, 'block_size': 4096}, " MICRO ", 'gradient_clipping': "
	         "1, 'zero_optimization': {'overlap_comm': false}, 'dump_state': true}");
	cr_assert(zinf_deepspeed_get_note(reader, 0, &note));
	cr_expect_str_eq(note.key, "aio.queue_depth");
	cr_expect_str_eq(note.value, "32");
	cr_assert(zinf_deepspeed_get_note(reader, 1, &note));
	cr_expect_str_eq(note.key, "aio.block_size");
	cr_assert(zinf_deepspeed_get_note(reader, 2, &note));
	cr_expect_str_eq(note.key, "zero_optimization.overlap_comm");
	cr_expect_str_eq(note.value, "false");
	cr_assert(zinf_deepspeed_get_note(reader, 3, &note));
	cr_expect_str_eq(note.key, "dump_state");
	cr_expect_not(zinf_deepspeed_get_note(reader, 4, &note));
}

/* As before struct zinf_step_options got its last field: what follows it lay closer. */
Test(deepspeed, a_caller_with_the_former_options_of_a_step_gets_its_own_layout)
{
	const size_t begin = offsetof(struct zinf_deepspeed_config, step);
	const size_t step_bytes = offsetof(struct zinf_step_options, group_betas);
	const size_t growth = sizeof(struct zinf_step_options) - step_bytes;
	struct zinf_deepspeed_config now = { .bytes = sizeof(now) };
	unsigned char former[sizeof(now)];
	uint32_t bytes = sizeof(now) - (uint32_t)growth, told;

	accepted("{" MICRO ", 'optimizer': {'type': 'AdamW', 'params': {'lr': 0.5}}}");
	zinf_deepspeed_get(reader, &now);
	cr_expect_eq(now.bytes, sizeof(now));
	cr_expect_eq(now.step.bytes, sizeof(now.step));
	cr_expect_eq(now.step.lr, 0.5);
	memset(former, 0xee, sizeof(former));
	memcpy(former, &bytes, sizeof(bytes));
	zinf_deepspeed_get(reader, (struct zinf_deepspeed_config *)(void *)former);
	memcpy(&told, former, sizeof(told));
	cr_expect_eq(told, bytes);
	memcpy(&told, former + begin, sizeof(told));
	cr_expect_eq(told, step_bytes);
	cr_expect_eq(memcmp(former + begin + 8, (char *)&now.step + 8, step_bytes - 8), 0);
	cr_expect_eq(memcmp(former + begin + step_bytes, &now.lr, sizeof(now.lr)), 0);
	cr_expect_eq(memcmp(former + begin + step_bytes + sizeof(now.lr), &now.scaler,
	                    sizeof(now.scaler)),
	             0);
	cr_expect_eq(former[bytes], 0xee, "nothing behind it");
}
