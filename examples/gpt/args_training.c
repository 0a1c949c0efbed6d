/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the model and of its training. */
#include "examples/gpt/args_option.h"
#include "examples/gpt/data.h"
#include "zinf/zinf.h"

static const struct gpt_choice optimizers[] = {
	{ "adamw", ZINF_ADAMW },     { "adam", ZINF_ADAM }, { "sgd", ZINF_SGD },
	{ "adagrad", ZINF_ADAGRAD }, { "lion", ZINF_LION }, { NULL, 0 }
};

static const struct gpt_choice reduce_dtypes[] = {
	{ "same", 0 }, { "f32", ZINF_F32 }, { "bf16", ZINF_BF16 }, { "fp16", ZINF_F16 }, { NULL, 0 }
};

/* Limits: what the code's integers hold, and what nobody means. */
static const struct gpt_option model[] = {
	GPT_NUMBER("layers", GPT_OPTION_U32, model.layer_count, 1, 1024, "N       blocks (4)"),
	GPT_NUMBER("heads", GPT_OPTION_U32, model.head_count, 1, 1024,
	           "N       attention heads (4)"),
	GPT_NUMBER("d-model", GPT_OPTION_U32, model.channel_count, 1, 65536,
	           "N       channels (128)"),
	GPT_NUMBER("seq-len", GPT_OPTION_U32, model.sequence_count, 1, 65536,
	           "N       tokens of a sequence (128)"),
};
const struct gpt_option_table gpt_options_model = GPT_OPTION_TABLE("Model", model);

static const struct gpt_option training[] = {
	GPT_NUMBER("batch-size", GPT_OPTION_U32, model.batch_count, 1, 65536,
	           "N       sequences of a micro-batch of one rank (8)"),
	GPT_NUMBER("grad-accum", GPT_OPTION_U32, grad_accum_count, 1, 65536,
	           "N       micro-batches of a step (1)"),
	GPT_FLAG("no-sync", has_no_sync,
	         "        reduce each micro-batch, and sync only the last one; the same bits"),
	GPT_NUMBER("steps", GPT_OPTION_U64, step_count, 0, 1e15,
	           "N       train until this step is committed (300)"),
	GPT_FLAG("once", is_once,
	         "        read the text once, rank by rank, instead of drawing batches from it"),
	GPT_TEXT("deepspeed-config", deepspeed,
	         "FILE    take all of this from DeepSpeed's JSON; given flags override it"),
	GPT_CHOICE("optimizer", optimizer, optimizers,
	           "NAME    adamw, adam, sgd, adagrad or lion (adamw)"),
	GPT_NUMBER("beta1", GPT_OPTION_F64, beta1, 0, 1, "X       Adam, Lion (0.9)"),
	GPT_NUMBER("beta2", GPT_OPTION_F64, beta2, 0, 1, "X       Adam, Lion (0.95)"),
	GPT_NUMBER("eps", GPT_OPTION_F64, eps, 0, 1, "X       Adam, Adagrad (1e-8)"),
	GPT_NUMBER("weight-decay", GPT_OPTION_F64, weight_decay, 0, 1e6,
	           "X       weight decay (0.1)"),
	GPT_FLAG("weight-decay-groups", has_decay_groups,
	         "        biases and layer norms do not decay: a parameter group of their own"),
	GPT_NUMBER("momentum", GPT_OPTION_F64, momentum, 0, 1, "X       momentum of SGD (0.9)"),
	GPT_NUMBER("dampening", GPT_OPTION_F64, dampening, 0, 1, "X       dampening of SGD (0)"),
	GPT_FLAG("nesterov", is_nesterov, "        SGD with Nesterov momentum"),
	GPT_NUMBER("adagrad-decay", GPT_OPTION_F64, adagrad_decay, 0, 1e6,
	           "X       Adagrad: lr / (1 + X × updates before) (0)"),
	GPT_FLAG("no-bias-correction", has_no_bias_correction,
	         "        Adam without bias correction"),
	GPT_NUMBER("clip", GPT_OPTION_F64, clip, 0, 1e30,
	           "X       largest norm of the gradient; 0: none (1)"),
	GPT_FLAG("skip-nonfinite", is_skipping_nonfinite,
	         "        skip a step with a gradient that is not finite"),
	GPT_FLAG("bf16", is_bf16, "        parameters and gradients in bf16, master in f32"),
	GPT_FLAG("fp16", is_fp16, "        the same in fp16, with a loss scale"),
	GPT_FLAG("f32-grads", has_f32_grads, "        with --bf16 or --fp16: gradients in f32"),
	GPT_CHOICE("reduce-dtype", reduce_dtype, reduce_dtypes,
	           "NAME    type of the sums of gradients: same, f32, bf16, fp16 (same)"),
	GPT_NUMBER("seed", GPT_OPTION_U64, seed, 0, 1e15,
	           "N       seed of first values and batches (1)"),
	GPT_TEXT("data", data, "PATH    text file or directory of them (" GPT_DATA_DEFAULT ")"),
};
const struct gpt_option_table gpt_options_training = GPT_OPTION_TABLE("Training", training);
