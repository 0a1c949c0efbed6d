/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a job trains: what goes together, what differs between ranks. Floor 1, pure.
 *
 * One table has every word, so that none can be added and be forgotten by the comparison.
 */
#include "common/wire/training.h"

#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/strategy.h"

/* More micro-batches than this in one gradient have no meaning. */
#define TRAINING_ACCUMULATION_MAX 65536u

/* A word as people read it: "zero1", "4", "2.5 GiB". */
struct training_word {
	char chars[32];
};

enum training_kind {
	TRAINING_STRATEGY,
	TRAINING_DTYPE,
	TRAINING_SCALER,
	TRAINING_COUNT,
	TRAINING_FLAG,
	TRAINING_BYTES,
	TRAINING_REAL,
};

struct training_field {
	const char *name;
	uint16_t offset_bytes;
	uint16_t kind; /* enum training_kind: BYTES are 64 bits, as REAL; others 32 */
	uint32_t flag; /* FLAG: the bit */
};

#define WORD(name, member, kind)                                                   \
	{                                                                          \
		name, offsetof(struct zi_job_training, member), TRAINING_##kind, 0 \
	}
#define FLAG(name, flag)                                                           \
	{                                                                          \
		name, offsetof(struct zi_job_training, flags), TRAINING_FLAG, flag \
	}

static const struct training_field training_fields[] = {
	WORD("strategy", strategy, STRATEGY),
	WORD("shard_size", shard_size, COUNT),
	WORD("accumulation", accumulation, COUNT),
	WORD("reduce_dtype", reduce_dtype, DTYPE),
	WORD("scaler", scaler_kind, SCALER),
	WORD("scale_window", scale_window, COUNT),
	WORD("scale_hysteresis", scale_hysteresis, COUNT),
	FLAG("is_consecutive", ZI_TRAINING_CONSECUTIVE),
	FLAG("is_forward_only", ZI_TRAINING_FORWARD_ONLY),
	FLAG("finds_unused", ZI_TRAINING_FIND_UNUSED),
	WORD("group_count", group_count, COUNT),
	WORD("grad_budget_bytes", grad_budget_bytes, BYTES),
	WORD("scale_init", scale_init, REAL),
	WORD("scale_min", scale_min, REAL),
	WORD("scale_max", scale_max, REAL),
	WORD("scale_growth", scale_growth, REAL),
	WORD("scale_backoff", scale_backoff, REAL),
};
/* Eight words of 32 bits, six of 64, and the flags; reserved ones are what is beside them. */
static_assert(ZI_COUNT_OF(training_fields) == 14 + 3, "every word is in the table");
static_assert(ZI_TRAINING_FLAGS_ALL == (1u << 3) - 1, "every flag is in the table");

/* ---- what goes together ---- */

static int check_reserved(const struct zi_job_training *training, struct zi_text *text)
{
	uint64_t all = training->reserved0;

	for (size_t i = 0; i < ZI_COUNT_OF(training->reserved); i++)
		all |= training->reserved[i];
	if (all || training->flags & ~ZI_TRAINING_FLAGS_ALL)
		return err_origin(zi_text_error(
			text, -EPROTO, "job training: unknown flags or reserved words are set"));
	return 0;
}

static int check_counts(const struct zi_job_training *training, struct zi_text *text)
{
	const struct {
		const char *name;
		uint32_t value, max;
	} counts[] = {
		{ "strategy", training->strategy, _ZI_STRATEGY_COUNT - 1 },
		{ "shard_size", training->shard_size, ZI_WORLD_MAX },
		{ "accumulation", training->accumulation, TRAINING_ACCUMULATION_MAX },
		{ "reduce_dtype", training->reduce_dtype, _ZI_DTYPE_FLOAT_COUNT - 1 },
		{ "scaler", training->scaler_kind, _ZI_SCALER_COUNT - 1 },
		{ "group_count", training->group_count, ZI_PARAM_GROUPS_MAX },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(counts); i++)
		if (counts[i].value > counts[i].max)
			return err_origin(
				zi_text_error(text, -EINVAL, "%s is %u: 0 to %u are allowed",
			                      counts[i].name, counts[i].value, counts[i].max));
	if (training->grad_budget_bytes > INT64_MAX)
		return err_origin(
			zi_text_error(text, -EINVAL, "grad_budget_bytes must be below 2^63"));
	return 0;
}

static int check_places(const struct zi_job_training *training, uint32_t world_size,
                        uint32_t local_size, struct zi_text *text)
{
	const char *name = zi_strategy_name(training->strategy);

	if (training->shard_size && !zi_strategy_divides_state(training->strategy))
		return err_origin(zi_text_error(text, -EINVAL,
		                                "shard_size is %u, but strategy %s shards nothing: "
		                                "leave it 0, or use zero1, zero2 or zero3",
		                                training->shard_size, name));
	if (training->shard_size && world_size % training->shard_size)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "shard_size is %u: it must divide the %u ranks of "
		                                "the job, or be 0 for all of them",
		                                training->shard_size, world_size));
	if (local_size == world_size)
		return 0;
	if (training->strategy == ZI_STRATEGY_DP)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "strategy dp is of one process, but %u of %u ranks "
		                                "are on this node: use ddp",
		                                local_size, world_size));
	return 0;
}

/* What bounds a pool, or buckets, where there are none would be believed and do nothing. */
static int check_pool(const struct zi_job_training *training, const struct zi_job_config *config,
                      bool spans_nodes, struct zi_text *text)
{
	bool is_divided = spans_nodes && zi_strategy_divides_params(training->strategy);

	if (!config->param_budget_bytes || config->offload_param == ZI_OFFLOAD_NVME || is_divided)
		return 0;
	return err_origin(zi_text_error(
		text, -EINVAL,
		"param_budget_bytes is for offload_param nvme, and for zero3 over several nodes: "
		"leave it 0"));
}

static int check_budget(const struct zi_job_training *training, const struct zi_job_config *config,
                        struct zi_text *text)
{
	if (!training->grad_budget_bytes)
		return 0;
	if (!zi_strategy_divides_grads(training->strategy))
		return err_origin(zi_text_error(
			text, -EINVAL,
			"grad_budget_bytes is %s, but strategy %s keeps all gradients in each "
			"rank: leave it 0, or use zero2 or zero3",
			zi_format_bytes(training->grad_budget_bytes).chars,
			zi_strategy_name(training->strategy)));
	if (training->accumulation > 1 && config->schedule != ZI_SCHEDULE_SHARDED)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"grad_budget_bytes is %s, but with accumulation %u each rank adds up all "
			"gradients in its own memory: leave it 0, or set grad_reduction to "
			"per_micro_batch",
			zi_format_bytes(training->grad_budget_bytes).chars,
			training->accumulation));
	return 0;
}

/* A 16-bit type has no room for values of the other one. */
static int check_reduce(const struct zi_job_training *training, const struct zi_job_config *config,
                        struct zi_text *text)
{
	enum zi_dtype reduce = zi_training_reduce_dtype(training, config);

	if (reduce == config->grad_dtype || reduce == ZI_DTYPE_F32 ||
	    config->grad_dtype == ZI_DTYPE_F32)
		return 0;
	return err_origin(zi_text_error(text, -EINVAL,
	                                "reduce_dtype is %s, but grad_dtype is %s: use f32, or "
	                                "grad_dtype f32",
	                                zi_dtype_name(reduce),
	                                zi_dtype_name((enum zi_dtype)config->grad_dtype)));
}

/* See training.h, as are the next. */
enum zi_dtype zi_training_reduce_dtype(const struct zi_job_training *training,
                                       const struct zi_job_config *config)
{
	return (enum zi_dtype)(training->reduce_dtype ? training->reduce_dtype
	                                              : config->grad_dtype);
}

bool zi_training_has_wide_sums(const struct zi_job_training *training,
                               const struct zi_job_config *config)
{
	return zi_training_reduce_dtype(training, config) == ZI_DTYPE_F32 &&
	       config->grad_dtype != ZI_DTYPE_F32;
}

struct zi_scaler_options zi_training_scaler(const struct zi_job_training *training)
{
	return (struct zi_scaler_options){
		.kind = (enum zi_scaler_kind)training->scaler_kind,
		.window = training->scale_window,
		.hysteresis = training->scale_hysteresis,
		.is_consecutive = training->flags & ZI_TRAINING_CONSECUTIVE,
		.init = training->scale_init,
		.growth = training->scale_growth,
		.backoff = training->scale_backoff,
		.min = training->scale_min,
		.max = training->scale_max,
	};
}

void zi_training_set_scaler(struct zi_job_training *training,
                            const struct zi_scaler_options *options)
{
	static const struct zi_scaler_options none = { .kind = ZI_SCALER_NONE };

	if (options->kind == ZI_SCALER_NONE)
		options = &none;
	training->scaler_kind = options->kind;
	training->scale_window = options->window;
	training->scale_hysteresis = options->hysteresis;
	training->flags &= ~ZI_TRAINING_CONSECUTIVE;
	if (options->is_consecutive)
		training->flags |= ZI_TRAINING_CONSECUTIVE;
	training->scale_init = options->init;
	training->scale_growth = options->growth;
	training->scale_backoff = options->backoff;
	training->scale_min = options->min;
	training->scale_max = options->max;
}

/* With NONE a word that is set says that the kind was forgotten. */
static int check_scaler(const struct zi_job_training *training, struct zi_text *text)
{
	const struct zi_scaler_options options = zi_training_scaler(training);
	bool is_set = options.window || options.hysteresis || options.is_consecutive ||
	              options.init != 0 || options.growth != 0 || options.backoff != 0 ||
	              options.min != 0 || options.max != 0;
	int r;

	if (options.kind == ZI_SCALER_NONE && is_set)
		return err_origin(zi_text_error(
			text, -EINVAL, "words of a loss scale are set, but scaler is none"));
	r = zi_scaler_check(&options, text);
	return r ? err_origin(r) : 0;
}

/**
 * zi_check_training() - how a job is to train
 * @config: of the same ATTACH, checked
 * @world_size: ranks of the job
 * @local_size: of them on this node, at least 1
 * @text: names the field and what is allowed; may be NULL
 *
 * Return: 0; -EINVAL a value; -EPROTO unknown flags, reserved words.
 */
int zi_check_training(const struct zi_job_training *training, const struct zi_job_config *config,
                      uint32_t world_size, uint32_t local_size, struct zi_text *text)
{
	int r;

	assert(world_size);
	assert(local_size && local_size <= world_size);
	r = check_reserved(training, text);
	if (!r)
		r = check_counts(training, text);
	if (!r)
		r = check_places(training, world_size, local_size, text);
	if (!r)
		r = check_pool(training, config, local_size < world_size, text);
	if (!r)
		r = check_reduce(training, config, text);
	if (!r)
		r = check_budget(training, config, text);
	if (r)
		return err_trace(r);
	if (training->accumulation > 1 && config->schedule == ZI_SCHEDULE_SHARDED)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "accumulation is %u, but with grad_reduction "
		                                "per_micro_batch the daemon accumulates: leave it "
		                                "0, and give micro_batches to each step",
		                                training->accumulation));
	return err_trace(check_scaler(training, text));
}

/* ---- two of them ---- */

/* The value that zero stands for. */
static uint64_t meant(const struct training_field *field, uint64_t value,
                      const struct zi_job_config *config)
{
	if (value)
		return value;
	if (field->kind == TRAINING_STRATEGY)
		return ZI_STRATEGY_DDP;
	if (field->kind == TRAINING_DTYPE)
		return config->grad_dtype;
	if (field->offset_bytes == offsetof(struct zi_job_training, accumulation) ||
	    field->offset_bytes == offsetof(struct zi_job_training, group_count))
		return 1;
	return 0;
}

static uint64_t read_field(const struct zi_job_training *training,
                           const struct training_field *field)
{
	const char *at = (const char *)training + field->offset_bytes;
	uint64_t wide = 0;
	uint32_t word;

	if (field->kind == TRAINING_BYTES || field->kind == TRAINING_REAL) {
		memcpy(&wide, at, sizeof(wide));
		return wide;
	}
	memcpy(&word, at, sizeof(word));
	return field->kind == TRAINING_FLAG ? word & field->flag : word;
}

static struct training_word format_field(const struct training_field *field, uint64_t value)
{
	struct training_word word;
	double real;

	switch ((enum training_kind)field->kind) {
	case TRAINING_STRATEGY:
		(void)zi_copy_name(word.chars, sizeof(word.chars),
		                   zi_strategy_name((uint32_t)value)); /* All names fit. */
		break;
	case TRAINING_DTYPE:
		(void)zi_copy_name(word.chars, sizeof(word.chars),
		                   zi_dtype_name((enum zi_dtype)value)); /* As above. */
		break;
	case TRAINING_SCALER:
		(void)zi_copy_name(word.chars, sizeof(word.chars),
		                   zi_scaler_name((uint32_t)value)); /* As above. */
		break;
	case TRAINING_BYTES:
		(void)zi_copy_name(word.chars, sizeof(word.chars),
		                   zi_format_bytes(value).chars); /* As above. */
		break;
	case TRAINING_REAL:
		memcpy(&real, &value, sizeof(real));
		(void)snprintf(word.chars, sizeof(word.chars), "%.17g", real); /* Fits. */
		break;
	case TRAINING_FLAG:
		(void)snprintf(word.chars, sizeof(word.chars), "%s",
		               value ? "true" : "false"); /* Fits. */
		break;
	case TRAINING_COUNT:
	default:
		(void)snprintf(word.chars, sizeof(word.chars), "%u", (uint32_t)value); /* Fits. */
		break;
	}
	return word;
}

/**
 * zi_training_compare() - do two ranks ask for the same?
 * @config: of both
 * @whose: of @model, for the sentence
 *
 * Return: 0; -EINVAL and the first field that differs, with both values.
 */
int zi_training_compare(const struct zi_job_training *training, const struct zi_job_training *model,
                        const struct zi_job_config *config, const char *whose, struct zi_text *text)
{
	for (size_t i = 0; i < ZI_COUNT_OF(training_fields); i++) {
		const struct training_field *field = &training_fields[i];
		uint64_t mine = meant(field, read_field(training, field), config);
		uint64_t other = meant(field, read_field(model, field), config);

		if (mine != other)
			return err_origin(zi_text_error(text, -EINVAL, "%s is %s, but %s in %s",
			                                field->name,
			                                format_field(field, mine).chars,
			                                format_field(field, other).chars, whose));
	}
	return 0;
}
