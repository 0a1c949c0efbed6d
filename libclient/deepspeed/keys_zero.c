/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of zero_optimization and aio (deepspeed/runtime/zero/config.py, offload_config.py,
 * runtime/swap_tensor/aio_config.py). A stage-3 key may be written without its "stage3_", as
 * there. Floor 2. */
#include "common/base/cleanup.h"
#include "libclient/deepspeed/keys.h"
#include "libclient/deepspeed/rows.h"

#define Z "zero_optimization."
#define P "zero_optimization.offload_param."
#define O "zero_optimization.offload_optimizer."

#define SHARED    "ranks of a node share the parameters, and other nodes pull what they lack"
#define BUFFERS   "buffers are sized from the model and the daemon's budget (zinfd.conf)"
#define PIPELINED "reading, updating and writing always overlap"
#define PINNED    "tier.cpu.lock of zinfd.conf says whether memory is locked"
#define HOME      "the store is configured in zinfd.conf"
#define MEASURED  "zinfd measures the drive (zctl bench nvme) and chooses"
#define STAGE_TWO \
	"ranks of a node have their gradients in one place, and nodes pull what each of them sums"
#define FRAMEWORK "a matter of the framework that computes the model"
#define QUANTIZED "nothing is quantised on its way, which is more exact"
#define EXPORTED                                                                                 \
	"zctl export writes whole tensors of any strategy, without a trainer; of several nodes " \
	"when their parts were loaded as one"
#define BY_UNIT  "what is fetched together is a unit, which the trainer says (zinf_unit_add())"
#define RESIDENT "what stays in memory is decided by param_budget_bytes"

const struct deepspeed_key deepspeed_keys_zero[] = {
	OBJECT("zero_optimization"),
	COUNT(Z "stage", USE, "0", 0, 3,
	      .does = "divided over ranks: 1 optimizer state, 2 gradients, 3 parameters too"),
	BOOL(Z "contiguous_gradients", NOTE, "true",
	     .reason = "a unit's gradients always lie in one piece"),
	BOOL(Z "reduce_scatter", NOTE, "true", .reason = STAGE_TWO),
	COUNT(Z "reduce_bucket_size", USE, "500000000", 0, COUNT_MAX, .may_be_auto = true,
	      .reason = "a hint: gradients are reduced unit by unit, as they are handed over",
	      .does = "bucket_bytes, by the width of a gradient"),
	BOOL(Z "use_multi_rank_bucket_allreduce", NOTE, "true", .reason = STAGE_TWO),
	BOOL(Z "allgather_partitions", NOTE, "true", .reason = SHARED),
	COUNT(Z "allgather_bucket_size", NOTE, "500000000", 0, COUNT_MAX, .may_be_auto = true,
	      .reason = SHARED),
	BOOL(Z "overlap_comm", NOTE, "null", .same = "true",
	     .reason = "reductions always overlap with backward"),
	BOOL(Z "load_from_fp32_weights", NOTE, "true",
	     .reason = "a resume is exact: masters are part of every commit"),
	BOOL(Z "elastic_checkpoint", NOTE, "false",
	     .reason = "every snapshot, and all parts of several nodes as one, loads under every "
	               "number of ranks"),
	COUNT(Z "sub_group_size", NOTE, "1000000000", 0, COUNT_MAX, .reason = BUFFERS),
	BOOL(Z "ignore_unused_parameters", USE, "true",
	     .does = "false: a parameter without a gradient is an error"),
	BOOL(Z "legacy_stage1", NOTE, "false", .reason = "there is one stage 1"),
	BOOL(Z "round_robin_gradients", NOTE, "false", .reason = STAGE_TWO),
	BOOL(Z "memory_efficient_linear", NOTE, "true", .reason = FRAMEWORK),
	BOOL(Z "override_module_apply", NOTE, "true", .reason = FRAMEWORK),
	BOOL(Z "pipeline_loading_checkpoint", NOTE, "false",
	     .reason = "loading streams in every case"),
	BOOL(Z "log_trace_cache_warnings", NOTE, "false",
	     .reason = "the order of units is recorded again when it changes"),
	BOOL(Z "enable_sanity_checks", NOTE, "false", .same = "true",
	     .reason = "checks are on in every case"),
	BOOL(Z "save_muon_momentum_buffer_in_memory", NOTE, "false",
	     .reason = "there is no Muon here"),

	/* Parameters come and go. */
	COUNT(Z "stage3_prefetch_bucket_size", NOTE, "50000000", 0, COUNT_MAX,
	      .alias = "prefetch_bucket_size", .may_be_auto = true,
	      .reason = "units are read ahead as far as param_budget_bytes allows"),
	COUNT(Z "stage3_param_persistence_threshold", USE, "100000", 0, COUNT_MAX,
	      .alias = "param_persistence_threshold", .may_be_auto = true,
	      .reason = "a hint: " RESIDENT, .does = "persistent_elements, at stage 3"),
	COUNT(Z "stage3_model_persistence_threshold", NOTE, "9223372036854775807", 0, COUNT_MAX,
	      .alias = "model_persistence_threshold", .reason = RESIDENT),
	COUNT(Z "stage3_max_live_parameters", NOTE, "1000000000", 0, COUNT_MAX,
	      .alias = "max_live_parameters", .reason = RESIDENT),
	COUNT(Z "stage3_max_reuse_distance", NOTE, "1000000000", 0, COUNT_MAX,
	      .alias = "max_reuse_distance", .reason = RESIDENT),
	BOOL(Z "stage3_gather_16bit_weights_on_model_save", NOTE, "false",
	     .alias = "gather_16bit_weights_on_model_save", .reason = EXPORTED),
	BOOL(Z "stage3_gather_fp16_weights_on_model_save", NOTE, "false", .reason = EXPORTED),
	COUNT(Z "stage3_module_granularity_threshold", NOTE, "0", 0, COUNT_MAX,
	      .alias = "module_granularity_threshold", .reason = BY_UNIT),
	WHOLE(Z "leaf_module", NOTE, .reason = BY_UNIT),
	BOOL(Z "stage3_use_all_reduce_for_fetch_params", NOTE, "false",
	     .alias = "use_all_reduce_for_fetch_params", .reason = SHARED),
	BOOL(Z "stage3_allgather_sequential", NOTE, "false", .alias = "allgather_sequential",
	     .reason = SHARED),
	COUNT(Z "stage3_partition_stream_chunk_size", NOTE, "0", 0, COUNT_MAX,
	      .alias = "partition_stream_chunk_size", .reason = BUFFERS),

	/* Where planes live. */
	OBJECT(Z "offload_param"),
	CHOICE(P "device", USE, "none", "none cpu nvme",
	       .does = "offload_param; needs stage 3, as there"),
	TEXT(P "nvme_path", USE, .reason = HOME, .does = "passed to the trainer"),
	COUNT(P "buffer_count", NOTE, "5", 0, COUNT_MAX, .reason = BUFFERS),
	COUNT(P "buffer_size", NOTE, "100000000", 0, COUNT_MAX, .reason = BUFFERS),
	COUNT(P "max_in_cpu", USE, "1000000000", 0, COUNT_MAX,
	      .does = "param_budget_bytes, by the width of a parameter, with device nvme"),
	BOOL(P "pin_memory", NOTE, "false", .same = "true", .reason = PINNED),
	OBJECT(Z "offload_optimizer"),
	CHOICE(O "device", USE, "none", "none cpu nvme", .does = "offload_optimizer"),
	TEXT(O "nvme_path", USE, .reason = HOME, .does = "passed to the trainer"),
	COUNT(O "buffer_count", NOTE, "4", 0, COUNT_MAX, .reason = BUFFERS),
	BOOL(O "pin_memory", NOTE, "false", .same = "true", .reason = PINNED),
	BOOL(O "pipeline_read", NOTE, "false", .same = "true", .reason = PIPELINED),
	BOOL(O "pipeline_write", NOTE, "false", .same = "true", .reason = PIPELINED),
	BOOL(O "fast_init", NOTE, "false", .same = "true",
	     .reason = "state that was never written is zero and takes no I/O"),
	NUMBER(O "ratio", NOTE, "1.0", 0, 1,
	       .reason = "all state is updated where it lies, none of it on a GPU"),
	BOOL(O "super_offload", NOTE, "false",
	     .reason = "the update runs in the daemon, beside the trainer, in every case"),
	BOOL(O "convert_grad_on_cpu", NOTE, "true",
	     .reason = "gradients are converted in the pass that applies them"),
	NUMBER(O "cpuadam_cores_perc", NOTE, "0.8", 0, 1,
	       .reason = "pool_threads of zinfd.conf says how many threads compute"),
	BOOL(Z "cpu_offload", USE, "null",
	     .does = "the old name of offload_optimizer with device cpu"),
	BOOL(Z "cpu_offload_param", USE, "null",
	     .does = "the old name of offload_param with device cpu"),
	BOOL(Z "cpu_offload_use_pin_memory", NOTE, "null", .same = "true", .reason = PINNED),

	/* Over fewer ranks; and what gives other results. */
	COUNT(Z "mics_shard_size", USE, "-1", -1, WORD_MAX,
	      .does = "with stage 3: planes are divided over groups of so many ranks (shard_size); "
	              "-1: all"),
	BOOL(Z "mics_hierarchical_params_gather", NOTE, "false", .reason = SHARED),
	COUNT(Z "zero_hpz_partition_size", NOTE, "1", 0, WORD_MAX,
	      .reason = "a node keeps fetched units once for all its ranks, while there is room"),
	BOOL(Z "zero_quantized_weights", NOTE, "false", .reason = QUANTIZED),
	BOOL(Z "zero_quantized_nontrainable_weights", NOTE, "false", .reason = QUANTIZED),
	BOOL(Z "zero_quantized_gradients", NOTE, "false", .reason = QUANTIZED),
	WHOLE(Z "zeropp_loco_param", NOTE, .reason = QUANTIZED),
	WHOLE(Z "zenflow", NOTE,
	      .reason = "nothing is updated later: a step uses all gradients of that step"),

	/* The engine under NVMe. */
	OBJECT("aio"),
	COUNT("aio.block_size", NOTE, "1048576", 1, COUNT_MAX, .reason = MEASURED),
	COUNT("aio.queue_depth", NOTE, "8", 1, COUNT_MAX, .reason = MEASURED),
	COUNT("aio.intra_op_parallelism", NOTE, "1", 1, COUNT_MAX, .reason = MEASURED),
	BOOL("aio.single_submit", NOTE, "false", .reason = MEASURED),
	BOOL("aio.overlap_events", NOTE, "true", .reason = MEASURED),
	BOOL("aio.use_gds", NOTE, "false", .reason = MEASURED),
};
const uint32_t deepspeed_keys_zero_count = ZI_COUNT_OF(deepspeed_keys_zero);
