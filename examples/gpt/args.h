/* SPDX-License-Identifier: Apache-2.0 */
/* The command line, in the field's terms. Tables by topic (args_option.h) say names, types, limits
 * and help. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "examples/gpt/model.h"
#include "examples/gpt/problem.h"
#include "zinf/lr.h"
#include "zinf/scaler.h"
#include "zinf/zinf.h"

#define GPT_OPTIONS_MAX 128u /* of all tables (args_option.h) */

/* Where activations lie between forward and backward (checkpoint.h). */
enum gpt_activations_kind {
	GPT_ACTIVATIONS_KEEP = 0,
	GPT_ACTIVATIONS_RECOMPUTE,
	GPT_ACTIVATIONS_CPU,
	GPT_ACTIVATIONS_NVME
};

struct gpt_args {
	struct gpt_config model;
	/* ranks */
	uint32_t rank_count;  /* --ranks; 0: not given */
	int32_t rank;         /* a launcher's; -1: this process starts the ranks itself */
	uint32_t world_count; /* a launcher's or --ranks */
	bool is_launched;     /* so: ranks are processes of their own, maybe on several nodes */
	uint32_t restart_max;
	double grace_s;         /* between SIGTERM and SIGKILL */
	uint32_t restart_index; /* which life of the ranks this is; by the parent or launcher */
	uint32_t thread_count;  /* of each rank; 0: as many as the CPUs give it */
	bool is_reference;
	/* training */
	uint32_t grad_accum_count;
	uint64_t step_count;   /* is_once: 0 until the text is read */
	bool is_once;          /* once.h */
	const char *deepspeed; /* DeepSpeed's JSON; NULL: none */
	double lr;
	double min_lr;
	uint64_t warmup_count;
	uint32_t lr_kind;        /* enum zinf_lr_kind; 0: gpt's own; the next are args_lr.c's */
	uint64_t lr_total_count; /* 0: step_count */
	double lr_cycles, lr_end, lr_power, lr_min_ratio; /* or GPT_LR_UNSET */
	uint64_t lr_stable_count;                         /* or GPT_LR_UNSET_COUNT */
	uint64_t lr_decay_count;
	struct zinf_lr_options lr_options; /* DeepSpeed's scheduler; kind 0: by the flags above */
	uint32_t lr_warmup_shape, lr_decay_shape; /* enum zinf_lr_shape; 0: the schedule's */
	double beta1;
	double beta2;
	double eps;
	double weight_decay;
	bool has_decay_groups; /* gpt_param_group() */
	double momentum;
	double dampening;
	double clip;
	double adagrad_decay;
	bool is_nesterov;
	bool has_no_bias_correction;
	bool is_skipping_nonfinite;
	bool has_no_sync;   /* every micro-batch is handed over, all but the last under no_sync */
	bool is_summing;    /* of ranks' gradients the sum, not the average */
	uint32_t optimizer; /* enum zinf_optimizer */
	uint32_t grad_reduction; /* enum zinf_grad_reduction */
	bool is_bf16;
	bool is_fp16;          /* not both */
	bool has_f32_grads;    /* with parameters of 16 bits */
	uint32_t reduce_dtype; /* enum zinf_dtype of sums; 0: gradients' */
	double loss_scale;     /* fixed; 0: the next decide, with fp16 */
	uint32_t scaler_kind;  /* enum zinf_scaler_kind; 0: deepspeed, as the next its default */
	double scale_init;
	uint32_t scale_window, scale_hysteresis;
	double scale_min; /* or GPT_SCALE_UNSET */
	bool is_scale_consecutive;
	struct zinf_scaler_options scaler; /* what these mean together */
	uint64_t seed;
	const char *data;
	uint32_t activations;      /* enum gpt_activations_kind */
	uint32_t checkpoint_every; /* blocks; 0: whole blocks are stored */
	/* device (args_device.c) */
	const char *device; /* as it was given; NULL: the CPU. The next two follow */
	bool is_gpu;
	const char *gpu_uuid; /* NULL: by the rank's number */
	uint64_t gpu_param_budget_bytes, gpu_grad_budget_bytes;
	const char *gpu_driver, *cublas; /* paths; NULL: the system's */
	/* zinf */
	const char *strategy;       /* as zinf_strategy_by_name() takes it; NULL: ddp */
	uint32_t shard_size;        /* ranks that share a plane; 0: the strategy's */
	uint32_t offload_optimizer; /* enum zinf_offload */
	uint32_t offload_param;     /* enum zinf_offload */
	uint32_t durability;        /* enum zinf_durability */
	uint64_t resident_bytes;
	uint32_t commit_interval;
	uint32_t snapshot_interval, snapshot_keep;
	uint64_t staging_bytes;
	uint64_t param_budget_bytes;
	uint64_t grad_budget_bytes;
	uint32_t timeout_s;
	const char *job;
	const char *load;     /* snapshot that a new job begins with; NULL: none */
	const char *resume;   /* as it was given; NULL: not. The next three follow (resume.h) */
	uint64_t resume_step; /* resumes_step */
	bool resumes_step, resumes_latest;
	const char *incarnation;
	const char *socket;
	bool is_waiting_for_daemon;
	bool is_deleting_job;
	/* instead of training */
	const char *eval; /* NULL: not asked for */
	uint64_t generate_count;
	const char *prompt;
	double temperature;
	uint32_t top_k;
	/* output */
	uint64_t log_every;
	uint64_t eval_every;
	uint32_t eval_batch_count;
	const char *dump, *dump_state;
	bool is_quiet;
	bool is_json;
	bool is_help, is_version;
	/* for tests */
	const char *watch;        /* rank 0 writes the number of each committed step there */
	uint64_t exit_after_step; /* exit_rank kills itself then; 0: never */
	uint32_t exit_rank;
	bool is_given[GPT_OPTIONS_MAX]; /* gpt_args_is_given() */
};

int gpt_args_parse(struct gpt_args *args, int argc, const char *const *argv,
                   struct gpt_problem *problem);
int gpt_args_check(struct gpt_args *args, struct gpt_problem *problem);
int gpt_args_environment(struct gpt_args *args, struct gpt_problem *problem);
bool gpt_args_is_given(const struct gpt_args *args, const char *name);
void gpt_args_help(FILE *file);
/* Groups of parameters: with --weight-decay-groups vectors (biases, layer norms) have one of their
 * own, without weight decay. */
#define GPT_GROUPS_MAX 2u
uint32_t gpt_group_count(const struct gpt_args *args);
uint32_t gpt_param_group(const struct gpt_args *args, const struct gpt_param *param);
/* As the options mean them together. */
enum zinf_dtype gpt_param_dtype(const struct gpt_args *args);
enum zinf_dtype gpt_grad_dtype(const struct gpt_args *args);
enum zinf_dtype gpt_reduce_dtype(const struct gpt_args *args);
const char *gpt_dtype_name(enum zinf_dtype dtype);
