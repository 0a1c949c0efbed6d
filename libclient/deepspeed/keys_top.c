/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the top level and of the sections that say how steps are made: with keys_zero.c and
 * keys_types.c the only place that knows what a key of DeepSpeed is. Defaults are those of 0.19
 * (deepspeed/runtime/config.py, constants.py, precision_config.py). Floor 2. */
#include "common/base/cleanup.h"
#include "libclient/deepspeed/keys.h"
#include "libclient/deepspeed/rows.h"

#define OBSERVES   "it only observes: zctl jobs shows times, bytes and rates of the daemon"
#define FRAMEWORK  "a matter of the framework that computes the model"
#define LAUNCHER   "a matter of the launcher"
#define LOADER     "the trainer loads its data itself"
#define OTHER_DATA "it changes what is trained on, and zinf does not see the data"
#define OTHER_MATH "it changes the model's arithmetic, which zinf does not do"
#define CHECKPOINT "every step is committed, and snapshots are of all ranks (docs/CHECKPOINT.md)"
#define STATE_BITS "a remainder of 16 bits and moments in f32 are kept, which is more exact"

const struct deepspeed_key deepspeed_keys_top[] = {
	/* How large a step is. */
	COUNT("train_batch_size", USE, "null", 1, WORD_MAX, .may_be_auto = true,
	      .does = "samples of a step over all ranks; follows from the other two"),
	COUNT("train_micro_batch_size_per_gpu", USE, "null", 1, WORD_MAX, .may_be_auto = true,
	      .does = "samples of a rank's micro-batch; follows from the other two"),
	COUNT("gradient_accumulation_steps", USE, "null", 1, WORD_MAX, .may_be_auto = true,
	      .does = "micro-batches of a step; follows from the other two, else 1"),
	BOOL("managed_gradient_accumulation", NOTE, "true",
	     .reason = "the trainer says by zinf_step() where a step ends"),

	/* Gradients. */
	NUMBER("gradient_clipping", USE, "1.0", 0, NUMBER_MAX, .may_be_auto = true,
	       .does = "max_norm of a step; 0: none"),
	CHOICE("gradient_allreduce_op", USE, "mean", "mean sum",
	       .does = "sum of a step; refused at stage 3, as there"),
	BOOL("prescale_gradients", NOTE, "false",
	     .reason = "sums over ranks are made in f32 and do not overflow"),
	NUMBER("gradient_predivide_factor", NOTE, "1.0", 0, NUMBER_MAX,
	       .reason = "sums over ranks are made in f32 and do not overflow"),
	CHOICE("communication_data_type", USE, "null", "fp32 fp16 bf16",
	       .does = "type of the sums over ranks"),
	CHOICE("seq_parallel_comm_data_type", NOTE, "fp32", "fp32 fp16 bf16",
	       .reason = "zinf's ranks are data-parallel: there is no sequence parallelism"),
	COUNT("sequence_parallel_size", REFUSE, "1", 1, WORD_MAX,
	      .reason = "zinf's ranks are data-parallel: there is no sequence parallelism"),
	BOOL("sparse_gradients", REFUSE, "false",
	     .reason = "gradients are dense: a sparse one has to be written out by the trainer"),
	BOOL("disable_allgather", NOTE, "false",
	     .reason = "ranks of a node share the updated parameters, and other nodes pull what "
	               "they lack"),
	OBJECT("data_types"),
	CHOICE("data_types.grad_accum_dtype", USE, "null",
	       "fp32 fp16 bf16 float32 float16 bfloat16 float half",
	       .does = "grad_dtype; else that of the parameters, for bf16 without ZeRO fp32"),
	TEXT("data_types.param_dtype", REFUSE, .reason = "fp16.enabled or bf16.enabled say it"),
	TEXT("data_types.buffer_dtype", NOTE, .reason = FRAMEWORK),

	/* Precision. */
	OBJECT("fp16"),
	BOOL("fp16.enabled", USE, "false", .may_be_auto = true,
	     .does = "param_dtype F16, with loss scaling"),
	BOOL("fp16.auto_cast", NOTE, "false", .reason = FRAMEWORK),
	NUMBER("fp16.loss_scale", USE, "0", 0, NUMBER_MAX, .does = "a fixed scale; 0: dynamic"),
	COUNT("fp16.initial_scale_power", USE, "16", 0, 127,
	      .does = "the dynamic scale begins at 2 to this"),
	COUNT("fp16.loss_scale_window", USE, "1000", 1, WORD_MAX,
	      .does = "clean steps until the scale doubles"),
	COUNT("fp16.hysteresis", USE, "2", 1, WORD_MAX,
	      .does = "overflows until the scale is halved"),
	BOOL("fp16.consecutive_hysteresis", USE, "false",
	     .does = "each clean step refills the hysteresis"),
	NUMBER("fp16.min_loss_scale", USE, "1", 0, NUMBER_MAX,
	       .does = "the least scale; an overflow there ends the run"),
	BOOL("fp16.fp16_master_weights_and_grads", NOTE, "false",
	     .reason = "weights and moments are kept in f32, which is more exact"),
	BOOL("fp16.fused_mode", NOTE, "true", .reason = "there is one way of updating"),
	OBJECT("bf16", .alias = "bfloat16"),
	BOOL("bf16.enabled", USE, "false", .may_be_auto = true, .does = "param_dtype BF16"),
	BOOL("bf16.immediate_grad_update", NOTE, "false",
	     .reason = "ranks write gradients where the daemon reads them, at once"),
	BOOL("bf16.check_grad_overflow", USE, "true", .does = "skip_nonfinite of a step"),
	BOOL("bf16.bf16_master_weights_and_grads", NOTE, "false", .reason = STATE_BITS),
	BOOL("bf16.bf16_optimizer_states", NOTE, "false", .reason = STATE_BITS),
	WHOLE("amp", REFUSE, .has_switch = true,
	      .reason = "Apex rewrites the model: say bf16.enabled or fp16.enabled instead"),
	OBJECT("torch_autocast"),
	BOOL("torch_autocast.enabled", NOTE, "false", .reason = FRAMEWORK),
	TEXT("torch_autocast.dtype", NOTE, .reason = FRAMEWORK),
	ROW(LIST, "torch_autocast.lower_precision_safe_modules", NOTE, "null", .reason = FRAMEWORK),

	/* Activations. */
	OBJECT("activation_checkpointing"),
	BOOL("activation_checkpointing.cpu_checkpointing", USE, "false",
	     .does = "the trainer keeps activations in zinf's CPU memory"),
	COUNT("activation_checkpointing.number_checkpoints", USE, "null", 1, WORD_MAX,
	      .does = "how many it keeps"),
	BOOL("activation_checkpointing.partition_activations", USE, "false",
	     .reason = "there is no model parallelism to divide them over: each rank keeps its own",
	     .does = "activations are recomputed"),
	BOOL("activation_checkpointing.contiguous_memory_optimization", USE, "false",
	     .reason = "activations lie in one pool anyway (zinf/tensor.h)",
	     .does = "activations are recomputed"),
	BOOL("activation_checkpointing.synchronize_checkpoint_boundary", NOTE, "false",
	     .reason = "there is nothing to synchronise: what is put is there"),
	BOOL("activation_checkpointing.profile", NOTE, "false", .reason = OBSERVES),

	/* What is printed, kept and compiled. */
	COUNT("steps_per_print", USE, "null", 0, WORD_MAX,
	      .does = "how often the trainer prints; 0: never"),
	BOOL("wall_clock_breakdown", USE, "false", .does = "whether it prints the times of a step"),
	BOOL("memory_breakdown", NOTE, "false", .reason = "zctl jobs shows bytes by plane"),
	BOOL("dump_state", NOTE, "false", .reason = "zctl jobs and zctl status show it"),
	TEXT("log_level", NOTE, .reason = "the daemon's is log_level of zinfd.conf"),
	OBJECT("checkpoint"),
	CHOICE("checkpoint.tag_validation", NOTE, "warn", "warn ignore fail", .reason = CHECKPOINT),
	BOOL("checkpoint.load_universal", NOTE, "false",
	     .reason = "every snapshot, and all parts of several nodes as one, loads under every "
	               "strategy and number of ranks"),
	BOOL("checkpoint.use_node_local_storage", NOTE, "false", .reason = CHECKPOINT),
	OBJECT("checkpoint.parallel_write"),
	BOOL("checkpoint.parallel_write.pipeline_stage", NOTE, "false", .reason = CHECKPOINT),
	WHOLE("checkpoint.writer", NOTE, .reason = CHECKPOINT),
	WHOLE("nebula", NOTE, .has_switch = true, .reason = CHECKPOINT),
	WHOLE("datastates_ckpt", NOTE, .reason = CHECKPOINT),
	WHOLE("compile", NOTE, .reason = FRAMEWORK),
	BOOL("graph_harvesting", NOTE, "false", .reason = FRAMEWORK),
	BOOL("zero_allow_untested_optimizer", SAME, "false",
	     .reason = "each of zinf's optimizers is tested in every tier"),
	BOOL("zero_force_ds_cpu_optimizer", SAME, "true",
	     .reason = "the daemon's optimizers are used in every case"),
	COUNT("allgather_size", NOTE, "500000000", 0, COUNT_MAX,
	      .reason = "ranks of a node share the updated parameters, and other nodes pull what "
	                "they lack"),
	COUNT("vocabulary_size", NOTE, "null", 0, COUNT_MAX,
	      .reason = "it only controls a warning there"),
	BOOL("dataloader_drop_last", NOTE, "false", .reason = LOADER),

	/* What only observes. */
	WHOLE("tensorboard", NOTE, .has_switch = true, .reason = OBSERVES),
	WHOLE("wandb", NOTE, .has_switch = true, .reason = OBSERVES),
	WHOLE("comet", NOTE, .has_switch = true, .reason = OBSERVES),
	WHOLE("csv_monitor", NOTE, .has_switch = true, .reason = OBSERVES),
	WHOLE("comms_logger", NOTE, .has_switch = true, .reason = OBSERVES),
	WHOLE("flops_profiler", NOTE, .has_switch = true, .reason = OBSERVES),
	WHOLE("timers", NOTE, .reason = OBSERVES),
	WHOLE("autotuning", NOTE, .has_switch = true, .reason = LAUNCHER),

	/* What makes another training of it. */
	WHOLE("data_efficiency", REFUSE, .has_switch = true, .reason = OTHER_DATA),
	WHOLE("curriculum_learning", REFUSE, .has_switch = true, .reason = OTHER_DATA),
	WHOLE("elasticity", REFUSE, .has_switch = true,
	      .reason = "it sets the batch by the number of ranks: say train_batch_size"),
	WHOLE("sparse_attention", REFUSE, .reason = OTHER_MATH),
	WHOLE("progressive_layer_drop", REFUSE, .has_switch = true, .reason = OTHER_MATH),
	WHOLE("compression_training", REFUSE, .reason = OTHER_MATH),
	WHOLE("quantize_training", REFUSE, .has_switch = true, .reason = OTHER_MATH),
	WHOLE("weight_quantization", REFUSE, .reason = OTHER_MATH),
	WHOLE("eigenvalue", REFUSE, .has_switch = true, .reason = OTHER_MATH),
	WHOLE("hybrid_engine", REFUSE, .has_switch = true,
	      .reason = "zinf has no engine of inference"),
	WHOLE("tensor_parallel", REFUSE, .reason = "zinf does not divide layers over ranks"),
	WHOLE("expert_parallel", REFUSE, .has_switch = true,
	      .reason = "zinf does not divide experts over ranks"),
	BOOL("use_data_before_expert_parallelism", NOTE, "false",
	     .reason = "zinf does not divide experts over ranks"),
	WHOLE("pipeline", NOTE, .reason = "only the pipeline engine reads it"),
};
const uint32_t deepspeed_keys_top_count = ZI_COUNT_OF(deepspeed_keys_top);
