/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file deepspeed.h
 * Reads DeepSpeed's JSON configuration. A key has the same effect as in DeepSpeed, or it is noted
 * with a reason, or refused. An unknown key is refused with the nearest known name. Not part of
 * zinf.h: include it where it is used. Needs no daemon; any thread. docs/DEEPSPEED.md lists all
 * keys.
 */
#ifndef ZINF_DEEPSPEED_H
#define ZINF_DEEPSPEED_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/lr.h>
#include <zinf/scaler.h>
#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Values that the trainer gives: the ranks, and the values of "auto". Begin with
 * ZINF_DEEPSPEED_FACTS_INIT: 0 and NaN mean "not known". "auto" for a value that is not known is
 * refused by name. */
struct zinf_deepspeed_facts {
	uint32_t bytes;
	uint32_t world_size; /**< ranks of the data-parallel group; at least 1 */
	uint32_t micro_batch, accumulation_count;
	uint64_t warmup_count, total_count;
	double lr, beta1, beta2, eps, weight_decay, max_norm;
	enum zinf_dtype dtype;    /**< for fp16.enabled, bf16.enabled "auto"; 0: not known */
	uint64_t hidden_elements; /**< hidden size, for the three stage3 sizes with "auto" */
};

#define ZINF_DEEPSPEED_FACTS_INIT                                                                  \
	{                                                                                          \
		.bytes = sizeof(struct zinf_deepspeed_facts), .world_size = 1,                     \
		.lr = (double)__builtin_nanf(""), .beta1 = (double)__builtin_nanf(""),             \
		.beta2 = (double)__builtin_nanf(""), .eps = (double)__builtin_nanf(""),            \
		.weight_decay = (double)__builtin_nanf(""), .max_norm = (double)__builtin_nanf("") \
	}

/** The contents of a file. struct zinf_deepspeed owns the strings until zinf_deepspeed_free(). */
struct zinf_deepspeed_config {
	uint32_t bytes; /**< sizeof(struct zinf_deepspeed_config), set by the caller */
	uint32_t train_batch, micro_batch, accumulation_count; /**< all three are set */
	enum zinf_dtype param_dtype;                           /**< F16, BF16, else F32 */
	enum zinf_dtype grad_dtype;   /**< data_types.grad_accum_dtype; without it F32 for bf16
				       *   without ZeRO, else param_dtype, as in DeepSpeed */
	enum zinf_dtype reduce_dtype; /**< communication_data_type; 0: grad_dtype */
	uint32_t zero_stage;          /**< 0 to 3 */
	uint32_t shard_ranks;         /**< stage 3's mics_shard_size: shard_size; 0: all */
	enum zinf_offload offload_optimizer, offload_param;
	const char *optimizer_path, *param_path; /**< nvme_path or NULL; zinfd has the store */
	uint64_t param_budget_bytes;             /**< offload_param.max_in_cpu; 0: zinf chooses */
	uint64_t bucket_bytes;                   /**< reduce_bucket_size; 0: zinf chooses */
	uint64_t persistent_elements; /**< stage3_param_persistence_threshold; 0: zinf chooses */
	bool ignores_unused;          /**< ignore_unused_parameters */
	bool has_optimizer;           /**< false: the trainer's; of `step` only clipping is set */
	bool has_lr;                  /**< the file has a scheduler */
	bool has_no_bias_correction;  /**< as step.no_bias_correction */
	bool is_checkpointing, checkpoints_to_cpu; /**< activations */
	bool shows_times;                          /**< wall_clock_breakdown */
	uint32_t checkpoint_count; /**< activation_checkpointing.number_checkpoints; 0: not given */
	uint32_t print_interval;   /**< steps_per_print; 0: never */
	enum zinf_optimizer optimizer;
	double lr_decay;                   /**< as step.lr_decay */
	struct zinf_step_options step;     /**< lr, betas, eps, decays, max_norm, sum, skip */
	struct zinf_lr_options lr;         /**< with has_lr */
	struct zinf_scaler_options scaler; /**< kind NONE without f16 */
};

/** A key that has no effect, or another effect than in DeepSpeed. */
struct zinf_deepspeed_note {
	const char *key;   /**< "zero_optimization.overlap_comm" */
	const char *value; /**< as JSON */
	const char *reason;
};

struct zinf_deepspeed;

/** Reads JSON. @json: (@json_bytes,) UTF-8, at most 16 MiB. @text: (@text_bytes,) gets the error,
 * with key, value, line or nearest name; may be NULL. @ret_deepspeed: owned by the caller, who
 * calls zinf_deepspeed_free(). Return: 0; -EINVAL a key or value is wrong; -EOPNOTSUPP a value asks
 * for results that zinf does not give; -EFBIG above 16 MiB; -ENOMEM. */
ZINF_API int zinf_deepspeed_read(const char *json, size_t json_bytes,
                                 const struct zinf_deepspeed_facts *facts, char *text,
                                 size_t text_bytes, struct zinf_deepspeed **ret_deepspeed);
/** Reads a file, as zinf_deepspeed_read(); also -ENOENT, -EACCES, -EISDIR. */
ZINF_API int zinf_deepspeed_open(const char *path, const struct zinf_deepspeed_facts *facts,
                                 char *text, size_t text_bytes,
                                 struct zinf_deepspeed **ret_deepspeed);
/** Returns the contents. @ret_config: set its `bytes` before; fields beyond it stay unchanged.
 * @deepspeed owns the strings. */
ZINF_API void zinf_deepspeed_get(const struct zinf_deepspeed *deepspeed,
                                 struct zinf_deepspeed_config *ret_config);
/** Returns the @index-th note, from 0, in the order of the file. False: there are no more. */
ZINF_API bool zinf_deepspeed_get_note(const struct zinf_deepspeed *deepspeed, uint32_t index,
                                      struct zinf_deepspeed_note *ret_note);
/** Frees @deepspeed, which may be NULL. */
ZINF_API void zinf_deepspeed_free(struct zinf_deepspeed *deepspeed);

#ifdef __cplusplus
}
#endif

#endif
