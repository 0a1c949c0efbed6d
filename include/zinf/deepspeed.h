/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file deepspeed.h
 * DeepSpeed's configuration as it is: every key does what it does there, or is noted with the
 * reason why it does not, or is refused. Unknown ones are refused with the nearest known name. Not
 * part of zinf.h: include it where it is used. Needs no daemon; any thread. docs/DEEPSPEED.md has
 * all keys.
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

/** What the file leaves to the trainer: the ranks, and what "auto" stands for. Begin with
 * ZINF_DEEPSPEED_FACTS_INIT: 0 and NaN are "not known"; "auto" of such a value is refused by
 * name. */
struct zinf_deepspeed_facts {
	uint32_t bytes;
	uint32_t world_size; /**< of the data-parallel group; at least 1 */
	uint32_t micro_batch, accumulation_count;
	uint64_t warmup_count, total_count;
	double lr, beta1, beta2, eps, weight_decay, max_norm;
	enum zinf_dtype dtype;    /**< what fp16.enabled, bf16.enabled "auto" follow; 0 not known */
	uint64_t hidden_elements; /**< hidden size; of the three stage3 sizes that may be "auto" */
};

#define ZINF_DEEPSPEED_FACTS_INIT                                                                  \
	{                                                                                          \
		.bytes = sizeof(struct zinf_deepspeed_facts), .world_size = 1,                     \
		.lr = (double)__builtin_nanf(""), .beta1 = (double)__builtin_nanf(""),             \
		.beta2 = (double)__builtin_nanf(""), .eps = (double)__builtin_nanf(""),            \
		.weight_decay = (double)__builtin_nanf(""), .max_norm = (double)__builtin_nanf("") \
	}

/** What a file means. Strings are the owner's, until zinf_deepspeed_free(). */
struct zinf_deepspeed_config {
	uint32_t bytes; /**< sizeof(struct zinf_deepspeed_config), set by the caller */
	uint32_t train_batch, micro_batch, accumulation_count; /**< all three known */
	enum zinf_dtype param_dtype;                           /**< F16, BF16, else F32 */
	enum zinf_dtype grad_dtype;   /**< data_types.grad_accum_dtype, else as there: F32 for
				       *   bf16 without ZeRO, else param_dtype */
	enum zinf_dtype reduce_dtype; /**< communication_data_type; 0: grad_dtype */
	uint32_t zero_stage;          /**< 0 to 3 */
	uint32_t shard_ranks;         /**< stage 3's mics_shard_size: shard_size; 0: all */
	enum zinf_offload offload_optimizer, offload_param;
	const char *optimizer_path, *param_path; /**< nvme_path; NULL. The store is zinfd's */
	uint64_t param_budget_bytes;  /**< offload_param.max_in_cpu; 0: zinf's own choice */
	uint64_t bucket_bytes;        /**< reduce_bucket_size; 0: zinf's own choice */
	uint64_t persistent_elements; /**< stage3_param_persistence_threshold; 0: the same */
	bool ignores_unused;          /**< ignore_unused_parameters */
	bool has_optimizer;           /**< else the trainer's own; of `step`, clipping holds */
	bool has_lr;                  /**< there is a scheduler */
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

/** A key that was read and does nothing, or not quite what it does there. */
struct zinf_deepspeed_note {
	const char *key;   /**< "zero_optimization.overlap_comm" */
	const char *value; /**< as JSON */
	const char *reason;
};

struct zinf_deepspeed;

/** @json: (@json_bytes,) UTF-8, at most 16 MiB. @text: (@text_bytes,) why not, with key, value,
 * line or nearest name; may be NULL. @ret_deepspeed: the caller's, zinf_deepspeed_free() it.
 * Return: 0; -EINVAL; -EOPNOTSUPP a value that asks for other results than zinf gives; -EFBIG;
 * -ENOMEM. */
ZINF_API int zinf_deepspeed_read(const char *json, size_t json_bytes,
                                 const struct zinf_deepspeed_facts *facts, char *text,
                                 size_t text_bytes, struct zinf_deepspeed **ret_deepspeed);
/** The same of a file; also -ENOENT, -EACCES, -EISDIR, -EFBIG. */
ZINF_API int zinf_deepspeed_open(const char *path, const struct zinf_deepspeed_facts *facts,
                                 char *text, size_t text_bytes,
                                 struct zinf_deepspeed **ret_deepspeed);
/** @ret_config: set its `bytes` before; later fields are left alone. Strings stay @deepspeed's. */
ZINF_API void zinf_deepspeed_get(const struct zinf_deepspeed *deepspeed,
                                 struct zinf_deepspeed_config *ret_config);
/** The @index-th note, counting from 0, in the file's order. False: there are no more. */
ZINF_API bool zinf_deepspeed_get_note(const struct zinf_deepspeed *deepspeed, uint32_t index,
                                      struct zinf_deepspeed_note *ret_note);
/** NULL is fine. */
ZINF_API void zinf_deepspeed_free(struct zinf_deepspeed *deepspeed);

#ifdef __cplusplus
}
#endif

#endif
