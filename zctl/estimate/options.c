/* SPDX-License-Identifier: Apache-2.0 */
/* One table of options, one walk over it (options.h). The names are those of zinf-gpt. */
#include "zctl/estimate/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/nearest.h"
#include "zctl/estimate/deepspeed.h"
#include "zinf/zinf.h"

/* A commit names no more steps (common/wire/check.c). */
#define INTERVAL_MAX     65536u
#define SNAPSHOTS_MAX    1000000u
#define UNITS_MAX        65536u
#define ACCUMULATION_MAX 65536u /* common/wire/training.c */

enum kind { KIND_FLAG, KIND_COUNT, KIND_BYTES, KIND_CHOICE, KIND_TEXT };

/* A list of names by value; "" and NULL are none. */
typedef const char *(*name_fn)(uint32_t value);

struct option {
	const char *name; /* without the dashes */
	const char *help;
	size_t offset;
	enum kind kind;
	uint32_t least, most; /* of counts, and of the values of a choice */
	name_fn value_name;
};

static const char *dtype_name(uint32_t value)
{
	return zi_dtype_name((enum zi_dtype)value);
}

static const char *optimizer_name(uint32_t value)
{
	return zi_optimizer_name((enum zi_optimizer)value);
}

static const char *schedule_name(uint32_t value)
{
	return zi_schedule_name((enum zi_schedule)value);
}

static const char *offload_name(uint32_t value)
{
	return zi_offload_name((enum zi_offload)value);
}

#define AT(field) offsetof(struct estimate_options, field)
#define COUNT(option, field, low, high, text)                                              \
	{                                                                                  \
		.name = (option), .help = (text), .offset = AT(field), .kind = KIND_COUNT, \
		.least = (low), .most = (high)                                             \
	}
#define BYTES(option, field, text)                                                        \
	{                                                                                 \
		.name = (option), .help = (text), .offset = AT(field), .kind = KIND_BYTES \
	}
#define CHOICE(option, field, low, end, names, text)                                        \
	{                                                                                   \
		.name = (option), .help = (text), .offset = AT(field), .kind = KIND_CHOICE, \
		.least = (low), .most = (end)-1, .value_name = (names)                      \
	}

static const struct option table[] = {
	COUNT("units", unit_count, 1, UNITS_MAX,
	      "N    units, for a count of elements (one per 2^26)"),
	COUNT("ranks", rank_count, 1, ZI_WORLD_MAX, "N    ranks on each node (1)"),
	COUNT("nodes", node_count, 1, ZI_WORLD_MAX, "N    nodes (1)"),
	CHOICE("dtype", dtype, 1, _ZI_DTYPE_FLOAT_COUNT, dtype_name,
	       "NAME type of parameters: f32, bf16, f16 (the model's,\n"
	       "                           or bf16)"),
	CHOICE("grad-dtype", grad_dtype, 1, _ZI_DTYPE_FLOAT_COUNT, dtype_name,
	       "NAME type of gradients (the model's, else as --dtype)"),
	CHOICE("reduce-dtype", reduce_dtype, 1, _ZI_DTYPE_FLOAT_COUNT, dtype_name,
	       "NAME type of sums over ranks (the gradients')"),
	CHOICE("optimizer", optimizer, 1, _ZI_OPTIMIZER_COUNT, optimizer_name,
	       "NAME adamw, adam, sgd, adagrad, lion (the model's, or\n"
	       "                           adamw)"),
	CHOICE("grad-reduction", schedule, 1, _ZI_SCHEDULE_COUNT, schedule_name,
	       "NAME per_step or per_micro_batch (the model's, or\n"
	       "                           per_step)"),
	{ .name = "deepspeed-config",
	  .help = "FILE DeepSpeed's JSON: types, strategy, tiers; options\n"
	          "                           override it",
	  .offset = AT(deepspeed),
	  .kind = KIND_TEXT },
	{ .name = "strategy",
	  .help = "NAME dp, ddp, zero1, zero2, zero3, or FSDP's names (ddp)",
	  .offset = AT(strategy),
	  .kind = KIND_TEXT },
	COUNT("shard-size", shard_size, 1, ZI_WORLD_MAX, "N    ranks that share a plane (all)"),
	COUNT("grad-accum", accumulation, 1, ACCUMULATION_MAX,
	      "N    micro-batches that each rank adds up itself (1)"),
	BYTES("grad-budget", grad_budget_bytes,
	      "SIZE memory of each rank for gradients, zero2 and\n"
	      "                           zero3; 0: two units (0)"),
	{ .name = "forward-only",
	  .help = "     the job uses parameters and trains nothing",
	  .offset = AT(is_forward_only),
	  .kind = KIND_FLAG },
	CHOICE("offload-optimizer", offload_optimizer, 0, _ZI_OFFLOAD_COUNT, offload_name,
	       "TIER place of the state: none, cpu or nvme (none)"),
	CHOICE("offload-param", offload_param, 0, _ZI_OFFLOAD_COUNT, offload_name,
	       "TIER place of parameters: none, cpu or nvme (none)"),
	BYTES("resident", resident_bytes, "SIZE state on NVMe that also stays in memory (0)"),
	BYTES("param-budget", param_budget_bytes,
	      "SIZE memory for parameters on NVMe; 0: the daemon\n"
	      "                           chooses (0)"),
	BYTES("staging", staging_bytes,
	      "SIZE buffers of the step's pipeline; 0: the daemon's\n"
	      "                           default (0)"),
	COUNT("commit-interval", commit_interval, 1, INTERVAL_MAX,
	      "N    steps from commit to commit (1)"),
	COUNT("snapshots", snapshot_count, 0, SNAPSHOTS_MAX, "N    snapshots that are kept (0)"),
	BYTES("tensors", tensor_bytes, "SIZE budget of each rank for tensors (0)"),
	BYTES("arena", arena_bytes, "SIZE arena of each rank for collectives (0)"),
	{ .name = "device",
	  .help = "NAME gpu, or the UUID of a GPU of the running zinfd: also\n"
	          "                           what each rank needs there (cpu)",
	  .offset = AT(device),
	  .kind = KIND_TEXT },
	BYTES("gpu-param-budget", gpu_param_budget_bytes,
	      "SIZE GPU memory for parameters; 0: as zinf-gpt (0)"),
	BYTES("gpu-grad-budget", gpu_grad_budget_bytes,
	      "SIZE GPU memory for gradients; 0: as zinf-gpt (0)"),
	BYTES("gpu-memory", gpu_memory_bytes,
	      "SIZE memory of the GPU for this rank; else what the\n"
	      "                           running zinfd has free"),
	{ .name = "small-pages",
	  .help = "     the daemon has tier.cpu.huge_pages = never",
	  .offset = AT(has_small_pages),
	  .kind = KIND_FLAG },
	BYTES("fit", fit_cpu_bytes, "SIZE memory: find the nearest setting that fits"),
	BYTES("fit-nvme", fit_nvme_bytes, "SIZE NVMe space, with --fit (no limit)"),
	{ .name = "help", .help = "     this text", .offset = AT(is_help), .kind = KIND_FLAG },
};

/* See options.h. */
void estimate_options_help(FILE *stream)
{
	fprintf(stream,
	        "usage: zctl estimate SOURCE [OPTIONS]\n"
	        "What a job would hold in each tier, before it exists. SOURCE is one of\n"
	        "  1.3G                     parameters, in powers of 1000 (K M G B T)\n"
	        "  model.safetensors        names and shapes in its header; also the list of\n"
	        "                           several files, model.safetensors.index.json\n"
	        "  config.json              of Hugging Face\n"
	        "  manifest.json            of zctl export\n\n");
	for (size_t i = 0; i < ZI_COUNT_OF(table); i++)
		fprintf(stream, "  --%-17s %s\n", table[i].name, table[i].help);
	fprintf(stream, "  --%-17s %s\n", "json", "     for programs");
	fputs("\nexample: zctl estimate config.json --ranks 8 --strategy zero3 --fit 64G\n",
	      stream);
}

/* @given: as the user wrote it. */
static const struct option *find(const char *given, struct zi_text *text)
{
	const char *word = given + strspn(given, "-");
	struct zi_nearest nearest = { .wanted = word };

	for (size_t i = 0; i < ZI_COUNT_OF(table); i++) {
		zi_nearest_offer(&nearest, table[i].name);
		if (!strcmp(table[i].name, word))
			return &table[i];
	}
	if (zi_nearest_name(&nearest))
		zi_text_set(text, "unknown option '%.40s': did you mean --%s?", given,
		            nearest.name);
	else
		zi_text_set(text, "unknown option '%.40s'", given);
	return NULL;
}

static int set_count(const struct option *option, const char *word, uint32_t *ret_count,
                     struct zi_text *text)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(word, &end, 10);
	if (*word < '0' || *word > '9' || *end || errno || value < option->least ||
	    value > option->most)
		return zi_text_error(text, err_origin(-EINVAL), "--%s %.40s: %u to %u are possible",
		                     option->name, word, option->least, option->most);
	*ret_count = (uint32_t)value;
	return 0;
}

static int set_bytes(const struct option *option, const char *word, uint64_t *ret_bytes,
                     struct zi_text *text)
{
	int r = zi_parse_bytes(word, ret_bytes);

	return r ? zi_text_error(text, err_origin(-EINVAL),
	                         "--%s %.40s: bytes are needed, as 4096, 64M or 1.5GiB",
	                         option->name, word)
	         : 0;
}

static int set_choice(const struct option *option, const char *word, uint32_t *ret_value,
                      struct zi_text *text)
{
	for (uint32_t value = option->least; value <= option->most; value++)
		if (!strcmp(option->value_name(value), word)) {
			*ret_value = value;
			return 0;
		}
	(void)zi_text_error(text, 0, "--%s %.40s: allowed are", option->name, word);
	for (uint32_t value = option->least; text && value <= option->most; value++)
		zi_text_append(text, " %s", option->value_name(value));
	return err_origin(-EINVAL);
}

static int set(struct estimate_options *options, const struct option *option, const char *word,
               struct zi_text *text)
{
	void *field = (char *)options + option->offset;

	switch (option->kind) {
	case KIND_COUNT:
		return err_trace(set_count(option, word, field, text));
	case KIND_BYTES:
		return err_trace(set_bytes(option, word, field, text));
	case KIND_CHOICE:
		return err_trace(set_choice(option, word, field, text));
	default:
		*(const char **)field = word;
		return 0;
	}
}

/* What no single option can know. */
static int check_together(const struct estimate_options *options, struct zi_text *text)
{
	if (options->is_help)
		return 0;
	if (!options->source)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "a SOURCE is needed: a count of elements, or a file");
	if (options->fit_nvme_bytes != UINT64_MAX && options->fit_cpu_bytes == UINT64_MAX)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "--fit-nvme goes with --fit, the memory there is");
	if (options->device && strcmp(options->device, "gpu") != 0 &&
	    strncmp(options->device, "GPU-", 4) != 0 && strncmp(options->device, "MIG-", 4) != 0)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "--device %.50s: allowed are cpu, gpu, or the UUID of a GPU",
		                     options->device);
	if (!options->device && (options->gpu_param_budget_bytes ||
	                         options->gpu_grad_budget_bytes || options->gpu_memory_bytes))
		return zi_text_error(text, err_origin(-EINVAL),
		                     "--gpu-param-budget, --gpu-grad-budget and --gpu-memory need "
		                     "--device gpu");
	if (options->rank_count * options->node_count > ZI_WORLD_MAX)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "--ranks %u on --nodes %u are %u ranks: a job has at most %u",
		                     options->rank_count, options->node_count,
		                     options->rank_count * options->node_count, ZI_WORLD_MAX);
	return 0;
}

/* What the words say goes before what @options say. */
static int take_words(struct estimate_options *options, int argc, char **argv, struct zi_text *text)
{
	options->source = NULL;
	for (int i = 1; i < argc; i++) {
		const struct option *option;
		int r;

		if (argv[i][0] != '-') {
			if (options->source)
				return zi_text_error(
					text, err_origin(-EINVAL),
					"'%.60s' beside '%.60s': one SOURCE is possible", argv[i],
					options->source);
			options->source = argv[i];
			continue;
		}
		option = find(argv[i], text);
		if (!option)
			return err_origin(-EINVAL);
		if (option->kind == KIND_FLAG) {
			*(bool *)((char *)options + option->offset) = true;
			continue;
		}
		if (i + 1 == argc)
			return zi_text_error(text, err_origin(-EINVAL), "--%s needs a value",
			                     option->name);
		r = set(options, option, argv[++i], text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

/* See options.h. */
int estimate_options_parse(struct estimate_options *options, int argc, char **argv,
                           struct zi_text *text)
{
	int r;

	*options = (struct estimate_options){ .strategy = "ddp",
		                              .rank_count = 1,
		                              .node_count = 1,
		                              .commit_interval = 1,
		                              .fit_cpu_bytes = UINT64_MAX,
		                              .fit_nvme_bytes = UINT64_MAX };
	r = take_words(options, argc, argv, text);
	if (options->device && !strcmp(options->device, "cpu"))
		options->device = NULL;
	if (!r)
		r = check_together(options, text);
	if (r || !options->deepspeed || options->is_help)
		return err_trace(r);
	r = estimate_deepspeed(options, text);
	if (!r)
		r = take_words(options, argc, argv, text);
	if (options->device && !strcmp(options->device, "cpu"))
		options->device = NULL;
	return err_trace(r);
}

static uint32_t either(uint32_t given, uint32_t read, uint32_t otherwise)
{
	return given ? given : read ? read : otherwise;
}

/* See options.h. */
struct zi_plan_options estimate_options_plan(const struct estimate_options *options,
                                             const struct estimate_model *model)
{
	struct zi_plan_options plan = {
		.local_ranks = options->rank_count,
		.world_size = options->rank_count * options->node_count,
		.node_count = options->node_count,
		.wants_huge = !options->has_small_pages,
		.tensor_bytes = options->tensor_bytes,
		.arena_bytes = options->arena_bytes,
		.snapshot_count = options->snapshot_count,
	};
	struct zi_job_config *config = &plan.config;
	/* A job of zinf's says what it trains in; of other files f16 is how they were stored. */
	uint32_t read =
		model->dtype == ZI_DTYPE_F16 && !model->grad_dtype ? ZI_DTYPE_BF16 : model->dtype;

	config->param_dtype = either(options->dtype, read, ZI_DTYPE_BF16);
	/* What was recorded goes together; another --dtype has its own. */
	config->grad_dtype = either(options->grad_dtype, options->dtype ? 0 : model->grad_dtype,
	                            config->param_dtype);
	config->optimizer = either(options->optimizer, model->optimizer, ZI_OPTIMIZER_ADAMW);
	config->schedule = either(options->schedule, model->schedule, ZI_SCHEDULE_LOCAL);
	config->offload_optimizer = options->offload_optimizer;
	config->offload_param = options->offload_param;
	config->commit_interval = options->commit_interval;
	config->resident_bytes = options->resident_bytes;
	config->staging_bytes = options->staging_bytes;
	config->param_budget_bytes = options->param_budget_bytes;
	return plan;
}

/* See options.h. */
int estimate_options_training(const struct estimate_options *options,
                              const struct zi_plan_options *plan,
                              struct zi_job_training *ret_training, struct zi_text *text)
{
	struct zinf_options named = ZINF_OPTIONS_INIT;
	struct zi_job_training training = { 0 };
	int r;

	if (zinf_strategy_by_name(options->strategy, &named))
		return zi_text_error(text, err_origin(-EINVAL), "%s", zinf_attach_error());
	training.strategy = named.strategy;
	training.shard_size =
		named.shard_size == ZINF_SHARD_NODE ? plan->local_ranks : named.shard_size;
	if (options->shard_size)
		training.shard_size = options->shard_size;
	/* Reduced per micro-batch, a rank hands each of them over. */
	if (options->accumulation > 1 && plan->config.schedule != ZI_SCHEDULE_SHARDED)
		training.accumulation = options->accumulation;
	training.reduce_dtype = options->reduce_dtype;
	training.grad_budget_bytes = options->grad_budget_bytes;
	if (options->is_forward_only)
		training.flags |= ZI_TRAINING_FORWARD_ONLY;
	r = zi_check_training(&training, &plan->config, plan->world_size, plan->local_ranks, text);
	if (r)
		return err_trace(r);
	*ret_training = training;
	return 0;
}
