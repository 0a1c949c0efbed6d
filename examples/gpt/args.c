/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: a table of options, and one walk over it. */
#include "examples/gpt/args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/args_lr.h"
#include "examples/gpt/data.h"
#include "examples/gpt/distance.h"
#include "examples/gpt/number.h"
#include "zinf/zinf.h"

enum option_kind { KIND_FLAG, KIND_U32, KIND_U64, KIND_F64, KIND_BYTES, KIND_TEXT, KIND_CHOICE };

/* A name and the value it stands for; the list ends with NULL. */
struct choice {
	const char *name;
	uint32_t value;
};

struct option {
	const char *name; /* without the dashes; NULL: a heading */
	const char *help; /* begins with the word for the value, if it has one */
	const struct choice *choices;
	size_t offset;
	double min;
	double max;
	enum option_kind kind;
};

static const struct choice optimizers[] = { { "adamw", ZINF_ADAMW }, { "adam", ZINF_ADAM },
	                                    { "sgd", ZINF_SGD },     { "adagrad", ZINF_ADAGRAD },
	                                    { "lion", ZINF_LION },   { NULL, 0 } };
static const struct choice schedules[] = { { "local", ZINF_LOCAL },
	                                   { "sharded", ZINF_SHARDED },
	                                   { NULL, 0 } };
static const struct choice offloads[] = { { "none", ZINF_OFFLOAD_NONE },
	                                  { "cpu", ZINF_OFFLOAD_CPU },
	                                  { "nvme", ZINF_OFFLOAD_NVME },
	                                  { NULL, 0 } };
/* zinf_lr_name()'s, and gpt's own. */
static const struct choice lr_schedules[] = {
	{ "gpt", 0 },
	{ "constant", ZINF_LR_CONSTANT },
	{ "constant_with_warmup", ZINF_LR_CONSTANT_WARMUP },
	{ "linear", ZINF_LR_LINEAR },
	{ "cosine", ZINF_LR_COSINE },
	{ "cosine_with_restarts", ZINF_LR_COSINE_RESTARTS },
	{ "polynomial", ZINF_LR_POLYNOMIAL },
	{ "inverse_sqrt", ZINF_LR_INVERSE_SQRT },
	{ "cosine_with_min_lr", ZINF_LR_COSINE_MIN },
	{ "cosine_warmup_with_min_lr", ZINF_LR_COSINE_WARMUP_MIN },
	{ "warmup_stable_decay", ZINF_LR_WARMUP_STABLE_DECAY },
	{ "LRRangeTest", ZINF_LR_RANGE_TEST },
	{ "OneCycle", ZINF_LR_ONE_CYCLE },
	{ "WarmupLR", ZINF_LR_WARMUP },
	{ "WarmupDecayLR", ZINF_LR_WARMUP_DECAY },
	{ "WarmupCosineLR", ZINF_LR_WARMUP_COSINE },
	{ NULL, 0 }
};
static const struct choice lr_shapes[] = { { "linear", ZINF_LR_SHAPE_LINEAR },
	                                   { "cosine", ZINF_LR_SHAPE_COSINE },
	                                   { "1-sqrt", ZINF_LR_SHAPE_SQRT },
	                                   { "log", ZINF_LR_SHAPE_LOG },
	                                   { NULL, 0 } };
static const struct choice durabilities[] = { { "process", ZINF_DURABILITY_PROCESS },
	                                      { "power", ZINF_DURABILITY_POWER },
	                                      { NULL, 0 } };

#define AT(field) offsetof(struct gpt_args, field)
#define HEADING(text)          \
	{                      \
		.help = (text) \
	}
#define FLAG(option, field, text)                                                        \
	{                                                                                \
		.name = (option), .help = (text), .offset = AT(field), .kind = KIND_FLAG \
	}
#define NUMBER(option, type, field, least, most, text)                                 \
	{                                                                              \
		.name = (option), .help = (text), .offset = AT(field), .min = (least), \
		.max = (most), .kind = (type)                                          \
	}
#define TEXT(option, field, text)                                                        \
	{                                                                                \
		.name = (option), .help = (text), .offset = AT(field), .kind = KIND_TEXT \
	}
#define CHOICE(option, field, list, text)                                                 \
	{                                                                                 \
		.name = (option), .help = (text), .choices = (list), .offset = AT(field), \
		.kind = KIND_CHOICE                                                       \
	}

/* Limits: what the code's integers hold, and what nobody means. */
static const struct option options[] = {
	HEADING("Model"),
	NUMBER("layers", KIND_U32, model.layer_count, 1, 1024, "N       blocks (4)"),
	NUMBER("heads", KIND_U32, model.head_count, 1, 1024, "N       attention heads (4)"),
	NUMBER("d-model", KIND_U32, model.channel_count, 1, 65536, "N       channels (128)"),
	NUMBER("seq-len", KIND_U32, model.sequence_count, 1, 65536,
	       "N       tokens of a sequence (128)"),
	HEADING("Training"),
	NUMBER("batch-size", KIND_U32, model.batch_count, 1, 65536,
	       "N       sequences of a micro-batch of one rank (8)"),
	NUMBER("grad-accum", KIND_U32, grad_accum_count, 1, 65536,
	       "N       micro-batches of a step (1)"),
	NUMBER("steps", KIND_U64, step_count, 0, 1e15,
	       "N       train until this step is committed (300)"),
	NUMBER("lr", KIND_F64, lr, 0, 1e6,
	       "X       learning rate after the warm-up; lion wants a tenth (2e-3)"),
	NUMBER("warmup", KIND_U64, warmup_count, 0, 1e15, "N       steps of linear warm-up (20)"),
	NUMBER("min-lr", KIND_F64, min_lr, 0, 1e6,
	       "X       end of the cosine; equal to --lr: no decay (2e-4)"),
	CHOICE("lr-schedule", lr_kind, lr_schedules,
	       "NAME    transformers' or DeepSpeed's; gpt: warm-up and cosine to --min-lr (gpt)"),
	NUMBER("lr-total", KIND_U64, lr_total_count, 1, 1e15,
	       "N       updates to the schedule's end (--steps)"),
	NUMBER("lr-cycles", KIND_F64, lr_cycles, 0, 1e6, "X       waves, or restarts (0.5 or 1)"),
	NUMBER("lr-end", KIND_F64, lr_end, 0, 1e6, "X       end of polynomial (1e-7)"),
	NUMBER("lr-power", KIND_F64, lr_power, 0, 1e6, "X       of polynomial (1)"),
	NUMBER("lr-min-ratio", KIND_F64, lr_min_ratio, 0, 1,
	       "X       end of a schedule that has one, by --lr (0; WarmupCosineLR: 1e-4)"),
	NUMBER("lr-stable", KIND_U64, lr_stable_count, 0, 1e15,
	       "N       warmup_stable_decay: updates at --lr (what --lr-total leaves)"),
	NUMBER("lr-decay", KIND_U64, lr_decay_count, 0, 1e15,
	       "N       warmup_stable_decay: updates of its end (0)"),
	CHOICE("lr-warmup-shape", lr_warmup_shape, lr_shapes,
	       "NAME    of a warm-up: linear, cosine, 1-sqrt, log (linear; Warmup...LR: log)"),
	CHOICE("lr-decay-shape", lr_decay_shape, lr_shapes,
	       "NAME    warmup_stable_decay: linear, cosine, 1-sqrt (cosine)"),
	CHOICE("optimizer", optimizer, optimizers,
	       "NAME    adamw, adam, sgd, adagrad or lion (adamw)"),
	NUMBER("beta1", KIND_F64, beta1, 0, 1, "X       Adam, Lion (0.9)"),
	NUMBER("beta2", KIND_F64, beta2, 0, 1, "X       Adam, Lion (0.95)"),
	NUMBER("eps", KIND_F64, eps, 0, 1, "X       Adam, Adagrad (1e-8)"),
	NUMBER("weight-decay", KIND_F64, weight_decay, 0, 1e6, "X       (0.1)"),
	NUMBER("momentum", KIND_F64, momentum, 0, 1, "X       SGD (0.9)"),
	NUMBER("dampening", KIND_F64, dampening, 0, 1, "X       SGD (0)"),
	FLAG("nesterov", is_nesterov, "        SGD"),
	NUMBER("clip", KIND_F64, clip, 0, 1e30,
	       "X       largest norm of the gradient; 0: none (1)"),
	FLAG("skip-nonfinite", is_skipping_nonfinite,
	     "        a step with such a gradient changes nothing"),
	FLAG("bf16", is_bf16, "        parameters and gradients in bf16, master in f32"),
	FLAG("f32-grads", has_f32_grads, "        with --bf16: gradients in f32"),
	NUMBER("seed", KIND_U64, seed, 0, 1e15, "N       of first values and batches (1)"),
	TEXT("data", data, "PATH    text file or directory of them (" GPT_DATA_DEFAULT ")"),
	HEADING("Ranks"),
	NUMBER("ranks", KIND_U32, rank_count, 1, ZINF_WORLD_MAX,
	       "N       start N ranks here (1); started by a launcher, be one"),
	NUMBER("restarts", KIND_U32, restart_max, 0, 1e6,
	       "N       start again up to N times when the ranks or the daemon break off (0)"),
	FLAG("reference", is_reference, "        train in this process, without zinf"),
	HEADING("zinf"),
	CHOICE("schedule", schedule, schedules, "NAME    of reduction: local or sharded (local)"),
	CHOICE("offload-optimizer", offload_optimizer, offloads,
	       "TIER    none, cpu or nvme (nvme)"),
	CHOICE("offload-param", offload_param, offloads, "TIER    none, cpu or nvme (none)"),
	NUMBER("param-budget", KIND_BYTES, param_budget_bytes, 0, 1e18,
	       "SIZE    of CPU memory for parameters on NVMe; 0: the daemon's choice (0)"),
	NUMBER("resident", KIND_BYTES, resident_bytes, 0, 1e18,
	       "SIZE    of NVMe state that stays in CPU memory (0)"),
	NUMBER("staging", KIND_BYTES, staging_bytes, 0, 1e18,
	       "SIZE    buffers of the step's pipeline; 0: the daemon's default (0)"),
	NUMBER("commit-interval", KIND_U32, commit_interval, 1, 65536,
	       "N       commit every N-th step; a crash of the daemon loses up to N (1)"),
	NUMBER("snapshot-interval", KIND_U32, snapshot_interval, 0, 4294967295.0,
	       "N     keep every N-th step as snapshot auto-STEP; 0: none (0)"),
	NUMBER("snapshot-keep", KIND_U32, snapshot_keep, 0, 4294967295.0,
	       "N     of these the newest N stay; 0: all (0)"),
	CHOICE("durability", durability, durabilities,
	       "NAME    a commit survives: process or power (process)"),
	TEXT("job", job, "NAME    (ZINF_JOB, else \"gpt\")"),
	TEXT("load", load, "NAME    of a snapshot (JOB/NAME): a job that is new begins with it"),
	TEXT("incarnation", incarnation, "NAME    of this start of the job (made up)"),
	TEXT("socket", socket, "PATH    of the daemon (ZINF_SOCKET, else the system's)"),
	FLAG("wait-daemon", is_waiting_for_daemon, "        wait for the daemon to appear"),
	FLAG("delete-job", is_deleting_job, "        at the end, with all its state"),
	NUMBER("timeout", KIND_U32, timeout_s, 1, 4294967, "SECONDS of every wait (600)"),
	HEADING("Output"),
	NUMBER("log-every", KIND_U64, log_every, 1, 1e15,
	       "N       steps between progress lines (10)"),
	NUMBER("eval-every", KIND_U64, eval_every, 0, 1e15,
	       "N       steps between evaluations; 0: none (0)"),
	NUMBER("eval-batches", KIND_U32, eval_batch_count, 1, 65536, "N       of each rank (4)"),
	TEXT("dump", dump, "FILE    write the last step and all parameters there"),
	FLAG("json", is_json, "        a line of JSON per step and rank instead"),
	FLAG("quiet", is_quiet, "        no progress lines"),
	FLAG("help", is_help, "        this text"),
	FLAG("version", is_version, "        of libzinf"),
	HEADING("For tests"),
	TEXT("watch", watch, "FILE    rank 0 writes the number of each committed step there"),
	NUMBER("exit-after-step", KIND_U64, exit_after_step, 1, 1e15,
	       "N       a rank kills itself (SIGKILL) when this step is committed"),
	NUMBER("exit-rank", KIND_U32, exit_rank, 0, ZINF_WORLD_MAX - 1, "N       which one (0)"),
};
#define OPTION_COUNT (sizeof(options) / sizeof(options[0]))

static const struct gpt_args defaults = {
	.model = { .layer_count = 4,
	           .head_count = 4,
	           .channel_count = 128,
	           .sequence_count = 128,
	           .batch_count = 8 },
	.rank = -1,
	.grad_accum_count = 1,
	.step_count = 300,
	.lr = 2e-3,
	.min_lr = 2e-4,
	.warmup_count = 20,
	.lr_cycles = GPT_LR_UNSET,
	.lr_end = GPT_LR_UNSET,
	.lr_power = GPT_LR_UNSET,
	.lr_min_ratio = GPT_LR_UNSET,
	.lr_stable_count = GPT_LR_UNSET_COUNT,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.eps = 1e-8,
	.weight_decay = 0.1,
	.momentum = 0.9,
	.clip = 1.0,
	.optimizer = ZINF_ADAMW,
	.schedule = ZINF_LOCAL,
	.seed = 1,
	.data = GPT_DATA_DEFAULT,
	.offload_optimizer = ZINF_OFFLOAD_NVME,
	.timeout_s = 600,
	.log_every = 10,
	.eval_batch_count = 4,
};

static const char *nearest_option(const char *name)
{
	const char *best = "help";
	unsigned best_distance = gpt_distance(name, best);

	for (size_t i = 0; i < OPTION_COUNT; i++) {
		unsigned d = options[i].name ? gpt_distance(name, options[i].name) : UINT32_MAX;

		if (d < best_distance) {
			best = options[i].name;
			best_distance = d;
		}
	}
	return best;
}

/* @name: ends at '=' or at its NUL. */
static const struct option *find_option(const char *name, size_t name_bytes)
{
	for (size_t i = 0; i < OPTION_COUNT; i++)
		if (options[i].name && strlen(options[i].name) == name_bytes &&
		    strncmp(options[i].name, name, name_bytes) == 0)
			return &options[i];
	return NULL;
}

static int set_choice(const struct option *option, const char *value, uint32_t *ret_value,
                      struct gpt_problem *problem)
{
	char list[320] = "";

	for (const struct choice *choice = option->choices; choice->name; choice++) {
		size_t used = strlen(list);

		if (strcmp(choice->name, value) == 0) {
			*ret_value = choice->value;
			return 0;
		}
		(void)snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "",
		               choice->name); /* The lists above fit. */
	}
	return gpt_problem_set(problem, -EINVAL, "--%s %s: allowed are %s", option->name, value,
	                       list);
}

static int set_value(struct gpt_args *args, const struct option *option, const char *value,
                     struct gpt_problem *problem)
{
	void *field = (char *)args + option->offset;
	uint64_t integer = 0;
	double number = 0;
	int r = 0;

	if (option->kind == KIND_TEXT) {
		*(const char **)field = value;
		return 0;
	}
	if (option->kind == KIND_CHOICE)
		return set_choice(option, value, field, problem);
	if (option->kind == KIND_F64)
		r = gpt_parse_f64(value, &number);
	else if (option->kind == KIND_BYTES)
		r = gpt_parse_bytes(value, &integer);
	else
		r = gpt_parse_u64(value, &integer);
	if (r)
		return gpt_problem_set(problem, -EINVAL, "--%s %s: a number%s is needed",
		                       option->name, value,
		                       option->kind == KIND_BYTES ? " (with K, M, G or T)" : "");
	if (option->kind != KIND_F64)
		number = (double)integer;
	if (!(number >= option->min && number <= option->max))
		return gpt_problem_set(problem, -EINVAL, "--%s %s: allowed is %.15g to %.15g",
		                       option->name, value, option->min, option->max);
	if (option->kind == KIND_F64)
		*(double *)field = number;
	else if (option->kind == KIND_U32)
		*(uint32_t *)field = (uint32_t)integer;
	else
		*(uint64_t *)field = integer;
	return 0;
}

/* What no single option can know. */
static int check_together(const struct gpt_args *args, struct gpt_problem *problem)
{
	if (args->has_f32_grads && !args->is_bf16)
		return gpt_problem_set(problem, -EINVAL, "--f32-grads needs --bf16");
	if (args->model.channel_count % args->model.head_count)
		return gpt_problem_set(problem, -EINVAL,
		                       "--d-model %u is not a multiple of --heads %u",
		                       args->model.channel_count, args->model.head_count);
	if (args->optimizer != ZINF_SGD && (args->beta1 >= 1 || args->beta2 >= 1))
		return gpt_problem_set(problem, -EINVAL,
		                       "--beta1 %g and --beta2 %g must be below 1 unless "
		                       "--optimizer is sgd",
		                       args->beta1, args->beta2);
	if (args->is_nesterov && args->optimizer != ZINF_SGD)
		return gpt_problem_set(problem, -EINVAL, "--nesterov needs --optimizer sgd");
	if (args->min_lr > args->lr)
		return gpt_problem_set(problem, -EINVAL, "--min-lr %g is above --lr %g",
		                       args->min_lr, args->lr);
	return gpt_lr_check(args, problem);
}

/*
 * Reads "--name value", "--name=value" and flags. @args: defaults first, then what is given; texts
 * point into @argv. Return: 0, -EINVAL with the reason.
 */
int gpt_args_parse(struct gpt_args *args, int argc, const char *const *argv,
                   struct gpt_problem *problem)
{
	int r;

	*args = defaults;
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i] + 2;
		const char *equals = strchr(argv[i], '=');
		const struct option *option;

		if (strncmp(argv[i], "--", 2) != 0)
			return gpt_problem_set(problem, -EINVAL,
			                       "\"%s\" is not understood; options begin with --",
			                       argv[i]);
		option = find_option(name, equals ? (size_t)(equals - name) : strlen(name));
		if (!option)
			return gpt_problem_set(
				problem, -EINVAL,
				"%s is unknown; did you mean --%s? (--help lists all)", argv[i],
				nearest_option(name));
		if (option->kind == KIND_FLAG) {
			if (equals)
				return gpt_problem_set(problem, -EINVAL, "--%s takes no value",
				                       option->name);
			*(bool *)((char *)args + option->offset) = true;
			continue;
		}
		if (!equals && i + 1 == argc)
			return gpt_problem_set(problem, -EINVAL, "--%s needs a value",
			                       option->name);
		r = set_value(args, option, equals ? equals + 1 : argv[++i], problem);
		if (r)
			return r;
		args->has_min_lr |= option->offset == AT(min_lr);
	}
	if (!args->has_min_lr)
		args->min_lr = args->lr / 10; /* As with the defaults, for any --lr. */
	return check_together(args, problem);
}

/* @program: its name, for the first line. */
void gpt_args_help(const char *program)
{
	(void)printf("usage: %s [options]\n"
	             "Trains a GPT on text, byte by byte, its state kept by zinfd. Defaults in "
	             "parentheses.\n",
	             program);
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		if (!options[i].name)
			(void)printf("\n%s\n", options[i].help);
		else
			(void)printf("  --%-18s %s\n", options[i].name, options[i].help);
	}
}
